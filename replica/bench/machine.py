"""What the machine can do: memory bandwidth and the cost of each operation, one thread."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from replica.codegen.c_compiler import compile_c
from replica.codegen.kernel_source import LANES, cpu_platform

OPERATIONS = {
    "arithmetic": "x = x * a + a;", "division": "x = a / x;", "sqrt": "x = rp_sqrt(x + a);",
    "exp": "x = rp_exp(x);", "log": "x = rp_log(x + a);", "erfc": "x = rp_erfc(x);",
    "softplus_score": "x = rp_softplus_score(x);", "log_softplus": "x = rp_log_softplus(x);",
}
CHAINS = 8
"""Independent chains, so that latency hides."""
ROUNDS = 20000
BYTES = 2**27


@dataclass(frozen=True)
class Machine:
    """``seconds``: per operation and lane; ``bandwidth``: bytes per second of a triad."""

    seconds: Mapping[str, float]
    bandwidth: float


def measure_machine() -> Machine | None:
    """Time every operation in vector code; ``None`` without a compiler."""
    functions = []
    for name, statement in OPERATIONS.items():
        body = "\n".join(
            f"        {{ real x = v[{c}]; {statement} v[{c}] = x; }}" for c in range(CHAINS)
        )
        functions.append(
            f"void run_{name}(int rounds, double *out) {{\n"
            f"    real v[{CHAINS}]; const real a = rp_splat(out[0]);\n"
            f"    for (int c = 0; c < {CHAINS}; ++c) v[c] = rp_splat(0.3 + 0.01 * c);\n"
            f"    for (int r = 0; r < rounds; ++r) {{\n{body}\n    }}\n"
            f"    real s = v[0]; for (int c = 1; c < {CHAINS}; ++c) s = s + v[c];\n"
            "    out[1] = rp_total(s);\n}\n"
        )
    functions.append(
        "void triad(long n, double *a, const double *b, const double *c) {\n"
        "    for (long i = 0; i < n; ++i) a[i] = b[i] + 3.0 * c[i];\n}\n"
    )
    library = compile_c(cpu_platform() + "\n" + "\n".join(functions))
    if library is None:
        return None
    out = np.array([0.4, 0.0])
    pointer = out.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    seconds = {}
    for name in OPERATIONS:
        run = getattr(library, f"run_{name}")
        best = fastest(lambda run=run: run(ctypes.c_int(ROUNDS), pointer))  # type: ignore[misc]
        seconds[name] = best / (ROUNDS * CHAINS * LANES)
    count = BYTES // 8
    arrays = [np.ones(count) for _ in range(3)]
    pointers = [a.ctypes.data_as(ctypes.POINTER(ctypes.c_double)) for a in arrays]
    best = fastest(lambda: library.triad(ctypes.c_long(count), *pointers))
    return Machine(seconds, 3 * BYTES / best)


def fastest(run: Callable[[], object], repeat: int = 5) -> float:
    """Least wall time of several runs, seconds."""
    best = float("inf")
    for _ in range(repeat):
        clock = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - clock)
    return best
