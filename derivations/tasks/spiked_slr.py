"""spiked-SLR: ``g = exp(sqrt(nu) chi*_eps - nu rho/2)``, the relevant token is shifted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import sympy as sp

from replica.errors import UsageError
from replica.model import SIGNAL, Array, Sector
from replica.normals import standard_normal
from replica.symbolic.tokens import RELEVANT


@dataclass(frozen=True)
class SpikedLaw:
    """Tilting ``N(0, rho)`` by ``exp(sqrt(nu) x)`` shifts its mean by ``sqrt(nu) rho``."""

    key: Sector
    value: Sector

    def dimension(self, length: int, sectors: Collection[str]) -> int:
        return length * len(sectors)

    def teacher_fields(
        self, uniforms: Array, length: int, values: Mapping[str, float], sectors: Collection[str]
    ) -> dict[str, Array]:
        normal = standard_normal(uniforms)
        found = {}
        if self.key.name in sectors:
            rho = self.key.variance(values)
            key = np.sqrt(rho) * normal[:length]
            key[0] += np.sqrt(values["nu"]) * rho
            found[self.key.name] = key
        if self.value.name in sectors:
            found[self.value.name] = np.sqrt(self.value.variance(values)) * normal[-length:]
        return found


def build(key: Sector, value: Sector, *, strongest: bool = False) -> tuple[SpikedLaw, sp.Expr]:
    """The law and ``log g``."""
    if strongest:
        raise UsageError("nu", "inf", "a finite number for spiked data")
    log_g = sp.sqrt(SIGNAL) * key.teacher(RELEVANT) - SIGNAL * key.rho / 2
    return SpikedLaw(key, value), log_g
