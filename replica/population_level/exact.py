"""The same quadratures with as many digits as asked, by mpmath, certified by two spacings.

The trapezoidal rule's error falls exponentially with the spacing, so that two results that agree to
``N`` digits at spacings a factor 1.3 apart are good to ``N`` digits at the finer one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import mpmath as mp
import numpy as np

from replica.errors import ReplicaError

GUARD = 8
"""Digits carried beyond those asked for."""
FINER = 1.3
ATTEMPTS = 6
START = 1.4

Score = Callable[[Any], Any]


def certified(evaluate: Callable[[float], Any], digits: int, spacing: float) -> Any:
    """``evaluate(spacing)`` at spacings reduced until ``digits`` digits stand.

    Raises ``ReplicaError`` where they do not after a few attempts.
    """
    spacing *= START
    last = evaluate(spacing)
    for _ in range(ATTEMPTS):
        spacing /= FINER
        now = evaluate(spacing)
        if abs(now - last) <= abs(now) * mp.mpf(10) ** -(digits + 1):
            return now
        last = now
    raise ReplicaError(f"{digits} digits were not reached: is the activation smooth?")


def first_spacing(digits: int) -> float:
    """Spacing at which ``exp(-pi^2/h)``, the error for kernels analytic to ``pi/2``, is small."""
    return math.pi**2 / (math.log(10) * (digits + GUARD))


def _normal_points(reach: float, h: float) -> tuple[list[Any], list[Any]]:
    step = mp.mpf(h)
    half = math.ceil(reach / h)
    points = [step * i for i in range(-half, half + 1)]
    scale = step / mp.sqrt(2 * mp.pi)
    return points, [scale * mp.exp(-u * u / 2) for u in points]


def normal_average(f: Score, centre: Any, spread: Any, digits: int) -> Any:
    """``E f(x)`` of a normal ``x``."""
    reach = math.sqrt(2 * math.log(10) * (digits + GUARD)) + 1.0

    def at(h: float) -> Any:
        u, mass = _normal_points(reach, h)
        return mp.fdot(mass, [f(centre + spread * x) for x in u])

    start = min(2 * first_spacing(digits), first_spacing(digits) / max(float(spread), 0.25))
    return certified(at, digits, start)


def largest_average(f: Score, slope: Any, length: int, digits: int) -> Any:
    """``E f(slope x)`` for the largest ``x`` of ``length`` standard normals."""
    def weighted(u: Any) -> Any:
        return length * mp.ncdf(u) ** (length - 1) * f(slope * u)

    return normal_average(weighted, mp.mpf(0), mp.mpf(1), digits)


def two_tokens(centre: Any, spread: Any, digits: int) -> tuple[Any, Any]:
    """The same for softmax over two tokens: the difference of the scores alone matters.

    ``centre, spread`` are its mean and standard deviation.
    """
    def missed(x: Any) -> Any:
        return 1 / (1 + mp.exp(x))

    def square(x: Any) -> Any:
        return missed(x) ** 2

    return (normal_average(missed, centre, spread, digits),
            2 * normal_average(square, centre, spread, digits))


def normalised_pair(
    log_weight: Score, relevant: tuple[Any, Any], other: tuple[Any, Any], length: int, digits: int,
    spacing: float,
) -> tuple[Any, Any]:
    """``E(1 - sigma_eps)`` and ``E|e_eps - sigma|^2`` of normalised attention at one spacing.

    ``relevant`` and ``other`` are (mean, standard deviation) of a score. See
    :mod:`replica.population_level.independent` for the integral.
    """
    if length == 1:
        return mp.mpf(0), mp.mpf(0)
    depth = math.log(10) * (digits + GUARD)
    reach = math.sqrt(2 * depth) + 1.0 + float(abs(relevant[0] - other[0]) / relevant[1])
    sides = []
    for mean, spread in (relevant, other):
        u, mass = _normal_points(reach, min(2 * spacing, spacing / float(spread)))
        w = [mp.exp(log_weight(mean + spread * x)) for x in u]
        sides.append((w, mass))
    logs = [
        (np.array([float(mp.log(x)) for x in w]), np.array([float(mp.log(p)) for p in mass]))
        for w, mass in sides
    ]
    rough = np.concatenate([logs[0][0], logs[1][0]])
    tau, end = -float(rough.max()) - depth - 3.0, -float(rough.min()) + math.log(depth) + 1.0
    grid = spacing * np.arange(math.floor(tau / spacing), math.ceil(end / spacing))
    sizes = [_row_sizes(side, grid) for side in logs]
    total = (length - 1) * np.minimum(sizes[1], 0.0) + sizes[0] + grid
    keep = total > total.max() - depth - 4 * math.log(10)
    n = length - 1
    miss, apart = [], []
    for row in grid[keep]:
        t = _exactly(row, spacing)
        a0, _, _ = _sums(sides[0], logs[0], t, float(row), depth)
        b, c1, c2 = _sums(sides[1], logs[1], t, float(row), depth)
        miss.append(t * n * a0 * c1 * b ** (n - 1))
        same = 2 * n * c2 * b ** (n - 1)
        if n > 1:
            same += n * (n - 1) * c1 * c1 * b ** (n - 2)
        apart.append(t * t * a0 * same)
    step = mp.mpf(spacing)
    return step * mp.fsum(miss), step * mp.fsum(apart)


def _exactly(tau: Any, spacing: float) -> Any:
    """``e^tau`` at the multiple of the spacing that the double ``tau`` stands for: rows that are
    equally spaced to double precision alone would cost the rule its accuracy."""
    return mp.exp(mp.mpf(spacing) * round(float(tau) / spacing))


def _row_sizes(side: tuple[Any, Any], grid: Any) -> Any:
    """``log E e^(-t w)`` in doubles, to see which rows matter."""
    w, mass = side
    found = np.empty(len(grid))
    for i, row in enumerate(grid):
        terms = mass - np.exp(np.minimum(row + w, 700.0))
        found[i] = terms.max()
    return found


def _sums(
    side: tuple[list[Any], list[Any]], logs: tuple[Any, Any], t: Any, row: float, depth: float
) -> tuple[Any, Any, Any]:
    """``E w^j e^(-t w)``, ``j = 0, 1, 2``, terms too small to show left out."""
    w, mass = side
    terms = logs[1] - np.exp(np.minimum(row + logs[0], 700.0))
    need = np.zeros(len(w), dtype=bool)
    for j in range(3):
        sized = terms + j * logs[0]
        need |= sized > sized.max() - depth
    here = np.flatnonzero(need)
    some = [w[i] for i in here]
    e = [mass[i] * mp.exp(-t * w[i]) for i in here]
    first = [x * y for x, y in zip(e, some, strict=True)]
    return mp.fsum(e), mp.fsum(first), mp.fdot(first, some)


def posterior_excess(
    exponent: Score, spread: Any, length: int, digits: int, spacing: float
) -> Any:
    """``1 - E sum_l p_l^2``, ``p = softmax(exponent)`` over plain tokens of standard deviation
    ``spread``."""
    if length == 1:
        return mp.mpf(0)
    depth = math.log(10) * (digits + GUARD)
    u, mass = _normal_points(math.sqrt(2 * depth) + 1.0, spacing)
    w = [mp.exp(exponent(spread * x)) for x in u]
    logs = (np.array([float(mp.log(x)) for x in w]), np.array([float(mp.log(p)) for p in mass]))
    low = -float(logs[0].max()) - depth - 3.0
    high = -float(logs[0].min()) + math.log(depth) + 1.0
    grid = spacing * np.arange(math.floor(low / spacing), math.ceil(high / spacing))
    terms = []
    for row in grid:
        t = _exactly(row, spacing)
        b, c1, _ = _sums((w, mass), logs, t, float(row), depth)
        terms.append(t * t * length * (length - 1) * c1 * c1 * b ** (length - 2))
    return mp.mpf(spacing) * mp.fsum(terms)


def mixed(parts: Mapping[int, Any], lengths: Mapping[int, Any]) -> Any:
    """Average over lengths."""
    return mp.fsum(lengths[k] * parts[k] for k in lengths)
