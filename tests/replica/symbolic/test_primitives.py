from types import SimpleNamespace

import mpmath as mp
import numpy as np
import pytest
import scipy.special
import sympy as sp

from replica.codegen.numpy_runtime import namespace
from replica.symbolic import primitives

x = sp.Symbol("x", real=True)
numpy_functions = SimpleNamespace(**namespace(np, scipy.special))
FUNCTIONS = [primitives.sigmoid, primitives.softplus, primitives.log_softplus,
             primitives.softplus_score]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("at", [-3, sp.Rational(1, 3), 5])
def test_derivative_is_that_of_the_plain_form(function, at):
    direct = sp.diff(function(x).rewrite(sp.exp), x)
    assert abs(sp.N((sp.diff(function(x), x) - direct).subs(x, at), 30)) < 1e-25


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [("softplus", 800.0, 800.0), ("softplus", -40.0, 4.248354255291589e-18),
     ("sigmoid", 800.0, 1.0), ("log_softplus", -800.0, -800.0), ("softplus_score", -800.0, 1.0)],
)
def test_stable_values_far_out(name, at, value):
    assert float(getattr(numpy_functions, name)(at)) == pytest.approx(value, rel=1e-15)


def test_softmax_of_large_scores():
    weights = numpy_functions.softmax(np.array([[800.0], [799.0]]))
    assert weights[0, 0] == pytest.approx(0.7310585786300049, rel=1e-15)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("at", [-700.0, -37.5, -36.9, -1.0, 0.0, 1.0, 36.0, 700.0])
def test_numpy_form_agrees_with_forty_digits(function, at):
    with mp.workdps(40):
        exact = sp.N(function(x).rewrite(sp.exp).subs(x, sp.Float(at, 340)), 40)
        mine = float(getattr(numpy_functions, function.__name__)(at))
        assert abs(mp.mpf(mine) - mp.mpmathify(exact)) <= 1e-14 * abs(mp.mpmathify(exact)) + 1e-300
