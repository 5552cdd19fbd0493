"""What the weight ``g`` does to the score of the relevant token, read off the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from replica.derivation.population import score_exponent
from replica.model import Array, Model
from replica.population_level.independent import Averages, Token, logsumexp
from replica.symbolic.tokens import RELEVANT, TokenSum, TokenWeights, index, outermost


@dataclass(frozen=True)
class TokenLaw:
    """How the relevant token is told from the others.

    ``kind`` is ``tilted``: its score alone is shifted, by ``tilt`` times its variance; ``chosen``:
    all scores are plain and it is drawn from ``softmax(exponent)``; ``largest``: it has the
    largest score; ``other``: none of these. ``tilt`` is exact, a SymPy number.
    """

    kind: str
    tilt: Any = sp.S.Zero
    exponent: Callable[[Array], Array] | None = None

    @property
    def symmetric(self) -> bool:
        """Whether the scores taken together are plain, whichever token is relevant."""
        return self.kind in ("chosen", "largest")


def token_law(model: Model, values: Mapping[str, Any]) -> TokenLaw:
    """Read the law off ``log g``. ``values`` give every symbol of it."""
    if getattr(model.law, "strongest", False):
        return TokenLaw("largest")
    k = model.sectors[0]
    exponent = score_exponent(model)
    if exponent is None:
        return TokenLaw("other")
    x, l = sp.Symbol("x", real=True), index("l")  # noqa: E741
    flat = sp.sympify(exponent).xreplace({k.teacher(l): x})
    flat = flat.xreplace({s: sp.sympify(values[s.name]) for s in flat.free_symbols - {x}})
    log_g = sp.sympify(model.log_weight)
    if outermost(log_g, (TokenWeights,)):
        return TokenLaw("chosen", exponent=sp.lambdify(x, flat, "numpy"))
    if outermost(log_g, (TokenSum,)) or not log_g.has(k.teacher(RELEVANT)) or flat.diff(x, 2) != 0:
        return TokenLaw("other")
    return TokenLaw("tilted", tilt=flat.diff(x))


class RelevantDensity:
    """Density of the relevant token's teacher score over ``N(0, rho)``, kept per grid."""

    def __init__(self, law: TokenLaw, rho: float) -> None:
        self.law, self.rho = law, rho
        self._kept: dict[tuple[Any, ...], Array] = {}

    def __call__(self, score: Array, length: int) -> Array:
        key = (length, len(score), float(score[0]))
        if key not in self._kept:
            self._kept[key] = _density(self.law, score, length, self.rho)
        return self._kept[key]


def _density(law: TokenLaw, score: Array, length: int, rho: float) -> Array:
    from scipy.special import log_ndtr

    root = math.sqrt(rho)
    if law.kind == "largest":
        return np.asarray(length * np.exp((length - 1) * log_ndtr(score / root)))
    if law.kind == "tilted":
        a = float(law.tilt)
        return np.asarray(np.exp(a * score - 0.5 * a * a * rho))
    assert law.exponent is not None
    # L E softmax_1 = L int dtau e^(tau + u) exp(-e^(tau + u)) (E exp(-e^(tau + u)))^(L - 1)
    here = np.broadcast_to(law.exponent(score), score.shape).astype(float)
    spacing = 0.125
    rest = Averages(law.exponent, Token(0.0, root), 11.0, spacing)
    tau = np.arange(-here.max() - 60.0, -here.min() + 6.0, spacing)
    crowd = (length - 1) * rest(tau, 0) if length > 1 else np.zeros(len(tau))
    terms = tau + here[:, None] - np.exp(np.minimum(tau + here[:, None], 700.0)) + crowd
    return np.asarray(length * np.exp(logsumexp(terms)) * spacing)
