"""max-SLR: ``g = L exp(nu chi*_eps)/sum_l exp(nu chi*_l)``; at ``nu = oo`` the arg-max."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

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


def build(key: Sector, value: Sector, *, strongest: bool = False) -> tuple[MaxLaw, sp.Expr]:
    """The law and ``log g``; at ``nu = oo`` the weight has no density and is left at 0."""
    if strongest:
        return MaxLaw(key, value, strongest=True), sp.S.Zero
    i = index("i")
    weight = TokenWeights(SIGNAL * key.teacher(i), i, RELEVANT)
    return MaxLaw(key, value), sp.log(LENGTH * weight)
