import math

import numpy as np
import pytest

from derivations.setting import make_setting
from replica.errors import UsageError
from tests.conftest import ACTIVATIONS
from validation.data import draw
from validation.erm import TrainingProblem, starting_weights
from validation.population import population_error
from validation.simulate import make_simulator, simulate_setting


def setting_of(activation, **words):
    return make_setting(**{"activation": activation, "nu": 2, "length": 3, "reg": 0.5, **words})


@pytest.mark.parametrize("length", ["3", "1:0.5,2:0.5"])
def test_the_gradient_is_the_slope_of_the_objective(activation, length):
    setting = setting_of(activation, length=length, reg_v=0.2)
    simulator = make_simulator(setting)
    data = draw("spiked", 2.0, setting.lengths, 0.1, 15, 25, 0)
    problem = TrainingProblem(data, simulator.loss, setting.values(), 0.5, 0.2)
    w = starting_weights(data, "informed", 0) + 0.3
    _, gradient = problem.objective(w)
    h = 1e-6
    for i in (0, 7, 20, 29):
        e = np.zeros(30)
        e[i] = h
        slope = (problem.objective(w + e)[0] - problem.objective(w - e)[0]) / (2 * h)
        assert slope == pytest.approx(gradient[i], rel=1e-5, abs=1e-9)


def test_the_loss_is_the_definition():
    setting = setting_of("softmax")
    simulator = make_simulator(setting)
    data = draw("spiked", 2.0, {3: 1.0}, 0.1, 12, 10, 0)
    (batch,) = data.batches
    w = np.random.default_rng(0).normal(size=24)
    k, v = w[:12], w[12:]
    total = 0.25 * w @ w
    for x, y in zip(batch.tokens, batch.labels, strict=True):
        chi = x @ k / math.sqrt(12)
        weights = np.exp(chi) / np.exp(chi).sum()
        total += 0.5 * (y - weights @ (x @ v) / math.sqrt(12)) ** 2
    problem = TrainingProblem(data, simulator.loss, setting.values(), 0.5, 0.5)
    assert problem.objective(w)[0] == pytest.approx(total / 12)


@pytest.mark.parametrize(("task", "nu"), [("spiked", 2.0), ("max", math.inf), ("max", 1.5)])
def test_population_error_off_the_manifold_is_the_sampled_one(activation, task, nu):
    setting = setting_of(activation, task=task, nu=nu)
    simulator = make_simulator(setting)
    rng = np.random.default_rng(5)
    D = 60
    data = draw(task, nu, {3: 1.0}, 0.1, D, 60000, 0)
    k = 0.6 * data.key + 0.3 * data.value + 0.4 * rng.normal(size=D)
    v = 0.5 * data.value - 0.4 * data.key + 0.3 * rng.normal(size=D)
    pairs = {"m_k": (k, data.key), "m_v": (v, data.value), "q_k": (k, k), "q_v": (v, v),
             "m_kv": (k, data.value), "m_vk": (v, data.key), "q_kv": (k, v)}
    overlaps = {n: float(a @ b) / D for n, (a, b) in pairs.items()}
    mine = population_error(
        simulator.model, simulator.weights, overlaps, setting.values(), {3: 1.0}, 0.1
    )
    (batch,) = data.batches
    chi = (batch.tokens @ k / math.sqrt(D)).T
    z = (batch.tokens @ v / math.sqrt(D)).T
    sigma = simulator.weights({**setting.values(), "chi": chi}, 3)[0]
    squares = (batch.labels - (sigma * z).sum(axis=0)) ** 2
    error = squares.std() / math.sqrt(len(squares))
    assert abs(mine - squares.mean()) < 4 * error + 2e-3 * mine


def test_results_carry_errors_and_repeat():
    first = simulate_setting(setting_of("softmax"), 2.0, 30, 3)
    again = simulate_setting(setting_of("softmax"), 2.0, 30, 3)
    assert first.overlaps == again.overlaps
    assert set(first.standard_errors["overlaps"]) == set(first.overlaps)
    assert first.converged_fraction == 1
    assert len(first.per_seed) == 3
    assert first.samples == 60


@pytest.mark.slow
def test_random_and_informed_starts_agree_where_replica_symmetry_holds():
    setting = setting_of("softmax")
    ends = [simulate_setting(setting, 2.0, 150, 4, start=s) for s in ("random", "informed")]
    for a, b in zip(ends[0].per_seed, ends[1].per_seed, strict=True):
        assert a.train_loss == pytest.approx(b.train_loss, rel=1e-3)


@pytest.mark.parametrize(
    ("field", "words"),
    [("dimension", {"dimension": 1}), ("seeds", {"seeds": 0}), ("start", {"start": "cold"}),
     ("method", {"method": "magic"}), ("alpha", {"alpha": 1e-9})],
)
def test_options_are_checked(field, words):
    given = {"alpha": 2.0, "dimension": 20, "seeds": 1, **words}
    with pytest.raises(UsageError) as caught:
        simulate_setting(setting_of("linear"), **given)
    assert caught.value.field == field


def test_every_activation_trains():
    for name in ACTIVATIONS:
        assert simulate_setting(setting_of(name), 2.0, 20, 2).converged_fraction == 1
