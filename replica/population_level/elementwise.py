"""Element-wise attention: averages over a single token."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from replica.model import Array
from replica.population_level.law import RelevantDensity
from replica.population_level.moments import Moments

Sigma = Callable[[Array], Array]
REACH = 11.0
FIRST = 0.25
LEVELS = 9
TOLERANCE = 1e-13


def normal_mean(f: Sigma, centre: float, spread: float, tolerance: float = TOLERANCE) -> float:
    """``E f(x)``, ``x ~ normal(centre, spread^2)``, by the trapezoidal rule, spacing halved until
    it no longer changes."""
    if spread == 0:
        return float(f(np.array([centre]))[0])
    h, last = 2 * FIRST, math.inf
    for _ in range(LEVELS):
        h /= 2
        half = math.ceil(REACH / h)
        u = h * np.arange(-half, half + 1, dtype=np.float64)
        now = float(np.sum(f(centre + spread * u) * np.exp(-0.5 * u * u))) * h
        now /= math.sqrt(2 * math.pi)
        if abs(now - last) <= tolerance * max(1.0, abs(now)):
            return now
        last = now
    return last


def elementwise_moments(
    sigma: Sigma, density: RelevantDensity, m: float, q: float, length: int
) -> Moments:
    """``E sigma_eps`` and ``E sum_l sigma_l^2`` at key overlaps ``m, q``; ``m^2 <= q rho``."""
    law, rho = density.law, density.rho
    spread = math.sqrt(q)

    def square(x: Array) -> Array:
        return np.asarray(sigma(x) ** 2)

    plain = normal_mean(square, 0.0, spread)
    if law.kind == "tilted":
        centre = m * float(law.tilt)
        s1 = normal_mean(sigma, centre, spread)
        return Moments(s1, normal_mean(square, centre, spread) + (length - 1) * plain)
    slope, noise = m / rho, math.sqrt(max(q - m * m / rho, 0.0))
    root = math.sqrt(rho)

    def at_score(u: Array) -> Array:
        relevant = density(root * u, length)
        if noise < 1e-12 * spread:
            return np.asarray(relevant * sigma(slope * root * u))
        v = 0.25 * np.arange(-36, 37)
        mass = 0.25 * np.exp(-0.5 * v * v) / math.sqrt(2 * math.pi)
        return np.asarray(relevant * (sigma(slope * root * u[:, None] + noise * v) @ mass))

    return Moments(normal_mean(at_score, 0.0, 1.0), length * plain)
