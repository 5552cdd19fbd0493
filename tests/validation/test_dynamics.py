"""One-pass SGD and message passing on data against their equations, extrapolated in 1/D."""

import json

import pytest

import replica
from derivations.setting import make_setting
from replica.api import bayes_problem
from replica.cli import run
from replica.dynamics.starts import OVERLAPS
from validation.comparison import agrees, compare, extrapolate, from_samples
from validation.simulate import make_learner

DIMENSIONS = (50, 100, 200)


def against(theory, errors, samples):
    """Comparisons of every observable; ``samples[dimension]`` is a list of mappings."""
    found = []
    for name, value in theory.items():
        estimates = [from_samples([s[name] for s in samples[d]]) for d in samples]
        found.append(compare(
            "", name, value, errors[name], extrapolate(list(samples), estimates), True
        ))
    return found


@pytest.mark.slow
def test_one_pass_sgd_follows_its_flow():
    """All seven overlaps, from a start off the manifold, variable length, weight decay."""
    start = {"m_k": 0.3, "q_k": 0.5, "m_v": 0.4, "q_v": 0.6, "m_kv": 0.3, "m_vk": -0.2,
             "q_kv": 0.2}
    model = {"activation": "softmax", "nu": 2.0, "length": "1:0.3,3:0.7", "noise": 0.3,
             "reg_k": 0.1, "reg_v": 0.2}
    flow = replica.flow(start=start, times=[0.0, 4.0], step=1.0, **model)
    theory = dict(zip(OVERLAPS, flow.overlaps[-1], strict=True))
    errors = dict(zip(OVERLAPS, flow.standard_errors[-1], strict=True))
    learner = make_learner(make_setting(decay=True, **model), "sgd", "auto", 1.0)
    samples = {
        d: [learner.run_seed(4.0, d, seed, start).overlaps for seed in range(24000 // d)]
        for d in DIMENSIONS
    }
    assert agrees(against(theory, errors, samples))
    wrong = {n: x + 0.05 for n, x in theory.items()}
    assert not any(c.p > 0.01 for c in against(wrong, errors, samples))


@pytest.mark.slow
@pytest.mark.parametrize("model", [
    {"nu": 2.0, "length": 3, "noise": 0.3},
    {"task": "max", "nu": float("inf"), "length": "2:0.5,3:0.5", "noise": 0.3},
], ids=["spiked", "max"])
def test_message_passing_follows_state_evolution_iteration_by_iteration(model):
    setting = make_setting(activation="softmax", decay=True, **model)
    learner = make_learner(setting, "amp", "auto", 0.5)
    iterations = 5
    evolution = bayes_problem(**model).evolution
    expected = evolution.trajectory(1.0, iterations, start=0.0)
    samples = {}
    for d, seeds in ((100, 96), (200, 48), (400, 24)):
        samples[d] = []
        for seed in range(seeds):
            path = learner.run_seed(1.0, d, seed, "random").path
            row = {}
            for t in range(iterations):
                at = path[min(t, len(path) - 1)]
                row |= {(n, t): at[n] for n in ("m_k", "q_k", "m_v", "q_v")}
            samples[d].append(row)
    theory = {}
    for t in range(iterations):
        q_k, q_v = expected[t + 1]
        theory |= {("m_k", t): q_k, ("q_k", t): q_k, ("m_v", t): q_v, ("q_v", t): q_v}
    errors = dict.fromkeys(theory, 1e-3)
    assert agrees(against(theory, errors, samples))
    shifted = {(n, t): theory[n, t + 1] for n, t in theory if t + 1 < iterations}
    assert not agrees(against(shifted, errors, samples))


@pytest.mark.parametrize(("method", "times"), [("sgd", "samples"), ("amp", "iterations")])
def test_the_command_runs_every_method(method, times, capsys):
    words = ["simulate", "--activation", "softmax", "--nu", "2", "--length", "2", "--alpha", "2",
             "--dimension", "60", "--seeds", "3", "--method", method, "--json"]
    assert run(words) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["inputs"]["method"] == method
    assert body["train_loss"] is None
    path = body["trajectory"]
    assert path[-1]["time"] == (2.0 if times == "samples" else len(path))
    assert path[-1]["q_v"] == pytest.approx(body["overlaps"]["q_v"])
    assert path[-1]["standard_errors"]["m_k"] > 0
    gap = body["test_error"] - body["test_error_sampled"]
    assert abs(gap) < 5 * body["standard_errors"]["test_error_sampled"] + 0.05


@pytest.mark.parametrize(("option", "value", "field"), [
    ("--method", "newton", "method"), ("--step", "-1", "step"), ("--step", "nan", "step"),
])
def test_bad_methods_exit_2(option, value, field, capsys):
    words = ["simulate", "--activation", "softmax", "--nu", "2", "--length", "2", "--alpha", "2",
             "--dimension", "60", "--seeds", "2", "--method", "sgd", option, value]
    assert run(words) == 2
    assert field in capsys.readouterr().err
