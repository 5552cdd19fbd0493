import pytest
import sympy as sp

from replica.errors import DerivationError
from replica.symbolic.averages import Expectation, Minimum, Proximal
from replica.symbolic.tokens import TokenSum, index

l = index("l")  # noqa: E741
h, omega = sp.Function("h", real=True), sp.Function("omega", real=True)
V, c, y = sp.Symbol("V", positive=True), sp.Symbol("c", real=True), sp.Symbol("y", real=True)
random = (sp.Symbol("y"), sp.Symbol("omega"))


def test_average_of_a_constant_is_the_constant():
    assert Expectation(3 * c, random) == 3 * c


def test_constants_leave_the_average():
    assert Expectation(c * y, random) == c * Expectation(y, random)


def test_random_symbols_are_bound():
    average = Expectation(c * y**2, random)
    assert average.subs(y, 5) == average
    assert average.subs(c, 2) == 2 * Expectation(y**2, random)
    assert y not in average.free_symbols


def test_derivative_of_a_minimum_is_the_explicit_one_at_the_minimiser():
    objective = TokenSum((h(l) - omega(l)) ** 2, l) / (2 * V) + c * TokenSum(h(l), l)
    minimum = Minimum(objective, [sp.Symbol("h")])
    slope = sp.diff(minimum, c)
    total = slope  # one sum at the top; the minimiser inside holds the objective's own sums
    assert isinstance(total, TokenSum)
    assert total.body == Proximal(sp.Symbol("h"), total.bound, minimum)


def test_differentiating_a_minimiser_as_a_symbol_is_refused():
    minimum = Minimum(TokenSum((h(l) - omega(l)) ** 2, l) / V, [sp.Symbol("h")])
    with pytest.raises(DerivationError, match="implicit function"):
        sp.diff(Proximal(sp.Symbol("h"), sp.Integer(1), minimum), V)
