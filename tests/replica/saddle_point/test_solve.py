"""Saddle points of single-location regression.

Reference rows: Sobol averages at 2^17 nodes or more, last digits' errors in brackets in the
specification; each value is given here with its standard error.
"""

import math

import numpy as np
import pytest

import replica
from replica.api import derive_model
from replica.errors import UsageError
from replica.saddle_point.solve import SaddlePointProblem, SolverOptions
from tests.conftest import ACTIVATIONS

INF = math.inf
ROWS = [
    (("spiked", "softmax", 2, 2, 0.5),
     {"m_k": (0.3329, 2), "q_k": (0.3172, 1), "m_v": (0.6676, 2), "q_v": (0.6904, 1),
      "test_error": (0.7123, 2), "train_loss": (0.47929, 0.2)}),
    (("spiked", "linear", 2, 2, 0.5),
     {"m_k": (0.1729, 1), "q_k": (0.2851, 1), "m_v": (0.3201, 1), "q_v": (0.2609, 1),
      "test_error": (1.3622, 7), "train_loss": (0.20480, 0.6)}),
    (("spiked", "softplus", 2, 2, 0.5),
     {"m_k": (0.2663, 1), "q_k": (0.2495, 1), "m_v": (0.6337, 1), "q_v": (0.6901, 1),
      "test_error": (0.7657, 1), "train_loss": (0.53889, 0.2)}),
    (("spiked", "erf", 2, 6, 1.0),
     {"m_k": (0.5286, 1), "q_k": (0.4782, 4), "m_v": (0.6034, 1), "q_v": (0.4144, 1),
      "test_error": (0.6373, 2), "train_loss": (1.2810, 3)}),
    (("max", "softmax", INF, 4, 0.3),
     {"m_k": (0.8868, 2), "q_k": (1.0719, 1), "m_v": (1.0479, 1), "q_v": (1.2109, 1),
      "test_error": (0.4383, 1), "train_loss": (0.63431, 0.4)}),
    (("max", "softplus", INF, 4, 0.3),
     {"m_k": (0.8381, 1), "q_k": (1.0676, 2), "m_v": (1.0464, 1), "q_v": (1.2777, 1),
      "test_error": (0.5319, 1), "train_loss": (0.77487, 0.4)}),
    (("max", "linear", INF, 4, 0.3),
     {"m_k": (0.4923, 4), "q_k": (0.678, 10), "m_v": (0.3946, 1), "q_v": (0.2296, 3),
      "test_error": (1.048, 20), "train_loss": (0.4921, 4)}),
]


def solve(task, activation, nu, alpha, r, **options):
    return replica.solve(
        task=task, activation=activation, nu=nu, length=options.pop("length", 3), alpha=alpha,
        reg=r, noise=0.1, **options,
    )


def value_and_error(solution, name):
    if name in solution.order_parameters:
        return (solution.order_parameters[name],
                solution.standard_errors["order_parameters"][name])
    return getattr(solution, name), solution.standard_errors[name]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "expected"), ROWS)
def test_reference_rows(case, expected):
    s = solve(*case, nodes=2**15)
    assert s.converged
    assert s.feasible
    assert s.residual < 1e-7
    assert s.free_energy == pytest.approx(s.train_loss, abs=1e-6)
    for name, (value, last_digits) in expected.items():
        mine, error = value_and_error(s, name)
        assert abs(mine - value) < 4 * np.hypot(error, last_digits * 1e-4), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "quoted"),
    [(("spiked", "softmax", 2, 2, 0.5), 0.37), (("max", "softmax", INF, 4, 0.3), 0.34),
     (("max", "linear", INF, 4, 0.3), 0.90)],
)
def test_stable_points(case, quoted):
    s = solve(*case, nodes=2**14)
    assert s.stable
    assert s.replicon == pytest.approx(quoted, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [("max", "erf", INF, 4, 0.3), ("spiked", "softmax", 1, 1.5, 0.05)]
)
def test_unstable_points(case):
    s = solve(*case, nodes=2**13)
    assert s.replicon > 1
    assert s.stable is False
    assert s.competing_minima > 0


def problem_of(activation, reg_k=0.5, reg_v=0.5, nodes=2048, estimator="reparametrised"):
    from derivations.slr import single_location

    return SaddlePointProblem(
        derive_model(single_location("spiked", activation)),
        {"nu": 2.0, "Delta": 0.1, "r_k": reg_k, "r_v": reg_v}, {3: 1.0},
        SolverOptions(nodes=nodes, estimator=estimator, tolerance=1e-10),
    )


@pytest.mark.slow
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_derivatives_of_the_free_energy(activation):
    """``df/dr_w = q_w/2`` and ``df/dalpha = E[M]`` on fixed nodes."""
    h, alpha, r = 1e-3, 3.0, 1.0
    base = problem_of(activation, r, r).solve(alpha)
    assert base.converged
    for name in ("k", "v"):
        ends = [
            problem_of(activation, **{"reg_k": r, "reg_v": r, f"reg_{name}": r + step})
            .solve(alpha).free_energy
            for step in (h, -h)
        ]
        slope = (ends[0] - ends[1]) / (2 * h)
        assert slope == pytest.approx(base.order_parameters[f"q_{name}"] / 2, abs=1e-5)
    problem = problem_of(activation, r, r)
    up, down = problem.solve(alpha + h).free_energy, problem.solve(alpha - h).free_energy
    assert (up - down) / (2 * h) == pytest.approx(base.envelope, abs=1e-5)


@pytest.mark.slow
def test_both_estimators_agree():
    stein = solve("spiked", "softmax", 2, 2, 0.5, nodes=2**15)
    plain = solve("spiked", "softmax", 2, 2, 0.5, nodes=2**15, estimator="reparametrised")
    for name in stein.order_parameters:
        (a, da), (b, db) = value_and_error(stein, name), value_and_error(plain, name)
        assert abs(a - b) < 4 * np.hypot(da, db)


# population excess risk, spiked, L = 3, nu = 2: softmax and softplus by quadrature, linear 6/13
@pytest.mark.slow
@pytest.mark.parametrize(
    ("activation", "risk"), [("softmax", 0.352423), ("linear", 6 / 13), ("softplus", 0.3698)]
)
def test_many_samples_reach_the_population_risk(activation, risk):
    s = solve("spiked", activation, 2, 2000, 0.5, nodes=2**15)
    assert s.converged
    assert s.excess_risk == pytest.approx(risk, rel=5e-3)


@pytest.mark.slow
def test_many_samples_reach_a_stationary_point_of_the_erf_risk():
    """``1 - 2 m_v s1 + q_v s2`` is stationary in ``m_k`` (along ``q_k = m_k^2``) and ``m_v``."""
    from scipy.special import erf, roots_hermitenorm

    s = solve("spiked", "erf", 2, 2000, 0.5, nodes=2**14)
    assert s.converged
    x, w = roots_hermitenorm(80)
    w = w / w.sum()

    def best_risk(m_k):
        relevant = 1 + erf(-1 + m_k * (x + math.sqrt(2)))
        other = 1 + erf(-1 + m_k * x)
        s1 = w @ relevant
        return 1 - s1**2 / (w @ relevant**2 + 2 * (w @ other**2))

    m_k = s.order_parameters["m_k"]
    slope = (best_risk(m_k + 1e-3) - best_risk(m_k - 1e-3)) / 2e-3
    curvature = (best_risk(m_k + 1e-2) + best_risk(m_k - 1e-2) - 2 * best_risk(m_k)) / 1e-4
    assert abs(slope / curvature) < 0.03  # distance to the stationary point
    assert s.excess_risk == pytest.approx(best_risk(m_k), rel=5e-3)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_one_token(activation):
    s = solve("spiked", activation, 1, 2, 0.5, length=1, nodes=8192)
    assert s.converged
    assert s.feasible
    if activation in ("softmax", "softplus"):  # constant attention: the k sector decouples
        assert s.order_parameters["m_k"] == 0
        assert s.order_parameters["q_k"] == 0
        assert s.order_parameters["V_k"] == pytest.approx(2.0)
        assert s.conjugates["q_k"] == 0


@pytest.mark.slow
def test_sixty_four_tokens():
    s = solve("spiked", "softmax", 8, 4, 0.3, length=64, nodes=2048)
    assert s.converged
    assert s.feasible


@pytest.mark.parametrize(
    ("task", "nu", "length"),
    [("spiked", 2, "1:0.25,2:0.5,3:0.25"), ("max", INF, "1:0.5,3:0.5"), ("max", 1.5, 2)],
)
def test_tasks_and_variable_lengths(task, nu, length):
    s = solve(task, "softmax", nu, 2, 0.5, length=length, nodes=1024)
    assert s.converged
    assert s.free_energy == pytest.approx(s.train_loss, abs=1e-6)


def test_a_distribution_of_one_length_is_that_length():
    fixed = solve("spiked", "linear", 1, 2, 1.0, length=2, nodes=512)
    same = solve("spiked", "linear", 1, 2, 1.0, length="2:1", nodes=512)
    assert fixed.order_parameters == same.order_parameters


def test_a_grid_gives_a_tuple_even_of_one():
    curve = solve("spiked", "softmax", 2, "2:2:1", 0.5, nodes=512)
    assert isinstance(curve, tuple)
    assert len(curve) == 1


def test_a_curve_agrees_with_single_points():
    curve = solve("spiked", "softmax", 2, [1.0, 2.0], 0.5, nodes=512)
    alone = solve("spiked", "softmax", 2, 2.0, 0.5, nodes=512)
    assert curve[1].test_error == pytest.approx(alone.test_error, abs=1e-6)


def test_runs_repeat_exactly_whatever_the_number_of_threads():
    one = solve("spiked", "softmax", 2, 2, 0.5, nodes=1024, threads=1)
    two = solve("spiked", "softmax", 2, 2, 0.5, nodes=1024, threads=2)
    assert one.order_parameters == two.order_parameters
    assert one.free_energy == two.free_energy


def test_errors_shrink_with_nodes_and_cover_the_difference():
    few, many = (solve("spiked", "softmax", 2, 2, 0.5, nodes=n) for n in (512, 8192))
    for name in few.order_parameters:
        (a, da), (b, db) = value_and_error(few, name), value_and_error(many, name)
        assert db < da
        assert abs(a - b) < 5 * np.hypot(da, db)


@pytest.mark.parametrize(
    ("field", "change"),
    [("nodes", {"nodes": 3}), ("tolerance", {"tolerance": 1.0}), ("start", {"start": "warm"}),
     ("backend", {"backend": "abacus"}), ("estimator", {"estimator": "guess"})],
)
def test_options_are_checked(field, change):
    with pytest.raises(UsageError) as caught:
        solve("spiked", "softmax", 2, 2, 0.5, **change)
    assert caught.value.field == field


def test_strong_finite_signal_of_max_data_is_close_to_infinite_signal():
    """The score's weight sits on rare near-ties there, so the reparametrised form is used."""
    strong = solve("max", "softmax", 1e6, 2, 0.5, nodes=8192)
    infinite = solve("max", "softmax", INF, 2, 0.5, nodes=8192)
    (a, da), (b, db) = value_and_error(strong, "m_k"), value_and_error(infinite, "m_k")
    assert abs(a - b) < 4 * np.hypot(da, db)
    assert da < 0.02


def test_a_collapsed_point_is_not_called_converged():
    """Numbers that vanish satisfy the equations in absolute terms and mean nothing."""
    problem = problem_of("softmax", estimator="stein", nodes=256)
    nothing = np.array([1e-80, 1e-160, 1e-80, 0.5, 0.4, 1.0])
    assert problem.feasible(nothing)
    assert problem.collapsed(nothing, 2.0)
    assert not problem.collapsed(np.array([0.3, 0.3, 1.5, 0.5, 0.4, 1.0]), 2.0)


@pytest.mark.parametrize(
    ("field", "words"),
    [("r_w", {"values": {"Delta": 0.1}}), ("nuu", {"values": {"Delta": 0.1, "r_w": 1, "nuu": 2}}),
     ("r_w", {"values": {"Delta": 0.1, "r_w": 0}}), ("alpha", {"alpha": -1.0}),
     ("length", {"length": {1: 0.3}}), ("Delta", {"values": {"Delta": math.nan, "r_w": 1}})],
)
def test_inputs_of_any_model_are_checked(field, words):
    from derivations.classical import ridge

    given = {"alpha": 2.0, "values": {"Delta": 0.1, "r_w": 0.5}, "length": 1, **words}
    with pytest.raises(UsageError) as caught:
        replica.solve_model(
            ridge(), given["alpha"], given["values"], length=given["length"], nodes=256
        )
    assert caught.value.field == field


@pytest.mark.parametrize(("nu", "m_k"), [(1000, 0.169), (10000, 0.073)])
def test_strong_signal_needs_cautious_steps_and_gets_them(nu, m_k):
    """Full steps wander off there, to collapse or to an anti-aligned point. Simulation at
    ``nu = 1e4``, ``D = 100``: 0.0729(4)."""
    s = solve("spiked", "softmax", nu, 2, 0.5, nodes=1024)
    assert s.converged
    assert s.order_parameters["m_k"] == pytest.approx(m_k, rel=0.03)
    assert s.free_energy < 0.3


@pytest.mark.parametrize(
    ("field", "values"),
    [("Delta", {"Delta": -0.1, "r_w": 1.0}), ("Delta", {"Delta": "a", "r_w": 1.0})],
)
def test_values_have_the_right_kind_and_sign(field, values):
    from derivations.classical import ridge

    with pytest.raises(UsageError) as caught:
        replica.solve_model(ridge(), 2.0, values, nodes=256)
    assert caught.value.field == field


def test_error_bars_that_linear_response_cannot_give_are_called_rough():
    """64 nodes a scramble move the overlaps by many times their size."""
    few = solve("spiked", "linear", 2, 200, 0.5, nodes=512)
    assert any("error bars are rough" in m for m in few.messages)
    enough = solve("spiked", "linear", 2, 200, 0.5, nodes=2**13)
    assert not any("rough" in m for m in enough.messages)
    assert enough.standard_errors["test_error"] < 1e-3
