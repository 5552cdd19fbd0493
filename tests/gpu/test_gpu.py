"""On a CUDA device only: ``python -m pytest -m gpu``. Everything else about CUDA is tested without.

Kernels against the C path to 1e-12, saddle points to 1e-10 on the same nodes, sampling and
training against their CPU twins.
"""

import numpy as np
import pytest

import replica.saddle_point.cuda_engine as cuda_engine
from derivations.setting import make_setting
from derivations.slr import single_location
from replica.api import derive_model
from replica.codegen.cuda import find_device
from replica.saddle_point.cuda_engine import CudaEngine
from replica.saddle_point.solve import SaddlePointProblem, SolverOptions
from replica.saddle_point.stability import replicon
from tests.cuda_emulator import EmulatedDevice, compiler
from validation.device_data import Sampler, draw_on_device
from validation.erm import TrainingProblem
from validation.simulate import make_simulator

DEVICE, WHY = find_device()
pytestmark = [
    pytest.mark.gpu, pytest.mark.skipif(DEVICE is None, reason=WHY or "no CUDA device")
]
VALUES = {"nu": 2.0, "Delta": 0.1, "r_k": 0.5, "r_v": 0.5}
POINT = np.array([0.3, 0.4, 1.2, 0.6, 0.7, 0.9])


def problem(activation, lengths, backend, task="spiked", nodes=2**12):
    return SaddlePointProblem(
        derive_model(single_location(task, activation)), VALUES, lengths,
        SolverOptions(nodes=nodes, backend=backend),
    )


@pytest.mark.parametrize("fixed", [16, 0], ids=["fixed length", "run-time length"])
@pytest.mark.parametrize("task", ["spiked", "max"])
def test_sweeps_agree_with_c(activation, task, fixed, monkeypatch):
    monkeypatch.setattr(cuda_engine, "LONGEST_FIXED", fixed)
    c = problem(activation, {1: 0.25, 3: 0.75}, "c", task)
    g = CudaEngine.build(c.kernels, c.nodes, c.values, DEVICE)
    at = c.uniform(POINT, 2.0)
    for search in ("all", "near"):
        mine, other = g.sweep(at, 1e-13, search), c.engine.sweep(at, 1e-13, search)
        assert mine.moved == pytest.approx(other.moved, abs=1e-3)
        for name, values in other.per_scramble.items():
            assert np.allclose(mine.per_scramble[name], values, rtol=1e-12, atol=1e-12), name
    assert replicon(g, at).radius == pytest.approx(replicon(c.engine, at).radius, rel=1e-9)


def test_saddle_points_agree_with_c(activation):
    ends = [problem(activation, {3: 1.0}, b, nodes=2**15).solve(2.0) for b in ("cuda", "c")]
    assert ends[0].backend == "cuda"
    for name, value in ends[1].order_parameters.items():
        assert ends[0].order_parameters[name] == pytest.approx(value, abs=1e-10), name
    assert ends[0].test_error == pytest.approx(ends[1].test_error, abs=1e-10)


def test_repeated_runs_are_identical():
    first, second = (problem("softmax", {3: 1.0}, "cuda", nodes=2**14).solve(2.0) for _ in "ab")
    assert first.order_parameters == second.order_parameters
    assert first.standard_errors == second.standard_errors


def test_long_sequences():
    ends = [problem("softmax", {1024: 1.0}, b, nodes=2**11).solve(2.0) for b in ("cuda", "c")]
    for name, value in ends[1].order_parameters.items():
        assert ends[0].order_parameters[name] == pytest.approx(value, abs=1e-9), name


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler for the emulated device")
def test_random_numbers_are_those_of_the_emulated_device():
    for kind in ("uniforms", "normals"):
        mine = DEVICE.host(getattr(Sampler(DEVICE, 7), kind)(1001))
        emulated = getattr(Sampler(EmulatedDevice(), 7), kind)(1001)
        assert np.allclose(mine, emulated, rtol=1e-13, atol=1e-14)


def test_training_agrees_with_the_host(activation):
    setting = make_setting(
        activation=activation, nu=2.0, length=3, task="spiked", reg=0.5, reg_k=None, reg_v=None,
        noise=0.1,
    )
    from cupyx.scipy import special

    simulator = make_simulator(setting)
    data = draw_on_device(DEVICE, "spiked", 2.0, {3: 1.0}, 0.1, 200, 400, 1)
    loss = simulator.loss.on(DEVICE.xp, special)
    there = TrainingProblem(data, loss, setting.values(), 0.5, 0.5, DEVICE)
    moved = tuple(
        type(b)(DEVICE.host(b.tokens), DEVICE.host(b.labels), DEVICE.host(b.location), b.length)
        for b in data.batches
    )
    here = TrainingProblem(
        type(data)(moved, data.key, data.value), simulator.loss, setting.values(), 0.5, 0.5
    )
    weights = np.random.default_rng(0).normal(size=400)
    (f, g), (f2, g2) = here.objective(weights), there.objective(weights)
    assert f2 == pytest.approx(f, rel=1e-12)
    assert np.allclose(g2, g, rtol=1e-10, atol=1e-12)


def test_a_simulation_on_the_device():
    from replica.api import simulate

    found = simulate(
        activation="softmax", task="spiked", nu=2.0, length=3, alpha=2.0, reg=0.5, dimension=400,
        seeds=8, backend="cuda",
    )
    assert found.converged_fraction == 1
    error = found.standard_errors["overlaps"]["m_k"]
    assert abs(found.overlaps["m_k"] - 0.333) < 5 * error + 0.02  # finite dimension
