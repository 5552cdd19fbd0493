import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.symbolic.primitives import log_softplus
from replica.symbolic.tokens import (
    LENGTH,
    Centred,
    TokenSum,
    TokenWeights,
    expand_sums,
    index,
    token_derivative,
    write_out,
)

i, j, l, m = (index(n) for n in "ijlm")  # noqa: E741
X, Y = sp.Function("X", real=True), sp.Function("Y", real=True)
x = sp.Symbol("x", real=True)


def test_derivative_by_a_free_index_is_one_term():
    assert token_derivative(TokenSum(X(l) ** 2, l), X, j) == 2 * X(j)


def test_derivative_of_a_field_at_a_free_index_is_a_delta():
    assert token_derivative(X(i) ** 2, X, j) == 2 * X(i) * sp.KroneckerDelta(i, j)


def test_summing_over_derivatives_by_a_parameter_passes_inside():
    assert sp.diff(TokenSum(sp.sin(x * X(l)), l), x) == TokenSum(X(l) * sp.cos(x * X(l)), l)


def test_substitution_does_not_capture_the_bound_index():
    total = TokenSum(x * X(l), l)
    k = sp.Symbol(total.bound.name, integer=True)
    replaced = total.subs(x, k)
    assert write_out(replaced.xreplace({k: sp.Integer(5)}), 2) == 5 * X(1) + 5 * X(2)


def test_replacement_does_not_capture_the_bound_index():
    total = TokenSum(x * X(l), l)
    k = sp.Symbol(total.bound.name, integer=True)
    assert write_out(total.xreplace({x: k}).xreplace({k: sp.Integer(5)}), 1) == 5 * X(1)


def test_renamed_sums_are_equal():
    assert TokenSum(X(l) * Y(l), l) == TokenSum(X(m) * Y(m), m)
    assert hash(TokenSum(X(l), l)) == hash(TokenSum(X(m), m))


def test_nested_sums_keep_their_own_index():
    nested = TokenSum(X(l) * TokenSum(Y(m), m), l)
    assert sp.expand(write_out(nested, 2) - (X(1) + X(2)) * (Y(1) + Y(2))) == 0


def test_constants_leave_sums():
    assert expand_sums(TokenSum(x * X(l) + x, l)) == x * TokenSum(X(l), l) + x * LENGTH


def test_weights_sum_to_one():
    w = TokenWeights(X(i), i, l)
    assert sp.simplify(write_out(TokenSum(w, l), 3)) == 1


def test_a_constant_has_no_centred_value():
    assert Centred.of(sp.Integer(3), l, TokenWeights(X(i), i, j)) == 0


@pytest.mark.parametrize("log_weight", [X(i), log_softplus(X(i)), X(i) ** 2 / 3])
def test_derivative_of_a_weighted_sum_is_the_written_out_one(log_weight):
    w = TokenWeights(log_weight, i, l)
    expr = sp.sqrt(1 + TokenSum(w * Y(l), l) ** 2) * TokenSum(w**2, l)
    check_against_written_out(expr)


def check_against_written_out(expr, length=3):
    slope = token_derivative(expr, X, j)
    numbers = {X(p): sp.Rational(2 * p - 3, 5) for p in range(1, length + 1)}
    numbers |= {Y(p): sp.Rational(7 - 3 * p, 4) for p in range(1, length + 1)}
    explicit = write_out(expr, length)
    for p in range(1, length + 1):
        mine = write_out(slope.xreplace({j: sp.Integer(p)}), length).xreplace(numbers)
        here = sp.Symbol("here", real=True)
        direct = sp.diff(explicit.xreplace({X(p): here}), here)
        direct = direct.xreplace({here: numbers[X(p)]}).xreplace(numbers)
        assert abs(sp.N(mine - direct, 30)) < sp.Float("1e-25", 30)


powers = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(-3, 3))


@settings(max_examples=25, deadline=None)
@given(st.lists(powers, min_size=1, max_size=3), st.lists(powers, min_size=1, max_size=2))
def test_derivative_of_products_of_sums(first, second):
    def total(terms):
        return TokenSum(sum(c * X(l) ** a * Y(l) ** b for a, b, c in terms), l)

    check_against_written_out(total(first) * total(second) + total(first) ** 2, length=2)


def test_second_derivative_has_a_diagonal_and_a_dense_part():
    w = TokenWeights(X(i), i, l)
    slope = token_derivative(TokenSum(w * Y(l), l), X, j)
    second = token_derivative(slope, X, m)
    explicit = write_out(TokenSum(w * Y(l), l), 2)
    a, b = sp.symbols("a b", real=True)
    numbers = {Y(1): sp.Rational(1, 3), Y(2): sp.Rational(-5, 4)}
    flat = explicit.xreplace({X(1): a, X(2): b}).xreplace(numbers)
    values = {a: sp.Rational(1, 2), b: sp.Rational(-2, 3)}
    for p, u in ((1, a), (2, b)):
        for q, v in ((1, a), (2, b)):
            mine = write_out(second.xreplace({j: sp.Integer(p), m: sp.Integer(q)}), 2)
            mine = mine.xreplace({X(1): values[a], X(2): values[b], **numbers})
            direct = sp.diff(flat, u, v).xreplace(values)
            assert abs(sp.N(mine - direct, 30)) < sp.Float("1e-25", 30)
