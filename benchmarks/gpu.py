"""Figures from a CUDA device: saddle points, FP64 rate, simulation bandwidth.

    python benchmarks/gpu.py --json FILE [--nodes 16777216] [--dimension 20000]

Softmax, spiked, nu = 2, L = 3, alpha = 2, r = 0.5, noise 0.1. Nodes are drawn on the host and moved
once, outside the times.
"""

from __future__ import annotations

import argparse
import json
import math
import time

import numpy as np

from replica.api import derive
from replica.bench.measure import ALPHA, LENGTHS, VALUES
from replica.bench.operations import count_step
from replica.codegen.cuda import find_device
from replica.codegen.kernel_source import cuda_platform
from replica.saddle_point.solve import SaddlePointProblem, SolverOptions

PEAK = r"""
extern "C" __global__ void peak(double *out, int rounds) {
    double a = 1.0 + 1e-9 * threadIdx.x, b = 0.5, c = 0.25, d = 0.125;
    const double m = 0.999999, s = 1e-7;
    for (int r = 0; r < rounds; ++r) {
        a = a * m + s; b = b * m + s; c = c * m + s; d = d * m + s;
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d;
}
"""


def timed(xp, run, repeat=5):
    best = math.inf
    for _ in range(repeat):
        xp.cuda.Device().synchronize()
        clock = time.perf_counter()
        run()
        xp.cuda.Device().synchronize()
        best = min(best, time.perf_counter() - clock)
    return best


def peak_rate(device):
    """Measured FP64 multiply-adds per second, counted as two operations."""
    xp, blocks, threads, rounds = device.xp, 132 * 16, 256, 4096
    module = device.compile(cuda_platform(1) + PEAK)
    out = xp.empty(blocks * threads)

    def run():
        device.launch(module, "peak", blocks, threads, [out, np.int32(rounds)])

    run()
    return 8.0 * rounds * blocks * threads / timed(xp, run)


def copy_bandwidth(xp):
    a = xp.ones(2**28)
    b = xp.empty_like(a)

    def run():
        b[...] = a

    return 2 * a.nbytes / timed(xp, run)


def saddle_points(device, most):
    rows = []
    kernels = None
    for nodes in sorted({2**17, 2**20, most}):
        p = SaddlePointProblem(
            derive("softmax"), VALUES, LENGTHS, SolverOptions(nodes=nodes, backend="cuda"), kernels
        )
        kernels = p.kernels
        clock = time.perf_counter()
        engine = p.engine  # draws and moves the nodes
        setup = time.perf_counter() - clock
        p.solve(ALPHA)  # compiles
        for s in (*engine.state, *p.coarse.engine.state):
            s[...] = 0.0
        clock = time.perf_counter()
        s = p.solve(ALPHA)
        rows.append({
            "nodes": s.nodes, "setup_seconds": setup, "solve_seconds": time.perf_counter() - clock,
            "test_error": s.test_error, "standard_error": s.standard_errors["test_error"],
            "residual": s.residual, "sweeps": s.sweeps, "converged": s.converged,
        })
    return rows, p, s


def kernel_rate(device, p, s):
    """One sweep after a small move of the overlaps: operations of the executed steps per second."""
    x = np.array(list(s.order_parameters.values()))
    there, moved = p.uniform(x, ALPHA), p.uniform(x * (1 + 1e-3), ALPHA)
    best, counted = math.inf, None
    for _ in range(5):
        p.engine.sweep(there, 1e-10, observe=False)
        device.xp.cuda.Device().synchronize()
        clock = time.perf_counter()
        counted = p.engine.sweep(moved, 1e-10, observe=False)
        best = min(best, time.perf_counter() - clock)
    counts = count_step(p.kernels.programs, 3)
    arithmetic = counts["arithmetic"] + 30 * counts["exp"] + 10 * counts["division"]
    return {
        "sweep_seconds": best, "executed_steps": counted.executed,
        "operations_per_second": counted.executed * arithmetic / best,
    }


def simulation(device, dimension, alpha=6.0, length=3):
    from cupyx.scipy import special

    from derivations.setting import make_setting
    from validation.device_data import draw_on_device, free_memory
    from validation.erm import TrainingProblem
    from validation.simulate import make_simulator

    while 8.0 * alpha * dimension**2 * length > 0.6 * free_memory(device):
        dimension //= 2
    setting = make_setting(
        activation="softmax", nu=2.0, length=length, task="spiked", reg=0.5, reg_k=None,
        reg_v=None, noise=0.1,
    )
    samples = round(alpha * dimension)
    clock = time.perf_counter()
    data = draw_on_device(device, "spiked", 2.0, {length: 1.0}, 0.1, dimension, samples, 0)
    device.xp.cuda.Device().synchronize()
    drawing = time.perf_counter() - clock
    loss = make_simulator(setting).loss.on(device.xp, special)
    problem = TrainingProblem(data, loss, setting.values(), 0.5, 0.5, device)
    weights = np.random.default_rng(0).normal(size=2 * dimension)
    problem.objective(weights)
    seconds = timed(device.xp, lambda: problem.objective(weights))
    moved = 2 * 8.0 * samples * length * dimension
    return {
        "dimension": dimension, "samples": samples, "drawing_seconds": drawing,
        "gradient_seconds": seconds, "bytes_per_second": moved / seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=2**24)
    parser.add_argument("--dimension", type=int, default=20000)
    parser.add_argument("--json", required=True)
    options = parser.parse_args()
    device, found = find_device()
    if device is None:
        raise SystemExit(f"no GPU: {found}")
    result = {"device": found, "fp64_peak": peak_rate(device),
              "copy_bandwidth": copy_bandwidth(device.xp)}

    def save():
        with open(options.json, "w", encoding="utf-8") as stream:
            json.dump(result, stream, indent=2)

    save()
    result["saddle_points"], p, s = saddle_points(device, options.nodes)
    save()
    result["kernel"] = kernel_rate(device, p, s)
    result["kernel"]["share_of_peak"] = (
        result["kernel"]["operations_per_second"] / result["fp64_peak"]
    )
    save()
    del p, s
    device.xp.get_default_memory_pool().free_all_blocks()
    result["simulation"] = simulation(device, options.dimension)
    result["simulation"]["share_of_bandwidth"] = (
        result["simulation"]["bytes_per_second"] / result["copy_bandwidth"]
    )
    save()
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
