"""The two moments of the attention that fix the population risk, kept so that a tiny risk is exact.

``s1 = E sigma_eps``, ``s2 = E sum_l sigma_l^2``. With ``miss = 1 - s1`` and
``distance = E |e_eps - sigma|^2 = 1 - 2 s1 + s2`` the risk of the best value vector is
``1 - s1^2/s2 = (distance - miss^2)/s2``, which does not cancel where the attention is nearly right;
both are kept as logarithms, so that ``exp(-2500)`` is a number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Moments:
    """``log_miss`` and ``log_distance`` are ``None`` where the attention is not normalised.

    ``error`` bounds the relative error of the risk (``nan`` where it was not estimated).
    """

    s1: float
    s2: float
    log_miss: float | None = None
    log_distance: float | None = None

    @property
    def log_excess(self) -> float:
        """``log(1 - s1^2/s2)``."""
        if self.log_miss is None or self.log_distance is None:
            gain = self.s1 * self.s1 / self.s2 if self.s2 > 0 else 0.0
            return math.log1p(-gain) if gain < 1 else -math.inf
        if self.log_distance == -math.inf:
            return -math.inf
        rest = math.exp(2.0 * self.log_miss - self.log_distance)  # at most 1 (Cauchy-Schwarz)
        return self.log_distance + math.log(max(1.0 - rest, 1e-300)) - math.log(self.s2)

    @property
    def excess(self) -> float:
        return math.exp(self.log_excess)

    @classmethod
    def certain(cls) -> Moments:
        """A single token, normalised: all weight on it."""
        return cls(1.0, 1.0, -math.inf, -math.inf)


def log_mean(logs: Mapping[int, float], lengths: Mapping[int, float]) -> float:
    """Logarithm of an average over lengths."""
    top = max(logs.values())
    if top == -math.inf:
        return top
    return top + math.log(math.fsum(lengths[k] * math.exp(x - top) for k, x in logs.items()))


def mixture(parts: Mapping[int, Moments], lengths: Mapping[int, float]) -> Moments:
    """Moments of a random length."""
    s1 = math.fsum(lengths[k] * m.s1 for k, m in parts.items())
    s2 = math.fsum(lengths[k] * m.s2 for k, m in parts.items())

    def pooled(name: str) -> float | None:
        logs = {k: getattr(m, name) for k, m in parts.items()}
        return None if None in logs.values() else log_mean(logs, lengths)

    return Moments(s1, s2, pooled("log_miss"), pooled("log_distance"))
