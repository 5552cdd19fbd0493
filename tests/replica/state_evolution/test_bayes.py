"""State evolution of the Bayes-optimal learner against published and measured numbers."""

import math

import numpy as np
import pytest

from replica.api import bayes, bayes_problem, bayes_thresholds
from replica.derivation.chain import derive_bayes
from replica.errors import UsageError
from replica.state_evolution.branch import Branch
from replica.state_evolution.evolution import STARTS, StateEvolution
from replica.state_evolution.phases import phase_at

HARD = {"nu": 1, "length": 6, "noise": 0.01}


@pytest.mark.parametrize(
    ("setting", "alpha", "expected", "tolerance"),
    [
        ({"nu": 1, "length": 3}, 1, (0.3352, 0.4500, 0.8284), 2e-3),
        ({"nu": 1, "length": 3}, 3, (0.7288, 0.9935, 0.5378), 2e-3),
        ({"task": "max", "nu": "inf", "length": 3, "noise": 0.3}, 1, (0.122, 0.370, 0.950), 3e-3),
        ({"task": "max", "nu": "inf", "length": 3, "noise": 0.3}, 3, (0.779, 0.941, 0.440), 3e-3),
    ],
)
def test_single_fixed_points(setting, alpha, expected, tolerance):
    phase = bayes(alpha=alpha, **setting)
    (point,) = phase.fixed_points
    assert point.start == "both"
    assert not phase.hard
    found = (point.q_k, point.q_v, point.test_error)
    assert found == pytest.approx(expected, abs=tolerance)
    for name, value in zip(("q_k", "q_v", "test_error"), expected, strict=True):
        assert abs(getattr(point, name) - value) < 4 * point.standard_errors[name] + 1e-3


@pytest.fixture(scope="module")
def hard():
    return bayes_problem(**HARD)


@pytest.mark.parametrize(
    ("alpha", "low", "high"),
    [(1.6, (0.3135, 0.4098), (0.606, 0.9998)), (2.2, (0.475, 0.728), (0.681, 0.9999))],
)
def test_coexistence(hard, alpha, low, high):
    phase = phase_at(hard.evolution, alpha)
    first, middle, last = phase.fixed_points
    assert (first.start, middle.start, last.start) == ("uninformed", "between", "informed")
    assert first.stable
    assert last.stable
    assert not middle.stable
    assert middle.residual < 1e-8
    for point, expected in ((first, low), (last, high)):
        for name, value in zip(("q_k", "q_v"), expected, strict=True):
            # the expected numbers have sampling errors of their own
            assert abs(getattr(point, name) - value) < 4 * point.standard_errors[name] + 2e-3
    assert phase.hard


def test_hard_exactly_between_the_transitions(hard):
    found = Branch(hard.evolution).thresholds()
    informed = found.spinodal_informed
    crossing = found.information_theoretic
    uninformed = found.spinodal_uninformed
    assert 1.2 < informed.alpha < 1.3
    assert 1.49 < crossing.alpha < 1.53
    assert 2.20 < uninformed.alpha < 2.25
    for t in (informed, crossing, uninformed):
        assert 0 < t.standard_error < 0.02

    def seen(t, factor):
        phase = phase_at(hard.evolution, t.alpha * factor)
        return len(phase.fixed_points), phase.hard

    assert seen(informed, 0.99) == (1, False)
    assert seen(informed, 1.01) == (3, False)
    assert seen(crossing, 0.99) == (3, False)
    assert seen(crossing, 1.01) == (3, True)
    assert seen(uninformed, 0.995) == (3, True)
    assert seen(uninformed, 1.005) == (1, False)


def test_no_transitions_where_there_is_one_fixed_point():
    found = bayes_thresholds(nu=1, length=3, nodes=2**11)
    assert found.spinodal_informed is found.information_theoretic is None


def test_the_curve_holds_the_fixed_points(hard):
    q, _, _ = hard.evolution.settle(1.6, STARTS["uninformed"] * hard.evolution.rho)
    place = Branch(hard.evolution).place(float(np.log(q[1] / (1 - q[1]))))
    assert place.alpha == pytest.approx(1.6, rel=1e-6)
    assert place.q == pytest.approx(q, rel=1e-6)


def test_free_entropy_is_stationary_and_its_slope_is_the_average(hard):
    """``Phi`` belongs to the map: its total slope in alpha is its partial one."""
    e = hard.evolution

    def at(alpha):
        q, _, _ = e.settle(alpha, STARTS["uninformed"] * e.rho)
        return q, float(e.outcome(q, alpha)["free_entropy"][0])

    q, _ = at(1.6)
    total = (at(1.61)[1] - at(1.59)[1]) / 0.02
    assert Branch(e)._average(q, 1.6) == pytest.approx(total, abs=5e-3)


def test_errors_cover_the_spread_over_seeds():
    found = [
        bayes(nu=1, length=3, alpha=1, nodes=2**11, seed=s).fixed_points[0] for s in range(12)
    ]
    for name in ("q_k", "q_v", "test_error", "free_entropy"):
        spread = np.std([getattr(p, name) for p in found], ddof=1)
        claimed = math.sqrt(np.mean([p.standard_errors[name] ** 2 for p in found]))
        assert 0.4 < spread / claimed < 2.0, name


def test_general_smoothing_agrees_with_the_rule_of_the_task():
    problem = bayes_problem(task="max", nu=1.5, length=3, noise=0.3, nodes=2**9)
    e = problem.evolution
    model = e.model

    class Plain:
        """The law without a rule of its own."""

        def __init__(self, law):
            self.law = law

        def __getattr__(self, name):
            if name == "smoothed_weight":
                raise AttributeError(name)
            return getattr(self.law, name)

    from dataclasses import replace

    plain = replace(model, law=Plain(model.law))
    other = StateEvolution(derive_bayes(plain), e.values, e.lengths, 2**9)
    q = np.array([0.3, 0.6])
    mine, theirs = e.image(q, 2.0)[:, 0], other.image(q, 2.0)[:, 0]
    assert mine == pytest.approx(theirs, rel=3e-3)


@pytest.mark.parametrize("nu", [0.7, 3.0, 40.0, math.inf])
def test_smoothed_weights_of_max_data(nu):
    """They sum to L, and the score is the derivative of the logarithm."""
    from derivations.slr import single_location

    law = single_location("max", strongest=math.isinf(nu)).law
    omega = np.random.default_rng(3).normal(size=(4, 6))
    h = 1e-5
    for width in (0.2, 0.95):
        log_g, score = law.smoothed_weight(omega, width, {"nu": nu})
        assert np.exp(log_g).sum(axis=0) == pytest.approx(4.0, abs=2e-6)
        for m in range(4):
            shift = h * np.eye(4)[m][:, None]
            ends = [law.smoothed_weight(omega + s * shift, width, {"nu": nu})[0] for s in (1, -1)]
            slope = (ends[0] - ends[1]) / (2 * h)
            seen = np.exp(log_g) > 1e-6
            assert score[:, m][seen] == pytest.approx(slope[seen], abs=2e-3 * max(1, nu), rel=2e-3)


@pytest.mark.parametrize(
    ("words", "field"),
    [({"noise": 0}, "noise"), ({"alpha": -1}, "alpha"), ({"nodes": 3}, "nodes"),
     ({"nu": "inf"}, "nu"), ({"length": 0}, "length")],
)
def test_bad_input_is_named(words, field):
    with pytest.raises(UsageError) as error:
        bayes(**{"nu": 1, "length": 3, "alpha": 1, **words})
    assert error.value.field == field
