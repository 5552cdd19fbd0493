"""Accelerated fixed-point iteration with feasibility kept at every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from replica.model import Array

DEPTH = 6
FARTHEST = 20.0
"""Extrapolations beyond this many times the point's size are not taken."""


@dataclass(frozen=True)
class Iteration:
    """Outcome: the last point, its undamped residual and how it ended.

    ``message`` is empty when converged; otherwise it names a cycle or the lack of convergence.
    """

    x: Array
    residual: float
    converged: bool
    sweeps: int
    message: str


def relative_residual(x: Array, fx: Array) -> float:
    """``max |x - F(x)|/max(1, |x|)``."""
    return float(np.max(np.abs(x - fx) / np.maximum(1.0, np.abs(x))))


def iterate(
    step: Callable[[Array, float], Array],
    start: Array,
    feasible: Callable[[Array], bool],
    tolerance: float,
    max_sweeps: int,
    mixing: float = 1.0,
    precondition: Array | None = None,
    ahead: float | None = None,
) -> Iteration:
    """Find ``x = F(x)`` by Anderson acceleration.

    Parameters
    ----------
    step
        ``step(x, inner_tolerance)`` evaluates ``F``, undamped.
    feasible
        Whether a point may be visited; infeasible proposals are replaced by a damped step.
    mixing
        Below 1 the accelerated map is ``x + mixing (F(x) - x)``, for maps that throw the plain
        iteration far away. The residual is that of ``F`` all the same.
    precondition
        An approximate ``(1 - F')^-1``; with it the map is a Newton step, and the first steps are
        taken with accurate averages.
    ahead
        Stop already at ``ahead`` times the tolerance, at the point of the next step; the caller
        evaluates the residual there.
    """
    x = start.copy()
    points: list[Array] = []
    images: list[Array] = []
    residuals: list[float] = []
    best = np.inf
    damping = 1.0
    finest = max(1e-2 * tolerance, 1e-11)
    inner = 1e-4
    sweeps = 0
    slope = np.eye(len(x)) * mixing if precondition is None else precondition
    while sweeps < max_sweeps:
        fx = step(x, inner)
        sweeps += 1
        if not np.all(np.isfinite(fx)):
            if not points:
                return Iteration(x, float("inf"), False, sweeps, "the map is not finite")
            x = 0.5 * (x + points[-1])
            points, images = points[-1:], images[-1:]
            continue
        residual = relative_residual(x, fx)
        residuals.append(residual)
        if residual <= tolerance and ahead is None:
            if inner <= finest * 1.0001:
                return Iteration(x, residual, True, sweeps, "")
            inner = finest  # confirm with accurate minimisers
            continue
        expected = residual if precondition is None else 1e-2 * residual
        inner = float(np.clip(1e-2 * expected, finest, 1e-4))
        if residual > 4.0 * best:  # the acceleration went astray: forget its history
            points, images = [], []
            damping = max(0.5 * damping, 0.1)
        best = min(best, residual)
        points.append(x)
        images.append(x + slope @ (fx - x))
        points, images = points[-DEPTH:], images[-DEPTH:]
        close = ahead is not None and residual <= ahead * tolerance
        x = _propose(points, images, feasible, damping, 0.7 if precondition is None else 1.0)
        if close:
            return Iteration(x, residual, True, sweeps, "")
    return Iteration(x, residuals[-1] if residuals else float("inf"), False, sweeps,
                     _diagnose(residuals))


def _propose(
    points: list[Array], images: list[Array], feasible: Callable[[Array], bool], damping: float,
    first: float,
) -> Array:
    scale = np.maximum(0.1, np.abs(images[-1]))
    if len(points) > 1:
        gaps = np.array([(f - p) / scale for f, p in zip(images, points, strict=True)])
        difference = (gaps[1:] - gaps[:-1]).T
        weights, *_ = np.linalg.lstsq(difference, gaps[-1], rcond=1e-10)
        moved = images[-1] - np.diff(np.array(images), axis=0).T @ weights
        back = points[-1] - np.diff(np.array(points), axis=0).T @ weights
        proposal = damping * moved + (1.0 - damping) * back
        far = float(np.max(np.abs(proposal - images[-1]) / scale)) > FARTHEST
        if feasible(proposal) and not far:
            return np.asarray(proposal)
    share = damping if len(points) > 1 else first
    for _ in range(40):
        proposal = share * images[-1] + (1.0 - share) * points[-1]
        if feasible(proposal):
            return np.asarray(proposal)
        share *= 0.5
    return points[-1].copy()


def _diagnose(residuals: list[float]) -> str:
    tail = residuals[-10:]
    if len(tail) == 10 and min(tail) > 0.3 * max(tail):
        return f"the iteration cycles with residual {max(tail):.1e}"
    return f"not converged: residual {residuals[-1]:.1e}" if residuals else "no sweep was made"
