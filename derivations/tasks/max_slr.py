"""max-SLR: ``g = L exp(nu chi*_eps)/sum_l exp(nu chi*_l)``; at ``nu = oo`` the arg-max."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from replica.model import SIGNAL, Array, Sector
from replica.normals import standard_normal
from replica.symbolic.tokens import LENGTH, RELEVANT, TokenWeights, index


@dataclass(frozen=True)
class MaxLaw:
    """Tokens are plain Gaussian; the relevant one is drawn from them and swapped to the front."""

    key: Sector
    value: Sector
    strongest: bool = False

    def dimension(self, length: int, sectors: Collection[str]) -> int:
        choice = 1 if self.key.name in sectors and not self.strongest else 0
        return length * len(sectors) + choice

    def teacher_fields(
        self, uniforms: Array, length: int, values: Mapping[str, float], sectors: Collection[str]
    ) -> dict[str, Array]:
        found = {}
        if self.key.name in sectors:
            found[self.key.name] = self._key(uniforms, length, values)
        if self.value.name in sectors:
            # after the key's tokens; the last uniform, if any, chooses the relevant token
            start = length if self.key.name in sectors else 0
            scale = np.sqrt(self.value.variance(values))
            found[self.value.name] = scale * standard_normal(uniforms[start : start + length])
        return found

    def _key(self, uniforms: Array, length: int, values: Mapping[str, float]) -> Array:
        scale = np.sqrt(self.key.variance(values))
        key: Array = scale * standard_normal(uniforms[:length])
        if self.strongest:
            chosen = np.argmax(key, axis=0)
        else:
            scores = values["nu"] * (key - key.max(axis=0))
            cumulative = np.cumsum(np.exp(scores), axis=0)
            threshold = uniforms[-1] * cumulative[-1]
            chosen = np.minimum((cumulative < threshold).sum(axis=0), length - 1)
        columns = np.arange(key.shape[1])
        first = key[0].copy()
        key[0] = key[chosen, columns]
        key[chosen, columns] = np.where(chosen == 0, key[0], first)
        return key

    def smoothed_weight(
        self, omega: Array, width: float, values: Mapping[str, float]
    ) -> tuple[Array, Array]:
        """``log G`` and its score for fields known up to normals of standard deviation ``width``.

        The relevant token has the largest ``chi_l + Gumbel/nu``. With ``F`` the distribution
        function of ``width t + Gumbel/nu``, which at ``nu = oo`` is a normal's,
        ``G_l/L = int dw F'(w - omega_l) prod_{m != l} F(w - omega_m)``: one smooth integral, for
        which the trapezoidal rule converges exponentially.
        """
        length = len(omega)
        signal = np.inf if self.strongest else values["nu"]
        distribution = _Distribution(width, signal)
        gaps = omega - omega.max(axis=0)
        score = np.zeros((length, length, omega.shape[1]))
        total = np.zeros((length, omega.shape[1]))
        for w in distribution.points:
            F, slope = distribution(w - gaps)
            ratio = slope / F
            below = np.prod(F, axis=0)
            terms = below * ratio
            total += terms
            score -= terms[:, None] * ratio[None, :]
        h = distribution.spacing
        rows = np.arange(length)
        total *= h
        score *= h
        score[rows, rows] = 0.0
        score[rows, rows] = -score.sum(axis=1)
        total = np.maximum(total, 1e-280)  # a token far behind: no weight, any score will do
        return np.log(length * total), score / total[:, None]


class _Distribution:
    """``F`` and its density, and points at which ``int dw`` is summed."""

    def __init__(self, width: float, signal: float) -> None:
        self.width, self.signal = width, signal
        gumbel = 0.0 if np.isinf(signal) else 1.0 / max(signal, 1e-6)
        spread = np.sqrt(width**2 + 1.6 * gumbel**2)
        self.spacing = (0.42 if gumbel else 0.35) * spread
        lowest = -(7.0 * width + 4.0 * gumbel)
        highest = 7.0 * width + 22.0 * gumbel
        self.points = np.arange(lowest, highest + self.spacing, self.spacing)
        self.table: Any = None
        if gumbel:
            self._tabulate(gumbel, lowest, highest)

    def _tabulate(self, gumbel: float, lowest: float, highest: float) -> None:
        """A cubic spline of ``log F`` where ``F`` averages over both kinds of noise."""
        from scipy.interpolate import CubicSpline

        step = min(0.2, 0.3 * gumbel / self.width)
        t = np.arange(-9.0, 9.0 + step, step)
        mass = np.exp(-0.5 * t * t)
        mass /= mass.sum()
        grid = np.linspace(lowest, highest - lowest, 3000)
        log_f = np.empty_like(grid)
        for i, w in enumerate(grid):
            exponent = np.log(mass) - np.exp(np.minimum(700.0, -(w - self.width * t) / gumbel))
            top = exponent.max()
            log_f[i] = top + np.log(np.exp(exponent - top).sum())
        self.table = CubicSpline(grid, log_f).c
        self.first, self.step = grid[0], grid[1] - grid[0]

    def __call__(self, w: Array) -> tuple[Array, Array]:
        if self.table is None:
            from scipy.special import ndtr

            x = w / self.width
            density = np.exp(-0.5 * x * x) / (np.sqrt(2 * np.pi) * self.width)
            return np.maximum(ndtr(x), 1e-300), density
        place = (w - self.first) / self.step
        cell = np.minimum(place.astype(np.int64), self.table.shape[1] - 1)
        x = np.minimum(place - cell, 1.0) * self.step
        a, b, c, d = (row[cell] for row in self.table)
        F = np.exp(((a * x + b) * x + c) * x + d)
        return F, F * ((3.0 * a * x + 2.0 * b) * x + c)


def build(key: Sector, value: Sector, *, strongest: bool = False) -> tuple[MaxLaw, sp.Expr]:
    """The law and ``log g``; at ``nu = oo`` the weight has no density and is left at 0."""
    if strongest:
        return MaxLaw(key, value, strongest=True), sp.S.Zero
    i = index("i")
    weight = TokenWeights(SIGNAL * key.teacher(i), i, RELEVANT)
    return MaxLaw(key, value), sp.log(LENGTH * weight)
