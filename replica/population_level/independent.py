"""Normalised attention over independent tokens, by quadrature.

With weights ``w_l > 0``, ``S = sum_l w_l``, and ``1/S = int_0^oo e^(-tS) dt``,
``1/S^2 = int_0^oo t e^(-tS) dt``, an average of ``w_l/S`` over independent tokens is a single
integral over ``t = e^tau`` of products of one-token averages ``E w^j e^(-t w)``:
any number of tokens costs the same. Both integrals use the trapezoidal rule, whose error falls
exponentially with the spacing; all sums are of logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from replica.errors import ReplicaError
from replica.model import Array
from replica.population_level.moments import Moments

LogWeight = Callable[[Array], Array]
DEPTH = 45.0
"""Terms smaller than ``e^-45`` of the largest are left out."""
SPACING = 0.25
"""First spacing, in the score and in ``tau``."""
LEVELS = 4
MOST = 2**20
"""Points on either side of the centre, at most."""
WIDE = 2000
"""More scores than this are narrowed down before they are summed."""
TOLERANCE = 1e-12


@dataclass(frozen=True)
class Token:
    """Scores of one token: ``normal(centre, spread^2)``."""

    centre: float
    spread: float

    def points(self, reach: float, spacing: float) -> tuple[Array, Array]:
        """Scores and the logarithms of their weights."""
        h = min(0.25, spacing / self.spread) if self.spread > 0 else 0.25
        half = math.ceil(reach / h)
        if half > MOST:
            raise ReplicaError(
                f"scores that spread over {self.spread:.3g} need {2.0 * half:.2g} points in the "
                f"quadrature, more than {2.0 * MOST:.2g}: use a weaker signal or a shorter key"
            )
        u = h * np.arange(-half, half + 1, dtype=np.float64)
        log_mass = -0.5 * u * u + math.log(h / math.sqrt(2 * math.pi))
        return self.centre + self.spread * u, log_mass


def logsumexp(x: Array) -> Array:
    """Over the last axis."""
    top = x.max(axis=-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(x - top).sum(axis=-1)) + top[..., 0])


class Averages:
    """``log E w^j e^(-t w)`` of one token, ``j = 0, 1, 2``, at ``t = e^tau``."""

    def __init__(self, log_weight: LogWeight, token: Token, reach: float, spacing: float) -> None:
        x, self.log_mass = token.points(reach, spacing)
        self.w = log_weight(x)

    def __call__(self, tau: Array, power: int) -> Array:
        if len(self.w) < WIDE:
            return self._sum(tau, power, slice(None))
        parts = np.array_split(tau, max(1, len(tau) // 64))
        return np.concatenate([self._sum(p, power, self._active(p, power)) for p in parts])

    def _active(self, tau: Array, power: int) -> slice:
        """The scores that matter at some of these ordered ``tau``: they move with ``tau``."""
        terms = self._terms(tau[[0, len(tau) // 2, -1]], power, slice(None))
        where = np.flatnonzero((terms >= terms.max(axis=1, keepdims=True) - DEPTH).any(axis=0))
        return slice(int(where[0]), int(where[-1]) + 1)

    def _terms(self, tau: Array, power: int, here: slice) -> Array:
        w = self.w[here]
        return np.asarray(
            self.log_mass[here] + power * w - np.exp(np.minimum(tau[:, None] + w, 700.0))
        )

    def _sum(self, tau: Array, power: int, here: slice) -> Array:
        rows = max(1, 2_000_000 // len(self.w[here]))
        return np.concatenate([
            logsumexp(self._terms(tau[a : a + rows], power, here))
            for a in range(0, len(tau), rows)
        ])


Integrand = Callable[[Array], Array]


def _window(integrand: Integrand, low: float, high: float, spread: float) -> tuple[float, float]:
    """Where an integrand in ``tau`` is within :data:`DEPTH` of its maximum."""
    step = max(1.0, 0.5 * spread)
    coarse = np.arange(low, high + step, step)
    rough = integrand(coarse)
    inside = coarse[rough > rough.max() - DEPTH]
    return float(inside[0] - 2 * step), float(inside[-1] + 2 * step)


def _integral(integrand: Integrand, window: tuple[float, float], spacing: float) -> float:
    """Log of ``int dtau exp(integrand)``."""
    tau = np.arange(*window, spacing)
    return float(logsumexp(integrand(tau)) + math.log(spacing))


def _moments(
    log_weight: LogWeight, relevant: Token, other: Token, length: int, spacing: float
) -> Moments:
    if length == 1:
        return Moments.certain()
    reach = 11.0 + abs(relevant.centre - other.centre) / max(relevant.spread, 1e-300) * (
        1.0 if relevant.spread > 0 else 0.0
    )
    first = Averages(log_weight, relevant, reach, spacing)
    rest = Averages(log_weight, other, reach, spacing)
    ends = np.concatenate([first.w, rest.w])
    low, high = -float(ends.max()) - DEPTH - 5.0, -float(ends.min()) + 5.0
    spread = max(relevant.spread, other.spread)
    n = length - 1.0

    def missed(tau: Array) -> Array:
        """``sum_{m != eps} sigma_m``."""
        return tau + math.log(n) + first(tau, 0) + rest(tau, 1) + (n - 1) * rest(tau, 0)

    def apart(tau: Array) -> Array:
        """``(sum_{m != eps} sigma_m)^2 + sum_{m != eps} sigma_m^2``."""
        plain = rest(tau, 0)
        same = math.log(2 * n) + rest(tau, 2) + (n - 1) * plain
        if length > 2:
            pairs = math.log(n * (n - 1)) + 2 * rest(tau, 1) + (n - 2) * plain
            same = np.logaddexp(same, pairs)
        return 2 * tau + first(tau, 0) + same

    windows = [_window(f, low, high, spread) for f in (missed, apart)]
    log_miss, log_distance = (
        _integral(f, w, spacing) for f, w in zip((missed, apart), windows, strict=True)
    )
    if log_miss < math.log(0.5):
        s1 = -math.expm1(log_miss)
        return Moments(s1, 2 * s1 - 1 + math.exp(log_distance), log_miss, log_distance)

    def found(tau: Array) -> Array:
        return tau + first(tau, 1) + n * rest(tau, 0)

    def squares(tau: Array) -> Array:
        plain = rest(tau, 0)
        return 2 * tau + np.logaddexp(
            first(tau, 2) + n * plain,
            math.log(n) + first(tau, 0) + rest(tau, 2) + (n - 1) * plain,
        )

    s1, s2 = (
        math.exp(_integral(f, _window(f, low, high, spread), spacing)) for f in (found, squares)
    )
    return Moments(s1, s2)


def normalised_moments(
    log_weight: LogWeight, relevant: Token, other: Token, length: int, *, quick: bool = False
) -> tuple[Moments, float]:
    """Moments of ``sigma_l = w_l/sum_m w_m``, and the relative error of the risk.

    The relevant token and the ``length - 1`` others are independent. The spacing is halved until
    the risk no longer changes; the error is the last change. ``quick`` takes
    the first spacing, good to about nine digits, unchecked.
    """
    spacing, last = SPACING, _moments(log_weight, relevant, other, length, SPACING)
    error = math.inf
    if quick:
        return last, math.nan
    for _ in range(LEVELS):
        spacing /= 2
        now = _moments(log_weight, relevant, other, length, spacing)
        if now.log_excess == -math.inf:
            return now, 0.0
        error = abs(math.expm1(last.log_excess - now.log_excess))
        last = now
        if error < TOLERANCE:
            break
    return last, error


def posterior_squares(log_weight: LogWeight, token: Token, length: int) -> tuple[float, float]:
    """``log(1 - E sum_l p_l^2)`` for ``p_l = w_l/sum_m w_m`` over equal tokens, and its error."""
    if length == 1:
        return -math.inf, 0.0
    spacing, last, error = SPACING, math.nan, math.inf
    for _ in range(LEVELS + 1):
        one = Averages(log_weight, token, 11.0, spacing)
        low, high = -float(one.w.max()) - DEPTH - 5.0, -float(one.w.min()) + 5.0

        def different(tau: Array, one: Averages = one) -> Array:
            """Two places: ``L (L - 1) p_1 p_2``."""
            return (2 * tau + math.log(length * (length - 1.0)) + 2 * one(tau, 1)
                    + (length - 2) * one(tau, 0))

        now = _integral(different, _window(different, low, high, token.spread), spacing)
        error, last = abs(math.expm1(now - last)) if not math.isnan(last) else math.inf, now
        if error < TOLERANCE:
            break
        spacing /= 2
    return last, error
