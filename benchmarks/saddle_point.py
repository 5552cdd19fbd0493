"""Time one saddle point: engine and baselines side by side in one run, as ratios.

    python benchmarks/saddle_point.py [--nodes 131072] [--repeat 5] [--json FILE]

First row of the reference table: softmax, spiked, nu = 2, L = 3, alpha = 2, r = 0.5, noise 0.1,
residual 1e-8. Times include drawing the nodes. "engine" is the whole of ``replica solve``: global
search, standard errors and replicon as well; "iteration" is what the baselines do: nodes and the
fixed point by warm starts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import baselines

from replica.api import derive
from replica.saddle_point import fixed_point
from replica.saddle_point.solve import SaddlePointProblem, SolverOptions

VALUES = {"nu": 2.0, "Delta": 0.1, "r_k": 0.5, "r_v": 0.5}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=2**17)
    parser.add_argument("--numpy-nodes", type=int, default=2**13,
                        help="nodes of the NumPy baseline, scaled up linearly")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    equations = derive("softmax")

    def problem() -> SaddlePointProblem:
        return SaddlePointProblem(
            equations, VALUES, {3: 1.0},
            SolverOptions(nodes=options.nodes, threads=options.threads),
        )

    def engine() -> np.ndarray:
        s = problem().solve(2.0)
        return np.array(list(s.order_parameters.values()))

    def iteration() -> np.ndarray:
        p = problem()

        def step(x: np.ndarray, inner: float) -> np.ndarray:
            at = p.uniform(x, 2.0)
            return p.overlaps(p.hats(p.engine.sweep(at, inner).pooled(), at), at)

        found = fixed_point.iterate(step, baselines.START, p.feasible, 1e-8, 300)
        assert found.converged
        return found.x

    def scalar() -> np.ndarray:
        return baselines.scalar(options.nodes)[0]

    def batch() -> np.ndarray:
        return baselines.numpy_batch(options.numpy_nodes)[0]

    runs = {"engine": engine, "iteration": iteration, "scalar baseline": scalar}
    ends = {name: run() for name, run in runs.items()}  # warm-up: compiles, loads, checks
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.repeat):
        for name, run in runs.items():
            clock = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - clock)
    clock = time.perf_counter()
    ends["NumPy baseline"] = batch()
    scaled = (time.perf_counter() - clock) * options.nodes / options.numpy_nodes
    medians = {name: statistics.median(t) for name, t in times.items()}
    medians["NumPy baseline"] = scaled
    result = {
        "nodes": options.nodes, "numpy_baseline_nodes": options.numpy_nodes,
        "threads": options.threads or os.cpu_count(), "machine": platform.machine(),
        "median_seconds": medians, "all_seconds": times,
        "ratio_to_iteration": {n: t / medians["iteration"] for n, t in medians.items()},
        "order_parameters": {n: list(map(float, x)) for n, x in ends.items()},
    }
    print(f"{'':18s}{'median s':>10s}{'ratio':>8s}   m_k, q_k, m_v, q_v")
    for name, seconds in medians.items():
        x = ends[name]
        print(f"{name:18s}{seconds:10.3f}{seconds / medians['iteration']:8.1f}   "
              + ", ".join(f"{x[i]:.5f}" for i in (0, 1, 3, 4)))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as stream:
            json.dump(result, stream, indent=2)


if __name__ == "__main__":
    main()
