"""All printers on one list of expressions: the same numbers, and text for people."""

import mpmath as mp
import numpy as np
import pytest

from replica.codegen.c_compiler import find_compilers
from replica.codegen.c_function import compile_c_function
from replica.codegen.mpmath_printer import compile_mpmath
from replica.codegen.numpy_printer import compile_numpy
from replica.document.latex_printer import to_latex
from replica.document.mathml import mathml
from replica.document.text_printer import to_text
from replica.ir.lower import lower
from tests.expressions import EXPRESSIONS, INPUTS, l

NODES = 21


def program_of(expr):
    return lower("f", {"out": expr}, INPUTS, {l: "token"})


def values_of(program, length):
    rng = np.random.default_rng(0)
    shapes = {"uniform": (), "node": (NODES,), "token": (length, NODES)}
    values = [3 * rng.normal(size=shapes[s]) for _, s in program.inputs]
    return [float(v) if np.ndim(v) == 0 else v for v in values]


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("expr", EXPRESSIONS, ids=str)
def test_numpy_agrees_with_mpmath(expr, length):
    program = program_of(expr)
    values = values_of(program, length)
    found = np.asarray(compile_numpy(program)(*values, length)[0])
    token = program.shape("out") == "token"
    found = np.broadcast_to(found, (length, NODES) if token else (NODES,))
    with mp.workdps(30):
        run = compile_mpmath(program)
        for node in (0, 7, 20):
            exact = run(*(
                mp.mpf(v) if np.ndim(v) == 0 else (
                    mp.mpf(float(v[node])) if np.ndim(v) == 1
                    else [mp.mpf(float(u)) for u in v[:, node]]
                ) for v in values
            ), length)[0]
            rows = exact if isinstance(exact, list) else [exact]
            mine = found[:, node] if token else [found[node]]
            for a, b in zip(mine, rows, strict=True):
                assert abs(mp.mpf(float(a)) - b) <= 1e-13 * (1 + abs(b))


@pytest.mark.skipif(not find_compilers(), reason="no C compiler")
@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("expr", EXPRESSIONS, ids=str)
def test_c_agrees_with_numpy(expr, length):
    program = program_of(expr)
    values = values_of(program, length)
    mine = compile_c_function(program)(*values, length)[0]
    other = np.broadcast_to(compile_numpy(program)(*values, length)[0], mine.shape)
    assert np.allclose(mine, other, rtol=2e-14, atol=1e-300)


@pytest.mark.parametrize("expr", EXPRESSIONS, ids=str)
def test_people_can_read_it(expr):
    latex = to_latex(expr)
    assert latex.count("{") == latex.count("}")
    assert "TokenSum" not in latex
    assert "Centred" not in latex
    assert mathml(latex).startswith("<math")
    assert "TokenSum" not in to_text(expr)
