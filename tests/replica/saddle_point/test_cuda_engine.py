"""The CUDA engine on an emulated device: the text that NVRTC compiles, run on the CPU."""

import numpy as np
import pytest

import replica.saddle_point.cuda_engine as cuda_engine
from derivations.slr import single_location
from replica.api import derive_model
from replica.saddle_point.cuda_engine import CudaEngine
from replica.saddle_point.solve import SaddlePointProblem, SolverOptions
from replica.saddle_point.stability import replicon
from tests.cuda_emulator import EmulatedDevice, compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
VALUES = {"nu": 2.0, "Delta": 0.1, "r_k": 0.5, "r_v": 0.5}
POINT = np.array([0.3, 0.4, 1.2, 0.6, 0.7, 0.9])


def engines(activation, lengths, task="spiked", nodes=1024):
    p = SaddlePointProblem(
        derive_model(single_location(task, activation)), VALUES, lengths,
        SolverOptions(nodes=nodes, backend="numpy"),
    )
    return p, CudaEngine.build(p.kernels, p.nodes, p.values, EmulatedDevice())


@pytest.mark.parametrize("fixed", [16, 0], ids=["fixed length", "run-time length"])
def test_sweeps_agree_with_numpy(activation, fixed, monkeypatch):
    monkeypatch.setattr(cuda_engine, "LONGEST_FIXED", fixed)
    p, cuda = engines(activation, {1: 0.25, 3: 0.75})
    at = p.uniform(POINT, 2.0)
    for search in ("all", "near"):
        mine = cuda.sweep(at, 1e-12, search)
        other = p.engine.sweep(at, 1e-12, search)
        assert mine.moved == other.moved
        assert mine.competing == other.competing
        assert mine.worst_gradient <= 1e-12
        for name, values in other.per_scramble.items():
            assert np.allclose(mine.per_scramble[name], values, rtol=1e-10, atol=1e-12), name
    ours, theirs = replicon(cuda, at), replicon(p.engine, at)
    assert ours.radius == pytest.approx(theirs.radius, rel=1e-9)


def test_results_do_not_depend_on_the_launch(monkeypatch):
    found = []
    for chunk, threads in ((2**21, 128), (256, 32), (64, 96)):
        monkeypatch.setattr(cuda_engine, "CHUNK", chunk)
        monkeypatch.setattr(cuda_engine, "THREADS", threads)
        p, cuda = engines("softmax", {3: 1.0})
        found.append(cuda.sweep(p.uniform(POINT, 2.0), 1e-12, "all"))
    for other in found[1:]:
        for name, values in found[0].per_scramble.items():
            assert np.allclose(other.per_scramble[name], values, rtol=1e-14), name


def test_nodes_that_stay_behind_are_finished_on_the_host(monkeypatch):
    monkeypatch.setattr(cuda_engine, "STEPS", 1)
    p, cuda = engines("softmax", {3: 1.0})
    at = p.uniform(POINT, 2.0)
    assert cuda.sweep(at, 1e-12).worst_gradient <= 1e-12
    want = p.engine.sweep(at, 1e-12).pooled()
    for name, value in cuda.sweep(at, 1e-12).pooled().items():
        assert value == pytest.approx(want[name], rel=1e-10)


def test_a_saddle_point_on_the_device(monkeypatch):
    p, cuda = engines("softmax", {2: 1.0})
    q, _ = engines("softmax", {2: 1.0})
    q.engine = cuda
    mine, other = q.solve(2.0), p.solve(2.0)
    assert mine.backend == "cuda"
    for name, value in other.order_parameters.items():
        assert mine.order_parameters[name] == pytest.approx(value, abs=1e-10)
