import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sympy as sp

from replica.codegen.c_compiler import cache_folder, compile_c, find_compiler
from replica.codegen.c_function import compile_c_function
from replica.codegen.c_printer import literal, print_c
from replica.codegen.numpy_printer import compile_numpy
from replica.errors import UnsupportedNodeError
from replica.ir.lower import lower
from replica.symbolic import primitives as prim
from replica.symbolic.tokens import RELEVANT, Centred, TokenSum, TokenWeights, index
from tests.conftest import programs_of

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")

x, y, a = sp.symbols("x y a", real=True)
i, l = index("i"), index("l")  # noqa: E741
X, Y = sp.Function("X", real=True), sp.Function("Y", real=True)
INPUTS = {"x": "node", "y": "node", "a": "uniform", "X": "token", "Y": "token"}
W = TokenWeights(X(i), i, l)

EXPRESSIONS = [
    x + a * y, x / 3, x**7 - 1 / x**2, sp.sqrt(x**2 + 1), sp.exp(x), sp.erf(x), 1 + sp.erf(x),
    sp.erfc(x), sp.tanh(x), sp.sign(x), sp.Abs(x), sp.log(1 + x**2), prim.softplus(x),
    prim.sigmoid(x), prim.log_softplus(x), prim.softplus_score(x), sp.pi * x + sp.E,
    TokenSum(X(l) * Y(l), l), TokenSum(X(l) * TokenSum(Y(i), i), l), X(RELEVANT) * x,
    TokenSum(W * Y(l), l), TokenSum(W**2, l) * TokenSum(X(l), l), TokenSum(x, l),
    TokenSum(X(l) * sp.KroneckerDelta(RELEVANT, l), l), W * Y(l) + x,
    Centred.of(Y(l), l, TokenWeights(X(i), i, l)) * W, X(l) ** 2 - TokenSum(X(i), i),
]


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("expr", EXPRESSIONS, ids=str)
def test_c_agrees_with_numpy(expr, length):
    program = lower("f", {"out": expr}, INPUTS, {l: "token"})
    rng = np.random.default_rng(0)
    shapes = {"uniform": (), "node": (21,), "token": (length, 21)}
    values = [3 * rng.normal(size=shapes[s]) for _, s in program.inputs]
    values = [float(v) if np.ndim(v) == 0 else v for v in values]
    mine = compile_c_function(program)(*values, length)[0]
    other = np.broadcast_to(compile_numpy(program)(*values, length)[0], mine.shape)
    assert np.allclose(mine, other, rtol=2e-14, atol=1e-300)


def test_exponential_over_its_whole_range():
    function = compile_c_function(lower("f", {"out": sp.exp(x)}, INPUTS))
    grid = np.concatenate([np.linspace(-745, 709.7, 20001), [-800.0, 0.0, 1e-300, -1e-17]])
    mine = function(grid, 1)[0]
    assert np.allclose(mine, np.exp(grid), rtol=4e-16, atol=5e-324)
    assert function(np.array([1000.0]), 1)[0][0] == np.inf


def test_literals_are_typed_and_complete():
    assert literal(sp.Integer(3)) == "3.0"
    assert float(literal(sp.pi)) == np.pi
    assert literal(sp.Rational(1, 3)) == "0.33333333333333331"


def test_no_headers_macros_or_pow_in_generated_bodies():
    for piece in ("proximal", "readout", "averages"):
        source = print_c(getattr(programs_of("erf"), piece)).source
        assert "#include" not in source
        assert "M_PI" not in source
        assert "pow(" not in source


def test_pairs_of_tokens_are_refused():
    with pytest.raises(UnsupportedNodeError):
        print_c(programs_of("softmax").hessian)


def test_the_same_source_is_built_once(tmp_path, monkeypatch):
    monkeypatch.setenv("REPLICA_CACHE", str(tmp_path))
    text = "double f(void) { return 1.5; }"
    assert compile_c(text) is not None
    built = list(tmp_path.glob("*.so"))
    stamp = built[0].stat().st_mtime_ns
    assert compile_c(text) is not None
    assert list(tmp_path.glob("*")) == built
    assert built[0].stat().st_mtime_ns == stamp
    assert cache_folder() == tmp_path


def test_many_processes_fill_a_cold_cache(tmp_path):
    script = (
        "from replica.codegen.c_compiler import compile_c;"
        "print(compile_c('double f(double x) { return 2.0 * x; }') is not None)"
    )
    env = {**os.environ, "REPLICA_CACHE": str(tmp_path)}
    running = [
        subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    assert [p.communicate()[0].strip() for p in running] == ["True"] * 6
    assert len(list(tmp_path.iterdir())) == 1


def test_a_compiler_that_fails_is_no_compiler(tmp_path, monkeypatch):
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    monkeypatch.setenv("REPLICA_CACHE", str(tmp_path / "cache"))
    assert compile_c("double f(void) { return 1.0; }") is None
    assert not list(Path(tmp_path / "cache").glob("*"))
