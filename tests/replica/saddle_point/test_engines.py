"""The engines agree on shared nodes."""

import numpy as np
import pytest

from derivations.classical import logistic, ridge
from derivations.slr import single_location
from replica.api import derive_model
from replica.codegen.c_compiler import find_compilers
from replica.errors import UsageError
from replica.saddle_point.solve import SaddlePointProblem, SolverOptions
from replica.saddle_point.stability import replicon

pytestmark = pytest.mark.skipif(not find_compilers(), reason="no C compiler")
VALUES = {"nu": 2.0, "Delta": 0.1, "r_k": 0.5, "r_v": 0.5}


def problem(backend, activation, lengths, estimator="stein", nodes=1024, threads=None):
    model = single_location("spiked", activation)
    return SaddlePointProblem(
        derive_model(model), VALUES, lengths,
        SolverOptions(nodes=nodes, backend=backend, estimator=estimator, threads=threads),
    )


@pytest.mark.parametrize("lengths", [{1: 1.0}, {3: 1.0}, {2: 0.5, 8: 0.5}])
@pytest.mark.parametrize("estimator", ["stein", "reparametrised"])
def test_averages_agree(activation, lengths, estimator):
    point = np.array([0.3, 0.4, 1.2, 0.6, 0.7, 0.9])
    found = []
    for backend in ("c", "numpy"):
        p = problem(backend, activation, lengths, estimator)
        assert p.engine.name == backend
        p.engine.sweep(p.uniform(point, 2.0), 1e-12, search="all")
        found.append(p.engine.sweep(p.uniform(point, 2.0), 1e-13).per_scramble)
    for name, values in found[1].items():
        assert np.allclose(found[0][name], values, rtol=1e-10, atol=1e-12), name


@pytest.mark.parametrize("V", [2.0, 8.0])
def test_minima_agree_where_many_compete(activation, V):
    point = np.array([0.9, 25.0, V, 0.9, 0.9, 0.9])
    found = []
    for backend in ("c", "numpy"):
        p = problem(backend, activation, {3: 1.0})
        p.engine.sweep(p.uniform(point, 2.0), 1e-12, search="all")
        found.append(p.engine.sweep(p.uniform(point, 2.0), 1e-12))
    assert found[0].competing == pytest.approx(found[1].competing)
    for name, values in found[1].per_scramble.items():
        assert np.allclose(found[0].per_scramble[name], values, rtol=1e-6, atol=1e-9), name


def image_of_a_fresh_search(p, found, alpha):
    """The map at a solution with every minimum searched from nothing, relative to the point."""
    x = p.point(found)
    fresh = SaddlePointProblem(p.equations, p.values, p.lengths, p.options, p.kernels)
    at = fresh.uniform(x, alpha)
    averages = fresh.engine.sweep(at, 1e-10, search="all")
    image = fresh.overlaps(fresh.hats(averages.pooled(), at), at)
    return np.max(np.abs(image - x) / np.maximum(1.0, np.abs(x)))


@pytest.mark.parametrize("start", ["informed", "uninformed"])
def test_an_unstable_saddle_is_reached_from_both_starts(start):
    """Many competing minima at ``V = 15``: with missed minima every path ended elsewhere."""
    p = SaddlePointProblem(
        derive_model(single_location("spiked", "softmax")),
        {"nu": 1.0, "Delta": 0.1, "r_k": 0.05, "r_v": 0.05}, {3: 1.0},
        SolverOptions(nodes=2048, start=start),
    )
    found = p.solve(1.5)
    assert found.converged
    assert not found.stable
    assert image_of_a_fresh_search(p, found, 1.5) < 1e-6
    assert found.order_parameters["q_k"] == pytest.approx(0.9504, abs=0.02)


@pytest.mark.parametrize("seed", range(4))
def test_what_counts_as_converged_survives_a_fresh_search(seed):
    """Saturated attention without noise: the map of few nodes jumps, often across its diagonal."""
    p = SaddlePointProblem(
        derive_model(single_location("spiked", "softmax")),
        {"nu": 2.0, "Delta": 0.0, "r_k": 0.01, "r_v": 0.01}, {3: 1.0},
        SolverOptions(nodes=2048, seed=seed),
    )
    found = p.solve(20.0)
    left = image_of_a_fresh_search(p, found, 20.0)
    if found.converged:
        assert left < 1e-6
    else:
        assert left > 1e-6
        assert found.residual > 1e-6
        assert any("jumping" in m or "cycles" in m for m in found.messages)


def test_saddle_points_agree():
    ends = [problem(b, "softmax", {3: 1.0}).solve(2.0) for b in ("c", "numpy")]
    assert ends[0].backend == "c"
    for name, value in ends[1].order_parameters.items():
        assert ends[0].order_parameters[name] == pytest.approx(value, abs=1e-7)
    assert ends[0].test_error == pytest.approx(ends[1].test_error, abs=1e-7)


def test_compiled_results_do_not_depend_on_threads():
    ends = [problem("c", "erf", {3: 1.0}, threads=t).solve(3.0) for t in (1, 2, 5)]
    assert ends[0].order_parameters == ends[1].order_parameters == ends[2].order_parameters
    assert ends[0].standard_errors == ends[1].standard_errors


def test_ridge_runs_compiled_and_logistic_falls_back():
    p = SaddlePointProblem(
        derive_model(ridge()), {"Delta": 0.0, "r_w": 0.1}, {1: 1.0}, SolverOptions(nodes=2**12)
    )
    assert p.engine.name == "c"
    assert p.solve(2.0).converged
    q = SaddlePointProblem(
        derive_model(logistic()), {"r_w": 0.1}, {1: 1.0}, SolverOptions(nodes=2**10)
    )
    assert q.engine.name == "numpy"


def test_asking_for_c_where_it_cannot_be_had_is_an_error():
    with pytest.raises(UsageError) as caught:
        SaddlePointProblem(
            derive_model(logistic()), {"r_w": 0.1}, {1: 1.0},
            SolverOptions(nodes=2**10, backend="c"),
        )
    assert caught.value.field == "backend"


def test_no_compiler_falls_back_to_numpy_and_says_so(monkeypatch):
    monkeypatch.setattr("replica.codegen.c_compiler.find_compilers", lambda: ())
    p = problem("auto", "softmax", {2: 1.0})
    assert p.engine.name == "numpy"
    assert "no C compiler" in p.backend.note


def test_asking_for_cuda_without_a_device_says_why(monkeypatch):
    monkeypatch.setattr("replica.codegen.cuda.find_device", lambda: (None, "no driver here"))
    with pytest.raises(UsageError, match="no driver here"):
        problem("cuda", "softmax", {2: 1.0})


def test_the_replicon_agrees(activation):
    point = np.array([0.3, 0.4, 1.2, 0.6, 0.7, 0.9])
    found = []
    for backend in ("c", "numpy"):
        p = problem(backend, activation, {1: 0.25, 3: 0.75})
        at = p.uniform(point, 2.0)
        p.engine.sweep(at, 1e-12, search="all")
        found.append(replicon(p.engine, at))
    assert found[0].radius == pytest.approx(found[1].radius, rel=1e-9)
    # the spread over blocks feels single nodes next to a singularity of the response
    assert found[0].standard_error == pytest.approx(found[1].standard_error, rel=0.01)


def test_near_searches_revisit_only_close_rivals():
    p = problem("c", "erf", {3: 1.0}, nodes=2**12)
    point = np.array([0.3, 0.4, 4.0, 0.6, 0.7, 0.9])
    at = p.uniform(point, 2.0)
    full = p.engine.sweep(at, 1e-10, "all")
    near = p.engine.sweep(at, 1e-10, "near")
    assert near.moved == 0
    # which rivals are seen depends a little on where the search starts
    assert near.competing == pytest.approx(full.competing, rel=0.1)
    assert full.competing > 0
    assert 0 < near.executed < 0.5 * full.executed
    assert p.engine.sweep(at, 1e-10).executed == 0


def test_long_sequences_cost_no_compilation():
    p = problem("c", "softmax", {300: 1.0}, nodes=256)
    q = problem("c", "softmax", {2: 1.0}, nodes=256)
    assert p.kernels.source.for_cpu() == q.kernels.source.for_cpu()
    assert p.solve(2.0).converged
