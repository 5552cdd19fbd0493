"""The same pipeline on one-token problems: classical equations and numbers."""

import numpy as np
import pytest
import sympy as sp

from derivations.classical import logistic, ridge
from replica.api import derive_model, solve_model
from replica.derivation.reduction import RESIDUAL, STIFFNESS
from replica.symbolic.tokens import LENGTH

V = sp.Symbol("V_w", positive=True)


def within(solution, name, value, digits):
    error = solution.standard_errors["order_parameters"][name]
    tolerance = 4 * np.hypot(error, 0.5 * 10.0**-digits)
    assert abs(solution.order_parameters[name] - value) < tolerance


@pytest.mark.parametrize("estimator", ["stein", "reparametrised"])
def test_ridge_regression(estimator):
    s = solve_model(ridge(), 2.0, {"Delta": 0.0, "r_w": 0.1}, estimator=estimator)
    assert s.converged
    within(s, "V_w", 0.844289, 6)
    within(s, "m_w", 0.915571, 6)
    within(s, "q_w", 0.843414, 6)
    assert abs(s.test_error - 0.012272) < 4 * np.hypot(s.standard_errors["test_error"], 5e-7)
    assert s.free_energy == pytest.approx(s.train_loss, abs=1e-6)


def test_ridge_proximal_map_is_the_classical_one():
    found = derive_model(ridge()).derivation["readout eliminated"].conclusion
    one_token = {LENGTH: sp.Integer(1)}
    assert found["f_w"] == RESIDUAL / STIFFNESS
    assert found["stiffness"].xreplace(one_token) == 1 + V


def test_ridge_response_solves_its_scalar_equation():
    """``V = 1/(lambda + alpha/(1 + V))``, up to the sampling error of the response."""
    s = solve_model(ridge(), 2.0, {"Delta": 0.3, "r_w": 0.1}, nodes=2**17)
    v, error = s.order_parameters["V_w"], s.standard_errors["order_parameters"]["V_w"]
    assert abs(v - 1 / (0.1 + 2.0 / (1 + v))) < 8 * error


def test_logistic_regression():
    s = solve_model(logistic(), 2.0, {"r_w": 0.1})
    assert s.converged
    within(s, "V_w", 3.976546, 6)
    within(s, "m_w", 1.720313, 6)
    within(s, "q_w", 4.145804, 6)
    assert abs(s.test_error - 0.179662) < 4 * np.hypot(s.standard_errors["test_error"], 5e-7)
    assert s.free_energy == pytest.approx(s.train_loss, abs=1e-6)


def test_the_logistic_readout_is_not_eliminated():
    assert not derive_model(logistic()).eliminated
