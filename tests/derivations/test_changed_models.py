"""Change the model and the derived equations change, with no other edit."""

import numpy as np
import pytest
import sympy as sp

from derivations.classical import ridge
from derivations.slr import single_location
from replica.api import derive_model, solve_model
from replica.derivation.reduction import RESIDUAL, STIFFNESS
from replica.errors import DerivationError
from replica.model import LABEL, NOISE, NOISE_STD, SIGMA, Activation, Sector
from replica.symbolic.averages import Expectation
from replica.symbolic.tokens import LENGTH, RELEVANT, TokenSum, index

l = index("l")  # noqa: E741
rho, g, V = sp.Symbol("rho", positive=True), sp.Symbol("gain", real=True), None
v = Sector("v", "z")


def checked(equations):
    for step in equations.derivation:
        result = step.run_check()
        assert result.passed, f"{step.name}: {result.detail}"
    return equations


def test_teacher_variance():
    equations = checked(derive_model(single_location(rho_k=rho, rho_v=rho)))
    k = equations.model.sectors[0]
    assert equations.overlaps["q_k"].has(rho)
    assert sp.simplify(equations.overlaps["m_k"] - rho * k.m_hat / (k.ridge + k.V_hat)) == 0
    omega = equations.cavity["omega_k"]
    assert sp.simplify(sp.diff(omega, k.noise(l)) ** 2 - (k.q - k.m**2 / rho)) == 0


def test_teacher_variance_in_numbers():
    """Ridge with ``w* ~ N(0, rho)``: scaling the teacher scales overlaps and errors."""
    one = solve_model(ridge(), 1.5, {"Delta": 0.2, "r_w": 0.3})
    four = solve_model(ridge(rho=sp.Integer(4)), 1.5, {"Delta": 0.4, "r_w": 0.3})
    assert four.order_parameters["m_w"] == pytest.approx(4 * one.order_parameters["m_w"], rel=1e-9)
    assert four.order_parameters["q_w"] == pytest.approx(4 * one.order_parameters["q_w"], rel=1e-9)
    assert four.order_parameters["V_w"] == pytest.approx(one.order_parameters["V_w"], rel=1e-9)
    assert four.test_error == pytest.approx(4 * one.test_error, rel=1e-9)


def test_scaled_loss():
    """Loss ``c (y - s.z)^2``: the stiffness becomes ``1 + 2 c V |sigma|^2``."""
    prediction = TokenSum(SIGMA(l) * v.field(l), l)
    loss = 3 * (LABEL - prediction) ** 2
    equations = checked(derive_model(single_location(loss=loss)))
    found = equations.derivation["readout eliminated"].conclusion
    (square,) = found["stiffness"].atoms(TokenSum)
    assert sp.expand(found["stiffness"] - 1 - 6 * v.V * square) == 0
    assert sp.simplify(found["f_v"] * STIFFNESS / RESIDUAL / SIGMA(index("j"))) == sp.sqrt(6)


def test_scaled_loss_in_numbers():
    """Multiplying loss and ridge by one factor changes nothing but the response."""
    plain = solve_model(ridge(), 2.0, {"Delta": 0.1, "r_w": 0.2})
    w = Sector("w", "h")
    loss = 5 * (LABEL - TokenSum(w.field(l), l)) ** 2 / 2
    scaled = solve_model(ridge(loss=loss), 2.0, {"Delta": 0.1, "r_w": 1.0})
    for name, factor in (("m_w", 1.0), ("q_w", 1.0), ("V_w", 0.2)):
        assert scaled.order_parameters[name] == pytest.approx(
            factor * plain.order_parameters[name], rel=1e-7
        )


def test_label_noise():
    """A gain in the channel reaches the test error and the conditioned estimator."""
    channel = g * v.teacher(RELEVANT) + NOISE_STD * NOISE
    equations = checked(derive_model(single_location(channel=channel)))
    error = equations.test_error
    held = {e: sp.Symbol(f"e{i}") for i, e in enumerate(error.atoms(Expectation))}
    constant = error.xreplace(held).xreplace({s: sp.S.Zero for s in held.values()})
    assert sp.expand(constant - g**2 - NOISE_STD**2) == 0
    assert equations.stein["mhat_v"].has(g)
    default = derive_model(single_location())
    assert not default.stein["mhat_v"].has(g)


def test_noise_that_is_not_additive_falls_back_to_plain_averages():
    """A label that is no linear function of the fields has no conditioned estimator."""
    channel = sp.tanh(v.teacher(RELEVANT)) + NOISE_STD * NOISE
    equations = checked(derive_model(single_location(channel=channel)))
    assert "mhat_v" not in equations.stein
    assert isinstance(equations.test_error, Expectation)
    assert equations.noise_floor == NOISE_STD**2


def test_a_loss_without_the_parity_is_refused():
    loss = (LABEL - TokenSum(SIGMA(l) * v.field(l), l)) ** 2 / 2 + TokenSum(v.field(l), l)
    with pytest.raises(DerivationError, match="flip"):
        derive_model(single_location(loss=loss))


def test_a_loss_that_is_not_quadratic_is_solved_numerically():
    """A pseudo-Huber loss keeps both fields; for large width it is the squared loss."""
    width = sp.Integer(50)
    residual = LABEL - TokenSum(SIGMA(l) * v.field(l), l)
    loss = width**2 * (sp.sqrt(1 + residual**2 / width**2) - 1)
    values = {"nu": 2.0, "Delta": 0.1, "r_k": 0.5, "r_v": 0.5}
    model = single_location(loss=loss)
    equations = derive_model(model)
    assert not equations.eliminated
    huber = solve_model(model, 2.0, values, length=3, nodes=1024)
    square = solve_model(single_location(), 2.0, values, length=3, nodes=1024)
    assert huber.converged
    for name, value in square.order_parameters.items():
        assert huber.order_parameters[name] == pytest.approx(value, rel=2e-3)


def test_number_of_tokens():
    """The same equations at one token with linear attention of no score: ridge on two weights."""
    x = sp.Symbol("x", real=True)
    constant = Activation(name="constant", x=x, expression=sp.Integer(1) + 0 * x)
    values = {"nu": 0.0, "Delta": 0.1, "r_k": 0.5, "r_v": 0.2}
    one = solve_model(single_location("max", constant), 2.0, values, length=1)
    reference = solve_model(ridge(), 2.0, {"Delta": 0.1, "r_w": 0.2}, nodes=2**17)
    for name in ("m", "q", "V"):
        gap = one.order_parameters[f"{name}_v"] - reference.order_parameters[f"{name}_w"]
        error = np.hypot(one.standard_errors["order_parameters"][f"{name}_v"],
                         reference.standard_errors["order_parameters"][f"{name}_w"])
        assert abs(gap) < 4 * error
    assert one.order_parameters["m_k"] == 0
    assert one.order_parameters["V_k"] == pytest.approx(1 / 0.5)
    assert derive_model(ridge()).test_error.has(LENGTH)
