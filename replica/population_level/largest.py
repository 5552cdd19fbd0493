"""Normalised attention where the relevant token has the largest score.

Given the largest score ``x`` the others are independent and below it, so with
``F(t, x) = int_(-oo)^x dc phi(c) E e^(-t w)`` the attention of the relevant token is
``int dt int dx L phi(x) E[w e^(-t w)] F(t, x)^(L-1)``; all scores together are plain.
"""

from __future__ import annotations

import math

import numpy as np

from replica.model import Array
from replica.population_level.independent import DEPTH, Averages, LogWeight, Token, logsumexp
from replica.population_level.moments import Moments

PANELS = 24
PER_SPREAD = 8
ORDER = 12
REACH = 9.0


def _panels(panels: int) -> tuple[Array, Array, Array]:
    """Points, weights, and the matrix of integrals from a panel's start to its points."""
    x, w = np.polynomial.legendre.leggauss(ORDER)
    vander = np.polynomial.legendre.legvander(x, ORDER - 1)
    integrals = np.stack([
        np.polynomial.legendre.legval(
            x, np.polynomial.legendre.legint(np.eye(ORDER)[n], lbnd=-1)
        ) for n in range(ORDER)
    ], axis=1)
    half = REACH / panels
    centres = -REACH + half * (2 * np.arange(panels) + 1)
    points = (centres[:, None] + half * x).ravel()
    return points, np.tile(half * w, panels), half * integrals @ np.linalg.inv(vander)


def largest_moments(
    log_weight: LogWeight, m: float, q: float, length: int, rho: float, fine: int = 1
) -> Moments:
    """Moments at key overlaps ``m, q``. ``fine`` multiplies the number of points."""
    if length == 1:
        return Moments.certain()
    # the attention changes over scores of order one: narrow in units of a wide spread
    panels, spacing = fine * max(PANELS, math.ceil(PER_SPREAD * math.sqrt(q))), 0.25 / fine
    c, weight, inside = _panels(panels)
    root = math.sqrt(rho)
    noise = math.sqrt(max(q - m * m / rho, 0.0))
    few = noise < 1e-12 * math.sqrt(q)
    u = np.zeros(1) if few else 0.25 * np.arange(-36, 37)
    mass = np.zeros(1) if few else -0.5 * u * u + math.log(0.25 / math.sqrt(2 * math.pi))
    w = log_weight((m / rho) * root * c[:, None] + noise * u)
    tau = np.arange(-float(w.max()) - DEPTH, -float(w.min()) + 4.0, spacing)
    density = np.exp(-0.5 * c * c) / math.sqrt(2 * math.pi)
    s1 = 0.0
    for t in tau:
        terms = mass + w - np.exp(np.minimum(t + w, 700.0))
        zero = density * np.exp(logsumexp(terms - w))
        one = density * np.exp(logsumexp(terms) + t)
        local = zero.reshape(panels, ORDER)
        ends = np.concatenate([[0.0], np.cumsum(local @ weight[:ORDER])[:-1]])
        below = (ends[:, None] + local @ inside.T).ravel()
        s1 += spacing * length * float(weight @ (one * np.maximum(below, 0.0) ** (length - 1)))
    # all tokens: the plain law
    plain = Averages(log_weight, Token(0.0, math.sqrt(q)), 11.0, spacing)
    grid = np.arange(-float(plain.w.max()) - DEPTH - 5, -float(plain.w.min()) + 5.0, spacing)
    squares = logsumexp(2 * grid + plain(grid, 2) + (length - 1) * plain(grid, 0))
    return Moments(s1, length * math.exp(squares) * spacing)
