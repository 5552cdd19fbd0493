"""The measurements behind ``replica bench``: one run, side by side, as ratios."""

from __future__ import annotations

import importlib.util
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import replica
from replica.bench.machine import fastest, measure_machine
from replica.bench.operations import bound, count_program, count_step
from replica.derivation.chain import SaddlePointEquations
from replica.saddle_point.kernels import Kernels
from replica.saddle_point.solve import SaddlePointProblem, SolverOptions

VALUES = {"nu": 2.0, "Delta": 0.1, "r_k": 0.5, "r_v": 0.5}
LENGTHS = {3: 1.0}
ALPHA = 2.0


def load_baselines() -> ModuleType | None:
    """``benchmarks/baselines.py`` of a source checkout; ``None`` for an installed package."""
    path = Path(replica.__file__).resolve().parents[1] / "benchmarks" / "baselines.py"
    if not path.is_file():
        return None
    spec = importlib.util.spec_from_file_location("replica_baselines", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Bench:
    """One model on one machine: first row of the reference table by default."""

    def __init__(
        self, equations: SaddlePointEquations, options: SolverOptions, repeat: int,
        report: Callable[[str], None],
    ) -> None:
        self.equations, self.options, self.repeat, self.report = equations, options, repeat, report
        self.kernels: Kernels = self.problem().kernels

    def problem(self, **changes: Any) -> SaddlePointProblem:
        """A fresh problem: nodes are drawn anew, compiled code is shared."""
        lengths = changes.pop("lengths", LENGTHS)
        options = replace(self.options, **changes)
        kernels = getattr(self, "kernels", None)
        return SaddlePointProblem(self.equations, VALUES, lengths, options, kernels)

    def run(self, numpy_nodes: int, quick: bool = False) -> dict[str, Any]:
        """Everything, as one document."""
        result: dict[str, Any] = {
            "machine": {"system": platform.machine(), "cores": os.cpu_count(),
                        "threads": self.options.threads or os.cpu_count()},
            "saddle_point": self.saddle_point(numpy_nodes),
        }
        if self.problem().backend.name == "c":
            result["proximal"] = self.proximal()
        result["precision"] = self.precision()
        result["curve"] = self.curve()
        if not quick:
            result["scaling"] = self.scaling()
        return result

    # -- one saddle point ------------------------------------------------------------------------

    def saddle_point(self, numpy_nodes: int) -> dict[str, Any]:
        """Engine, its NumPy path and the baselines; nodes are drawn within every time."""
        baselines = load_baselines()
        nodes = self.options.nodes
        runs: dict[str, Callable[[], Any]] = {
            "everything": lambda: _overlaps(self.problem().solve(ALPHA)),
            "iteration": self.iterate,
        }
        if baselines is not None:
            runs["scalar baseline"] = lambda: baselines.scalar(nodes)[0]
        ends: dict[str, Any] = {}
        times: dict[str, list[float]] = {}
        for name, run in runs.items():
            self.report(name)
            ends[name] = run()  # also warms up
        for name in runs:
            times[name] = []
        for _ in range(self.repeat):  # interleaved: a slow spell hits all alike
            for name, run in runs.items():
                clock = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - clock)
        scaled = {"NumPy backend": lambda: self.iterate(backend="numpy", nodes=numpy_nodes)}
        if baselines is not None:
            scaled["NumPy baseline"] = lambda: baselines.numpy_batch(numpy_nodes)[0]
        medians = {name: statistics.median(t) for name, t in times.items()}
        for name, run in scaled.items():
            self.report(name)
            clock = time.perf_counter()
            ends[name] = run()
            medians[name] = (time.perf_counter() - clock) * nodes / numpy_nodes
        return {
            "nodes": nodes, "scaled_from_nodes": {n: numpy_nodes for n in scaled},
            "median_seconds": medians, "all_seconds": times,
            "ratio_to_iteration": {n: t / medians["iteration"] for n, t in medians.items()},
            "order_parameters": {n: list(map(float, x)) for n, x in ends.items()},
        }

    def iterate(self, **changes: Any) -> np.ndarray:
        """What the baselines do: nodes, warm starts, residual; no search, errors or stability."""
        p = self.problem(**changes)
        for q in (p, p.coarse):
            if q is not None:
                _without_search(q)
        x = p.start_point(ALPHA)
        end = p._settle(ALPHA, x, 1.0, p._guide(ALPHA, x))
        assert end.iteration.converged
        assert end.iteration.residual <= self.options.tolerance
        return np.asarray(end.iteration.x)

    # -- the kernel against the machine ----------------------------------------------------------

    def proximal(self) -> dict[str, Any]:
        """Minimisations per second on one thread, against operations and bandwidth."""
        self.report("proximal solves")
        machine = measure_machine()
        assert machine is not None
        p = self.problem(threads=1)
        engine, x = p.engine, p.start_point(ALPHA)
        end = p._settle(ALPHA, x, 1.0, None)
        there = p.uniform(end.iteration.x, ALPHA)
        moved = p.uniform(end.iteration.x * (1 + 1e-3), ALPHA)
        counted = engine.sweep(there, 1e-10, observe=False)

        def back() -> None:
            engine.sweep(moved, 1e-10, observe=False)

        seconds, count = float("inf"), p.nodes.count
        for _ in range(self.repeat):
            engine.sweep(there, 1e-10, observe=False)
            clock = time.perf_counter()
            counted = engine.sweep(moved, 1e-10, observe=False)
            seconds = min(seconds, time.perf_counter() - clock)
        still = fastest(back)  # nothing moves any more: loading, one evaluation, averages
        length = max(p.lengths)
        programs = p.kernels.programs
        costs = dict(machine.seconds)
        step = bound(count_step(programs, length), costs)
        passive = sum(
            bound(count_program(q, length), costs)
            for q in (programs.cavity, programs.proximal, programs.averages) if q is not None
        )
        steps = counted.steps / count
        least = steps * step + passive
        assert p.kernels.source is not None
        rows = sum(length if s == "token" else 1 for _, s in p.kernels.source.fields)
        traffic = 8 * (rows + 2 * length + 3)
        return {
            "solves_per_second": count / seconds,
            "nanoseconds_per_solve": 1e9 * seconds / count,
            "steps_per_solve": steps,
            "executed_steps_per_solve": counted.executed / count,
            "operations_bound_nanoseconds": 1e9 * least,
            "ratio_to_bound": seconds / count / least,
            "parts_nanoseconds": {
                "operations of the needed steps": 1e9 * steps * step,
                "operations of loading and averaging": 1e9 * passive,
                "lanes that wait": 1e9 * (counted.executed / count - steps) * step,
                "measured without any step": 1e9 * still / count,
            },
            "bytes_per_solve": traffic,
            "bandwidth_share": traffic * count / seconds / machine.bandwidth,
            "bandwidth_gigabytes_per_second": machine.bandwidth / 1e9,
            "nanoseconds_per_operation": {n: 1e9 * s for n, s in machine.seconds.items()},
        }

    # -- what users wait for ---------------------------------------------------------------------

    def precision(self) -> dict[str, Any]:
        """Relative standard error of the test error against computing time."""
        self.report("precision")
        rows = []
        for power in (13, 15, 17, 19):
            p = self.problem(nodes=2**power)
            clock = time.perf_counter()
            s = p.solve(ALPHA)
            rows.append({
                "nodes": s.nodes, "seconds": time.perf_counter() - clock,
                "relative_error": s.standard_errors["test_error"] / s.test_error,
            })
        return {"rows": rows}

    def curve(self) -> dict[str, Any]:
        """Twenty points in alpha at 2^15 nodes."""
        self.report("curve")
        p = self.problem(nodes=2**15)
        clock = time.perf_counter()
        solutions = list(p.curve(list(np.linspace(0.5, 5.0, 20))))
        return {
            "points": len(solutions), "nodes": 2**15, "seconds": time.perf_counter() - clock,
            "converged": all(s.converged for s in solutions),
        }

    def scaling(self) -> dict[str, Any]:
        """In nodes, tokens and threads."""
        def timed(**changes: Any) -> float:
            self.report("scaling: " + ", ".join(f"{k} {v}" for k, v in changes.items()))
            p = self.problem(**changes)
            clock = time.perf_counter()
            p.solve(ALPHA)
            return time.perf_counter() - clock

        cores = os.cpu_count() or 1
        threads = sorted({1, 2, cores} & set(range(1, cores + 1)))
        return {
            "nodes": {str(2**k): timed(nodes=2**k) for k in (13, 15, 17)},
            "length": {str(n): timed(nodes=2**14, lengths={n: 1.0})
                       for n in (1, 3, 10, 32, 100, 316, 1024)},
            "threads": {str(t): timed(nodes=2**17, threads=t) for t in threads},
        }


def _overlaps(solution: Any) -> np.ndarray:
    return np.array(list(solution.order_parameters.values()))


def _without_search(problem: SaddlePointProblem) -> None:
    """Warm starts only, like the baselines."""
    sweep = problem.engine.sweep

    def plain(values: Any, tolerance: float, search: str = "none", observe: bool = True) -> Any:
        return sweep(values, tolerance, "none", observe)

    problem.engine.sweep = plain  # type: ignore[method-assign]


__all__ = ["Bench", "load_baselines"]
