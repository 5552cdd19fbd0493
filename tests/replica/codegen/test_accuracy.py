"""Generated NumPy and C code against 40 digits, on the same nodes.

The bound is ``1e-12 * (sum of the sizes of the terms of the token sums) + 1e-290`` for objective,
gradient and integrands. The Gauss-Newton direction and the curvature steer the solver; far in the
tail of ``exp(-(c+chi)^2)`` they inherit the rounding of ``chi = omega + V f``, so there the bound
has the condition number of the exponential as a factor.
"""

import mpmath as mp
import numpy as np
import pytest

from replica.codegen.c_compiler import find_compilers
from replica.codegen.c_function import compile_c_function
from replica.codegen.mpmath_printer import compile_mpmath
from replica.codegen.numpy_printer import compile_numpy
from replica.ir.program import Program
from tests.conftest import programs_of

DIGITS = 40


def random_inputs(program: Program, length: int, field: float, V: float, rng) -> dict:
    values = {}
    for name, shape in program.inputs:
        if shape == "token":
            scale = field / V if name == "f_k" else field
            values[name] = rng.uniform(-scale, scale, size=length)
            if name.startswith("omega") and rng.random() < 0.2:
                values[name][rng.integers(length)] *= 0.0
        elif name.startswith("V_"):
            values[name] = V
        elif shape == "node":
            values[name] = rng.uniform(-field, field)
        else:
            values[name] = rng.uniform(0.2, 1.5)
    if "q_v" in values and "m_v" in values:
        values["q_v"] = values["m_v"] ** 2 + 0.3
    return values


def evaluate_doubles(function, program, values, length):
    inputs = [
        np.asarray(values[n])[:, None] if s == "token"
        else (np.array([values[n]]) if s == "node" else float(values[n]))
        for n, s in program.inputs
    ]
    with np.errstate(all="ignore"):
        found = function(*inputs, length)
    shaped = {}
    for (name, number), out in zip(program.outputs.items(), found, strict=True):
        token = program.instructions[number].shape == "token"
        shape = (length, 1) if token else (1,)
        shaped[name] = np.broadcast_to(out, shape).ravel()
    return shaped


def evaluate_mpmath(program, values, length):
    """Exact values and, for each output, the sum of the sizes of the terms that made it."""
    inputs = [
        [mp.mpf(float(v)) for v in values[n]] if s == "token" else mp.mpf(float(values[n]))
        for n, s in program.inputs
    ]
    found = compile_mpmath(program)(*inputs, length)
    names = list(program.outputs)
    return {
        n: (list(v) if isinstance(v, list) else [v]) for n, v in zip(names, found, strict=True)
    }


def magnitude(program: Program, values, length, conditioned: bool) -> dict:
    """Bound per output: the program run on absolute values, sums in place of differences."""
    sizes: dict[int, object] = {}
    exact = _trace(program, values, length)
    for i in program.instructions:
        a = [sizes[k] for k in i.args]
        e = [exact[k] for k in i.args]
        own = _absolute(exact[i.id])
        if i.op in ("add", "sub"):
            sizes[i.id] = _zip(lambda u, v: u + v, a, length)
        elif i.op == "mul":
            sizes[i.id] = _zip(lambda u, v: u * v, a, length)
        elif i.op == "div":
            sizes[i.id] = _zip(lambda u, v: u / v, [a[0], _absolute(e[1])], length)
        elif i.op == "neg":
            sizes[i.id] = a[0]
        elif i.op == "token_sum":
            sizes[i.id] = mp.fsum(a[0])
        elif i.op == "centre":
            average = mp.fsum(u * v for u, v in zip(a[0], _absolute(e[1]), strict=True))
            sizes[i.id] = [u + average for u in a[0]]
        elif i.op == "call" and conditioned:
            sizes[i.id] = _zip(lambda u, v, w: u * (1 + v + abs(w)), [own, a[0], e[0]], length)
        elif i.op == "pick":
            sizes[i.id] = a[0][0]
        else:
            sizes[i.id] = own
    return {
        n: (list(sizes[k]) if isinstance(sizes[k], list) else [sizes[k]])
        for n, k in program.outputs.items()
    }


def _trace(program, values, length):
    whole = Program(program.name, program.inputs, program.instructions,
                    {f"t{i.id}": i.id for i in program.instructions})
    inputs = [
        [mp.mpf(float(v)) for v in values[n]] if s == "token" else mp.mpf(float(values[n]))
        for n, s in whole.inputs
    ]
    return dict(enumerate(compile_mpmath(whole)(*inputs, length)))


def _absolute(value):
    return [abs(v) for v in value] if isinstance(value, list) else abs(value)


def _zip(f, args, length):
    if not any(isinstance(a, list) for a in args):
        return f(*args)
    wide = [a if isinstance(a, list) else [a] * length for a in args]
    return [f(*row) for row in zip(*wide, strict=True)]


CASES = [(30.0, V, L) for V in (1e-8, 1e-4, 1e-2, 1.0, 1e2, 1e4, 1e8) for L in (1, 2, 3, 8)]
CASES += [(700.0, V, L) for V in (1e-8, 1.0, 1e8) for L in (1, 3, 8)]


@pytest.fixture(params=["numpy", "c"])
def compiler(request):
    if request.param == "c" and not find_compilers():
        pytest.skip("no C compiler")
    return {"numpy": compile_numpy, "c": compile_c_function}[request.param]


@pytest.mark.parametrize("task", ["spiked", "max"])
@pytest.mark.parametrize(
    "piece", ["proximal", "readout", "averages", "observables", "curvature", "loss"]
)
def test_doubles_agree_with_forty_digits(activation, piece, task, compiler):
    program = getattr(programs_of(activation, task), piece)
    function = compiler(program)
    rng = np.random.default_rng(1)
    worst = 0.0
    with mp.workdps(DIGITS):
        for field, V, length in CASES:
            values = random_inputs(program, length, field, V, rng)
            mine = evaluate_doubles(function, program, values, length)
            exact = evaluate_mpmath(program, values, length)
            strict = magnitude(program, values, length, conditioned=False)
            loose = magnitude(program, values, length, conditioned=True)
            steering = piece == "curvature"
            bound = {n: loose[n] if steering or n == "direction" else strict[n] for n in strict}
            for name, numbers in exact.items():
                for got, want, size in zip(mine[name], numbers, bound[name], strict=True):
                    gap = abs(mp.mpf(float(got)) - want)
                    allowed = mp.mpf("1e-12") * size + mp.mpf("1e-290")
                    assert gap <= allowed, (name, field, V, length, got, want, size)
                    worst = max(worst, float(gap / allowed))
    assert worst > 0  # the comparison saw rounding, so it compared something
