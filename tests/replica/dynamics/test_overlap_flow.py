import json
import math

import numpy as np
import pytest
from scipy.optimize import approx_fprime

import replica
from derivations.setting import make_setting
from replica.api import flow_problem
from replica.cli import run
from replica.dynamics.starts import OVERLAPS, STARTS
from replica.errors import UsageError
from replica.population_level.risk import PopulationProblem

ACTIVATIONS = ("softmax", "linear", "erf", "softplus")
SETTING = {"nu": 1.5, "length": "2:0.5,3:0.5", "noise": 0.3}
NODES = 2**13


def flow_of(activation, step=0.0, nodes=NODES, **words):
    setting = make_setting(activation=activation, decay=True, **{**SETTING, **words})
    return flow_problem(setting, step, nodes)


def overlaps(**named):
    return np.array([named.get(n, 0.0) for n in OVERLAPS])


def rates(problem, at):
    found = np.array([problem.flow.rate(at, b) for b in range(8)])
    return found.mean(axis=0), found.std(axis=0, ddof=1) / math.sqrt(8)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradient_flow_descends_the_quadratures_of_the_population_level(activation):
    """``m' = -(rho R_m + 2 m R_q)``, ``q' = -(2 m R_m + 4 q R_q)`` for the risk ``R(m, q)``."""
    problem = flow_of(activation, nodes=2**15)
    setting = problem.setting
    population = PopulationProblem(setting.model(), setting.values(), setting.lengths)

    def risk(x):
        moments, _ = population.moments(x[0], x[1])
        return 0.5 * (1 - 2 * x[2] * moments.s1 + x[3] * moments.s2)

    point = np.array([0.6, 0.9, 0.5, 0.7])
    slope = approx_fprime(point, risk, 1e-6)
    expected = {
        "m_k": -(slope[0] + 2 * point[0] * slope[1]),
        "q_k": -(2 * point[0] * slope[0] + 4 * point[1] * slope[1]),
        "m_v": -(slope[2] + 2 * point[2] * slope[3]),
        "q_v": -(2 * point[2] * slope[2] + 4 * point[3] * slope[3]),
    }
    at = overlaps(m_k=0.6, q_k=0.9, m_v=0.5, q_v=0.7)
    mean, error = rates(problem, at)
    for i, name in enumerate(OVERLAPS):
        assert abs(mean[i] - expected.get(name, 0.0)) < 5 * error[i] + 1e-5, name
    assert max(error) < 0.1 * np.abs(mean).max()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("step", [0.0, 0.7])
def test_growth_off_the_manifold_is_the_slope_of_the_rates(activation, step):
    """The derived growth (integrated by parts) against differences of the rates themselves."""
    problem = flow_of(activation, step, nodes=2**14, reg_k=0.1, reg_v=0.3)
    at = overlaps(m_k=0.6, q_k=0.9, m_v=0.5, q_v=0.7)
    cross = [OVERLAPS.index(n) for n in ("m_kv", "m_vk", "q_kv")]
    h = 1e-4
    derived = np.array([problem.flow._growth_matrix(at, b, False) for b in range(8)])
    slopes = np.zeros_like(derived)
    for b in range(8):
        for j, c in enumerate(cross):
            up, down = at.copy(), at.copy()
            up[c] += h
            down[c] -= h
            slopes[b, :, j] = (problem.flow.rate(up, b) - problem.flow.rate(down, b))[cross] / 2 / h
    gap = derived - slopes
    error = gap.std(axis=0, ddof=1) / math.sqrt(8)
    assert np.all(np.abs(gap.mean(axis=0)) < 5 * error + 1e-6)
    assert np.abs(derived.mean(axis=0)).max() > 20 * error.max()


def test_both_starts_reach_the_minimum_of_the_risk():
    problem = flow_of("linear", nodes=2**12)
    minima = problem.minima()
    assert len(minima) == 1
    for start in ("random", "informed"):
        found = problem.flow.run(STARTS[start], [0.0, 40.0, 80.0], start)
        assert found.settled
        assert not found.diverged
        assert problem.reached(found, minima) == 0
        assert found.stability[1].decays
        assert found.test_error[-1] == pytest.approx(
            minima[0]["excess_risk"] + 0.09, abs=5 * found.test_error_errors[-1]
        )


def test_weight_decay_and_noise_of_the_steps_are_felt():
    """SGD of finite step ends at longer weights than gradient flow; decay shortens them."""
    times = [0.0, 60.0]
    words = {"activation": "softmax", "nodes": 2**12, "start": "informed", **SETTING}
    still = replica.flow(step=0.0, times=times, **words)
    noisy = replica.flow(step=1.0, times=times, **words)
    decayed = replica.flow(step=0.0, times=times, reg_v=0.5, reg_k=0.0, **words)
    assert noisy.test_error[-1] > still.test_error[-1] + 5 * noisy.test_error_errors[-1]
    assert decayed.at_end("q_v") < 0.7 * still.at_end("q_v")


def test_a_diverging_step_is_said_and_exits_1(capsys):
    words = ["flow", "--activation", "linear", "--nu", "1", "--length", "3", "--step", "8",
             "--time", "50", "--nodes", "512", "--json"]
    assert run(words) == 1
    body = json.loads(capsys.readouterr().out)
    assert all(t["diverged"] for t in body["trajectories"])
    assert any("diverge" in w for w in body["warnings"])


def test_the_command_prints_its_keys_and_draws(tmp_path, capsys):
    figure = tmp_path / "flow.svg"
    words = ["flow", "--activation", "softmax", "--nu", "2", "--length", "2", "--time", "3",
             "--nodes", "512", "--points", "5", "--start", "m_k=0.3,q_k=0.5,q_v=0.2"]
    assert run([*words, "--json", "--plot", str(figure)]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["inputs"]["step"] == 0.5
    (found,) = body["trajectories"]
    assert found["time"] == pytest.approx([0, 0.75, 1.5, 2.25, 3])
    assert set(found["overlaps"]) == set(OVERLAPS)
    assert found["overlaps"]["m_k"][0] == 0.3
    assert len(found["standard_errors"]["test_error"]) == 5
    assert set(found["manifold"]["end"]) == {"growth_rates", "standard_error", "decays"}
    assert "<svg" in figure.read_text()
    assert run(words) == 0
    assert "cross overlaps decay at the end" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("words", "field"), [
    ({"step": -1.0}, "step"),
    ({"step": float("nan")}, "step"),
    ({"nodes": 3}, "nodes"),
    ({"start": "elsewhere"}, "start"),
    ({"start": {"m_k": 1.0, "q_k": 0.5}}, "start"),
    ({"start": {"m_x": 1.0}}, "start"),
    ({"reg_k": -1.0}, "reg_k"),
])
def test_bad_input_names_its_field(words, field):
    with pytest.raises(UsageError) as caught:
        replica.flow(times=[0.0, 1.0], **{"activation": "softmax", **SETTING, **words})
    assert caught.value.field == field


@pytest.mark.parametrize(("option", "value"), [
    ("--start", "m_k=x"), ("--start", "m_k"), ("--time", "0"), ("--time", "nan"), ("--step", "-1"),
])
def test_bad_words_exit_2(option, value, capsys):
    words = ["flow", "--activation", "softmax", "--nu", "1", "--length", "2", option, value]
    assert run(words) == 2
    assert f"{option}:" in capsys.readouterr().err
