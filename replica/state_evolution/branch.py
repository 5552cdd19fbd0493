"""The curve of all fixed points, through its folds, and the transitions on it.

The conjugates are proportional to ``alpha``. At given ``q_v`` the two equations therefore fix
``q_k`` (their ratio) and then ``alpha``: the curve ``alpha(q_v)`` is followed without iterating
the map, stable or not. Where several fixed points share an ``alpha`` the curve folds back; its
extrema are the spinodals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from replica.model import Array
from replica.state_evolution.evolution import StateEvolution, block_error

LOWEST, HIGHEST, SPACING = -6.0, 16.0, 0.2
"""Range and spacing of ``logit(q_v)``."""


@dataclass(frozen=True)
class Place:
    """A fixed point on the curve: overlaps, ``alpha`` and the spread of ``log alpha``."""

    u: float
    q: Array
    alpha: float
    log_alpha_error: float


@dataclass(frozen=True)
class Transition:
    """A value of ``alpha`` and its standard error."""

    alpha: float
    standard_error: float

    def document(self) -> dict[str, float]:
        return {"alpha": self.alpha, "standard_error": self.standard_error}


@dataclass(frozen=True)
class Thresholds:
    """Transitions in ``alpha``: ``None`` where there is a single fixed point at every ``alpha``.

    spinodal_informed
        Below it the informative fixed point does not exist.
    information_theoretic
        The free entropies of the two branches cross.
    spinodal_uninformed
        Above it the uninformed branch does not exist: algorithms that start from nothing succeed.
    """

    spinodal_informed: Transition | None
    information_theoretic: Transition | None
    spinodal_uninformed: Transition | None

    def document(self) -> dict[str, Any]:
        return {
            n: None if t is None else t.document() for n, t in (
                ("spinodal_informed", self.spinodal_informed),
                ("information_theoretic", self.information_theoretic),
                ("spinodal_uninformed", self.spinodal_uninformed),
            )
        }


class Branch:
    """The curve of fixed points of a :class:`StateEvolution`."""

    def __init__(self, evolution: StateEvolution) -> None:
        self.evolution = evolution
        self._last = 0.0

    def _overlaps(self, u: float, x: float) -> Array:
        return np.asarray(self.evolution.rho * np.array([_logistic(x), _logistic(u)]))

    def _log_alphas(self, q: Array) -> Array:
        """``(2, 9)``: the ``log alpha`` that each equation asks for, pooled and per block."""
        wanted = np.array(self.evolution.conjugates_of(q))
        return np.asarray(np.log(wanted)[:, None] - np.log(self.evolution.hats(q)))

    def place(self, u: float) -> Place:
        """The fixed point with ``logit(q_v) = u``. Raises ``ValueError`` if there is none."""
        from scipy.optimize import brentq

        def gap(x: float) -> float:
            both = self._log_alphas(self._overlaps(u, x))[:, 0]
            return float(both[0] - both[1])

        low = high = self._last
        step = 0.3
        low_gap = high_gap = gap(low)
        while low_gap > 0:
            high, high_gap = low, low_gap
            low -= step
            low_gap = gap(low)
            step *= 2
            if low < -40:
                raise ValueError("no fixed point on the curve")
        step = 0.3
        while high_gap <= 0:
            low = high
            high += step
            high_gap = gap(high)
            step *= 2
            if high > 40:
                raise ValueError("no fixed point on the curve")
        x = float(brentq(gap, low, high, xtol=1e-11, rtol=1e-12))
        self._last = x
        q = self._overlaps(u, x)
        both = self._log_alphas(q)
        h = 1e-4
        slopes = (
            self._log_alphas(self._overlaps(u, x + h))[:, 0]
            - self._log_alphas(self._overlaps(u, x - h))[:, 0]
        ) / (2 * h)
        # linear response of (x, log alpha) at fixed u to the spread over blocks
        moved = both[:, 1:] - both[:, :1]
        dx = -(moved[0] - moved[1]) / (slopes[0] - slopes[1])
        return Place(u, q, float(np.exp(both[1, 0])), block_error(moved[1] + slopes[1] * dx))

    def trace(self, highest_alpha: float = np.inf) -> list[Place]:
        """Places along the curve, up to where ``alpha`` leaves ``highest_alpha`` for good."""
        found: list[Place] = []
        for u in np.arange(LOWEST, HIGHEST + SPACING, SPACING):
            try:
                found.append(self.place(float(u)))
            except ValueError:
                break
            if found[-1].alpha > highest_alpha and u > 0:
                break
        return found

    def between(self, low: Array, high: Array, alpha: float) -> list[Array]:
        """Fixed points at ``alpha`` strictly between two: where the curve crosses it."""
        from scipy.optimize import brentq

        rho = self.evolution.rho[1]
        ends = [_logit(q[1] / rho) for q in (low, high)]
        inside = np.array([0.01, *np.linspace(0.1, 0.9, 9), 0.99])
        grid = ends[0] + inside * (ends[1] - ends[0])
        gaps = []
        for u in grid:
            gaps.append(float(np.log(self.place(float(u)).alpha / alpha)))
        found = []
        for a, b, x, y in zip(grid[:-1], grid[1:], gaps[:-1], gaps[1:], strict=True):
            if x * y < 0:
                u = brentq(lambda u: np.log(self.place(float(u)).alpha / alpha), a, b, xtol=1e-9)
                found.append(self.place(float(u)).q)
        return found

    def thresholds(self) -> Thresholds:
        """Spinodals as extrema of ``alpha`` along the curve, and the crossing of the entropies."""
        curve = self.trace()
        logs = np.log([p.alpha for p in curve])
        top = next((i for i in range(1, len(logs) - 1)
                    if logs[i] > logs[i - 1] and logs[i] >= logs[i + 1]), None)
        if top is None:
            return Thresholds(None, None, None)
        bottom = top + int(np.argmin(logs[top:]))
        upper = self._extremum(curve, top, 1.0)
        lower = self._extremum(curve, bottom, -1.0)
        return Thresholds(
            Transition(lower.alpha, lower.alpha * lower.log_alpha_error),
            self._crossing(lower, upper),
            Transition(upper.alpha, upper.alpha * upper.log_alpha_error),
        )

    def _extremum(self, curve: list[Place], i: int, sign: float) -> Place:
        from scipy.optimize import minimize_scalar

        around = [p.u for p in curve[max(0, i - 1) : i + 2]]
        self._last = _logit(float(curve[i].q[0] / self.evolution.rho[0]))
        found = minimize_scalar(
            lambda u: -sign * np.log(self.place(float(u)).alpha),
            bounds=(around[0], around[-1]), method="bounded", options={"xatol": 1e-4},
        )
        return self.place(float(found.x))

    def _crossing(self, lower: Place, upper: Place) -> Transition | None:
        """``alpha`` at which both stable branches have the same free entropy.

        The difference of the free entropies has the slope ``dPhi/dalpha = E log Z_out`` (the
        envelope theorem), which is the average in ``Phi`` over ``alpha``.
        """
        e = self.evolution
        ends = [lower.alpha, upper.alpha]
        below, above = e.clip(upper.q.copy()), e.clip(lower.q.copy())
        alpha = float(np.sqrt(ends[0] * ends[1]))
        difference = np.zeros(9)
        slope = np.nan
        for _ in range(60):
            below, _, _ = e.settle(alpha, np.array([1e-4, 1e-4]) * e.rho)
            above, _, _ = e.settle(alpha, np.array([1 - 1e-6, 1 - 1e-6]) * e.rho)
            states = [e.outcome(q, alpha)["free_entropy"] for q in (below, above)]
            difference = states[1] - states[0]
            slope = self._average(above, alpha) - self._average(below, alpha)
            if difference[0] > 0:  # the informative branch wins: the crossing is below
                ends[1] = alpha
            else:
                ends[0] = alpha
            proposal = alpha - float(difference[0]) / slope
            if not ends[0] < proposal < ends[1]:
                proposal = 0.5 * (ends[0] + ends[1])
            if abs(proposal - alpha) < 1e-9 * alpha:
                break
            alpha = proposal
        else:
            return None
        return Transition(alpha, block_error(difference[1:]) / abs(slope))

    def _average(self, q: Array, alpha: float) -> float:
        """``E log Z_out``: the derivative of ``Phi`` by ``alpha`` at fixed overlaps."""
        h = 1e-3 * alpha
        ends = [float(self.evolution.outcome(q, a)["free_entropy"][0])
                for a in (alpha + h, alpha - h)]
        return (ends[0] - ends[1]) / (2 * h)


def _logistic(x: float) -> float:
    return float(1.0 / (1.0 + np.exp(-x)))


def _logit(p: float) -> float:
    return float(np.log(p) - np.log1p(-p))
