"""Ridge strengths of least test error: slopes, optima, and a closed form."""

import math

import numpy as np
import pytest

from derivations.classical import ridge
from derivations.setting import make_setting
from replica.api import derive_model, solve
from replica.errors import UsageError
from replica.saddle_point.ridge import (
    HIGHEST,
    LOWEST,
    RidgeSearch,
    at_ridge,
    risk_slopes,
)
from replica.saddle_point.solve import SaddlePointProblem, SolverOptions

FREE = ("r_k", "r_v")


def attention(activation="softmax", task="spiked", nu=2, nodes=2**12, tolerance=1e-10, reg=0.5):
    s = make_setting(activation=activation, task=task, nu=nu, length=3, reg=reg)
    options = SolverOptions(nodes=nodes, tolerance=tolerance)
    return SaddlePointProblem(derive_model(s.model()), s.values(), s.lengths, options)


@pytest.mark.parametrize(("activation", "task", "nu", "alpha"), [
    ("softmax", "spiked", 2, 2.0), ("softplus", "max", "inf", 4.0), ("linear", "spiked", 1, 2.0),
])
def test_slopes_are_differences_of_the_test_error(activation, task, nu, alpha):
    problem = attention(activation, task, nu)
    here = problem.solve(alpha)
    slopes = risk_slopes(problem, here, alpha)
    for name in FREE:
        ends = []
        for h in (1e-3, -1e-3):
            near = at_ridge(problem, {name: problem.values[name] * (1 + h)})
            ends.append(near.solve(alpha, problem.point(here)).test_error)
        difference = (ends[0] - ends[1]) / (2e-3 * problem.values[name])
        assert slopes[name] == pytest.approx(difference, rel=2e-2, abs=1e-4)


@pytest.mark.parametrize("alpha", [0.7, 3.0])
def test_ridge_regression_is_best_at_the_noise_variance(alpha):
    """For a teacher of variance one ``lambda = Delta^2`` is the posterior mean, and its test error
    is ``Delta^2 (1 + V)`` with ``V = 1/(lambda + alpha/(1 + V))``."""
    noise = 0.6
    r = noise**2
    options = SolverOptions(nodes=2**14)
    problem = SaddlePointProblem(derive_model(ridge()), {"Delta": noise, "r_w": 2.0}, {1: 1.0},
                                 options)
    best = RidgeSearch(problem, ("r_w",)).solve(alpha)
    V = np.roots([r, r + alpha - 1, -1]).max()  # of r V^2 + (r + alpha - 1) V - 1 = 0
    assert best.solution.ridge["r_w"] == pytest.approx(r, rel=0.03)
    error = best.solution.standard_errors["test_error"]
    assert abs(best.solution.test_error - r * (1 + V)) < 5 * error + 1e-5 * r


@pytest.mark.parametrize(("activation", "task", "nu", "alpha"), [
    ("softmax", "spiked", 1, 2.0), ("softmax", "max", "inf", 2.0), ("erf", "max", "inf", 4.0),
])
def test_no_neighbour_is_better(activation, task, nu, alpha):
    """On other nodes than those of the search; the margin is the noise between node sets."""
    problem = attention(activation, task, nu, nodes=2**13, tolerance=1e-8)
    best = RidgeSearch(problem, FREE).solve(alpha).solution
    assert best.converged
    for name in FREE:
        for factor in (0.6, 1.7):
            there = at_ridge(problem, {**best.ridge, name: best.ridge[name] * factor})
            found = there.solve(alpha, problem.point(best))
            if found.converged:
                assert found.test_error > best.test_error * (1 - 2e-3)


def test_minima_that_jump_do_not_stop_the_search():
    """Slopes alone ended at 0.6379: the error falls further where minima jump."""
    problem = attention("softmax", "max", "inf", nodes=2**14, tolerance=1e-8)
    best = RidgeSearch(problem, FREE).solve(2.0).solution
    assert best.test_error < 0.636
    assert best.ridge["r_k"] < 0.1


def test_the_end_of_the_range_is_named():
    """Without noise ridge regression is best with no ridge."""
    problem = SaddlePointProblem(derive_model(ridge()), {"Delta": 0.0, "r_w": 2.0}, {1: 1.0},
                                 SolverOptions(nodes=2**12))
    found = RidgeSearch(problem, ("r_w",)).solve(0.5)
    assert found.at_edge == ("r_w",)
    assert found.solution.ridge["r_w"] == pytest.approx(LOWEST, rel=0.02)
    assert any("end of the range" in m for m in found.solution.messages)


def test_only_ridge_strengths_are_searched():
    with pytest.raises(UsageError, match="nu"):
        RidgeSearch(attention(), ("nu",))


def test_optimal_in_python_and_refused_elsewhere():
    words = {"activation": "softmax", "nu": 2, "length": 3, "nodes": 2**12}
    free = solve(alpha=2, reg="optimal", **words)
    one = solve(alpha=2, reg_k="optimal", reg_v=0.5, **words)
    fixed = solve(alpha=2, reg=0.5, **words)
    assert one.ridge["r_v"] == 0.5
    assert free.test_error <= one.test_error + 1e-4
    assert one.test_error < fixed.test_error
    assert LOWEST < free.ridge["r_k"] < HIGHEST
    with pytest.raises(UsageError, match="reg"):
        make_setting(activation="softmax", nu=2, length=3, reg="optimal")
    many = solve(alpha=[2], reg="optimal", **words)
    assert isinstance(many, tuple)
    assert math.isclose(many[0].test_error, free.test_error, rel_tol=1e-6)
