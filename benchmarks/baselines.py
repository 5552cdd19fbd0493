"""Plain implementations of one saddle point (softmax, spiked data), as a person writes them.

They share nothing with the engine but SciPy's Sobol points and the stopping rule. Frozen.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

NU, L, ALPHA, R, NOISE = 2.0, 3, 2.0, 0.5, 0.1
DOUBLES = ctypes.POINTER(ctypes.c_double)


def nodes(count: int, seed: int = 0):
    """``(zk, zv, xi)``: standard normals of shape (count, L), (count, L), (count,)."""
    power = int(np.log2(count))
    u = qmc.Sobol(2 * L + 1, rng=np.random.default_rng(seed)).random_base2(power)
    z = ndtri(np.clip(u, 2.0**-54, 1 - 2.0**-53))
    return (np.ascontiguousarray(z[:, :L]), np.ascontiguousarray(z[:, L : 2 * L]),
            np.ascontiguousarray(z[:, 2 * L]))


def closed(means, x):
    """Overlaps from the six averages at the overlaps ``x``: theory of the saddle point."""
    m_k, q_k, _, m_v, q_v, _ = x
    mh_k = ALPHA * np.sqrt(NU) * means[0]
    Vh_k = (m_k * mh_k - ALPHA * means[1]) / q_k
    mh_v = ALPHA * means[3] / (q_v * (1 + NOISE**2) - m_v**2)
    Vh_v = (m_v * mh_v - ALPHA * means[4]) / q_v
    out = []
    for mh, Vh, qh in ((mh_k, Vh_k, ALPHA * means[2]), (mh_v, Vh_v, ALPHA * means[5])):
        V = 1 / (R + Vh)
        out += [mh * V, (mh**2 + qh) * V**2, V]
    return np.array(out)


START = np.array([0.5, 0.6, 1.0, 0.5, 0.6, 1.0])


def scalar(count: int, tolerance: float = 1e-8):
    """One node at a time in C: warm starts, Anderson acceleration of the six overlaps."""
    source = Path(__file__).with_name("scalar_baseline.c")
    with tempfile.TemporaryDirectory() as work:
        library = Path(work) / "b.so"
        subprocess.run(["cc", "-O3", "-march=native", "-shared", "-fPIC", "-o", str(library),
                        str(source), "-lm"], check=True)
        sweep = ctypes.CDLL(str(library)).baseline_sweep
    zk, zv, xi = nodes(count)
    state = np.zeros((count, L))

    def step(x, inner):
        sums = np.zeros(6)
        c = ctypes.c_double
        sweep(ctypes.c_int64(0), ctypes.c_int64(count), ctypes.c_int(L),
              *(a.ctypes.data_as(DOUBLES) for a in (zk, zv, xi)), *(c(v) for v in x),
              c(np.sqrt(NU)), c(NOISE), c(inner), state.ctypes.data_as(DOUBLES),
              sums.ctypes.data_as(DOUBLES))
        return closed(sums / count, x)

    return anderson(step, tolerance)


def anderson(step, tolerance, depth=5):
    """Anderson acceleration until the undamped residual is below the tolerance."""
    x, xs, fs, inner = START.copy(), [], [], 1e-4
    for sweeps in range(1, 500):
        fx = step(x, inner)
        residual = np.max(np.abs(x - fx) / np.maximum(1, np.abs(x)))
        if residual < tolerance and inner <= 1e-2 * tolerance * 1.0001:
            return x, sweeps
        inner = max(1e-2 * tolerance, min(1e-4, 1e-2 * residual))
        xs.append(x)
        fs.append(fx)
        xs, fs = xs[-depth:], fs[-depth:]
        if len(xs) > 1:
            gaps = np.array(fs) - np.array(xs)
            w, *_ = np.linalg.lstsq(np.diff(gaps, axis=0).T, gaps[-1], rcond=1e-10)
            x = fs[-1] - np.diff(np.array(fs), axis=0).T @ w
            if np.all(x[[1, 2, 4, 5]] > 0) and x[0] ** 2 < x[1] and x[3] ** 2 < x[4]:
                continue
        x = 0.5 * (xs[-1] + fs[-1])
    raise RuntimeError("the baseline did not converge")


def numpy_batch(count: int, tolerance: float = 1e-8, damping: float = 0.5):
    """All nodes at once in NumPy: gradient steps on the whole batch, damped fixed point."""
    zk, zv, xi = nodes(count)
    x = START.copy()
    for sweeps in range(1, 500):
        m_k, q_k, V_k, m_v, q_v, V_v = x
        wk = np.sqrt(q_k) * zk + np.array([m_k * np.sqrt(NU), 0, 0])
        wv = np.sqrt(q_v) * zv
        y = m_v / q_v * wv[:, 0] + np.sqrt(1 - m_v**2 / q_v + NOISE**2) * xi
        chi = wk.copy()
        rate = np.full(count, V_k)
        for _ in range(3000):
            e = np.exp(chi - chi.max(axis=1, keepdims=True))
            s = e / e.sum(axis=1, keepdims=True)
            a, b = (s * wv).sum(axis=1), (s * s).sum(axis=1)
            rho, D = y - a, 1 + V_v * b
            slope = s * ((wv - a[:, None]) + V_v * (rho / D)[:, None] * (s - b[:, None]))
            g = (chi - wk) / V_k - (rho / D)[:, None] * slope
            if np.abs(g).max() < 1e-2 * tolerance:
                break
            square = (slope**2).sum(axis=1) / D
            rate = V_k / (1 + V_k * square)
            chi = chi - 0.7 * rate[:, None] * g
        f_k = (chi - wk) / V_k
        f_v = s * (rho / D)[:, None]
        means = [f_k[:, 0].mean(), (f_k * wk).sum(axis=1).mean(), (f_k**2).sum(axis=1).mean(),
                 (f_v[:, 0] * (q_v * y - m_v * wv[:, 0])).mean(), (f_v * wv).sum(axis=1).mean(),
                 (f_v**2).sum(axis=1).mean()]
        fx = closed(means, x)
        if np.max(np.abs(x - fx) / np.maximum(1, np.abs(x))) < tolerance:
            return x, sweeps
        x = (1 - damping) * x + damping * fx
    raise RuntimeError("the baseline did not converge")


__all__ = ["nodes", "numpy_batch", "scalar"]
