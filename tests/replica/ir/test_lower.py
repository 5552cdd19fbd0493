import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from replica.codegen.names import mangle
from replica.codegen.numpy_printer import compile_numpy, print_numpy
from replica.errors import UnsupportedNodeError
from replica.ir.lower import lower
from replica.symbolic.tokens import RELEVANT, TokenSum, index

x, y = sp.symbols("x y", real=True)
l = index("l")  # noqa: E741
X = sp.Function("X", real=True)
NODES = {"x": "node", "y": "node", "X": "token"}


def value(expr, **arrays):
    program = lower("f", {"out": expr}, NODES, {l: "token"})
    inputs = [np.asarray(arrays[n], dtype=float) for n, _ in program.inputs]
    length = next((a.shape[0] for a in arrays.values() if np.ndim(a) == 2), 1)
    return compile_numpy(program)(*inputs, length)[0]


@pytest.mark.parametrize(
    "expr",
    [sp.gamma(x), sp.diff(sp.Max(x, 0), x, 2), sp.Heaviside(x, 1),
     sp.Piecewise((0, x < 0), (x, True)), sp.DiracDelta(x),
     sp.Sum(x**l, (l, 0, 3)), x**y, x ** sp.Rational(1, 3), sp.oo * sp.Symbol("z", positive=True),
     sp.Derivative(sp.Function("g")(x), x)],
)
def test_unknown_nodes_are_errors_before_any_code(expr):
    with pytest.raises(UnsupportedNodeError):
        lower("f", {"out": expr}, NODES)


def test_unknown_symbols_are_errors():
    with pytest.raises(UnsupportedNodeError):
        lower("f", {"out": sp.Symbol("unheard")}, NODES)


def test_powers_are_products_and_roots():
    source = print_numpy(lower("f", {"out": x**5 + sp.sqrt(x) + 1 / x**2}, NODES))
    assert "**" not in source
    assert "pow" not in source


def test_rational_division_is_not_an_integer_division():
    assert value(3 / x, x=[2.0])[0] == 1.5


def test_one_minus_erf_keeps_its_digits():
    tail = value(1 + sp.erf(x), x=[-10.0])[0]
    assert tail == pytest.approx(2.088487583762545e-45, rel=1e-12)


def test_equal_subexpressions_are_computed_once():
    program = lower("f", {"a": sp.exp(x) * y, "b": sp.exp(x) + y}, NODES)
    assert sum(i.op == "call" for i in program.instructions) == 1


def test_the_hash_does_not_depend_on_names_of_bound_indices():
    m = index("m")
    first = lower("f", {"out": TokenSum(X(l) ** 2, l)}, NODES)
    second = lower("f", {"out": TokenSum(X(m) ** 2, m)}, NODES)
    assert first.fingerprint() == second.fingerprint()
    assert first.fingerprint() != lower("f", {"out": TokenSum(X(l), l)}, NODES).fingerprint()


def test_token_sums_and_the_relevant_token():
    tokens = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    result = value(TokenSum(X(l) ** 2, l) + X(RELEVANT), X=tokens)
    assert np.allclose(result, (tokens**2).sum(axis=0) + tokens[0])


def test_a_sum_of_a_constant_counts_tokens():
    tokens = np.ones((4, 1))
    assert value(TokenSum(x, l) + X(RELEVANT), x=[2.0], X=tokens)[0] == 9.0


@given(st.lists(st.text(min_size=1, max_size=6), min_size=2, max_size=2, unique=True))
def test_mangling_is_one_to_one(names):
    first, second = (mangle(n) for n in names)
    assert first != second
    assert first.isidentifier()
