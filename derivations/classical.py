"""Classical one-token problems: the same steps must give the classical equations."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import sympy as sp

from replica.model import LABEL, NOISE, NOISE_STD, Array, Model, Sector
from replica.normals import standard_normal
from replica.symbolic.primitives import softplus
from replica.symbolic.tokens import RELEVANT, TokenSum, index


@dataclass(frozen=True)
class GaussianLaw:
    """Teacher field ``N(0, rho)``; ``rho`` is read from the values if it is named there."""

    sector: Sector

    def dimension(self, length: int, sectors: Collection[str]) -> int:
        return length if self.sector.name in sectors else 0

    def teacher_fields(
        self, uniforms: Array, length: int, values: Mapping[str, float], sectors: Collection[str]
    ) -> dict[str, Array]:
        if self.sector.name not in sectors:
            return {}
        scale = np.sqrt(self.sector.variance(values))
        return {self.sector.name: scale * standard_normal(uniforms)}


def ridge(*, rho: sp.Expr = sp.S.One, loss: sp.Expr | None = None) -> Model:
    """Ridge regression with isotropic Gaussian inputs and a Gaussian teacher of variance rho."""
    w = Sector("w", "h", rho)
    l = index("l")  # noqa: E741
    prediction = TokenSum(w.field(l), l)
    return Model(
        name="ridge",
        sectors=(w,),
        loss=(LABEL - prediction) ** 2 / 2 if loss is None else loss,
        channel=w.teacher(RELEVANT) + NOISE_STD * NOISE,
        law=GaussianLaw(w),
        prediction=prediction,
    )


def logistic(*, rho: sp.Expr = sp.S.One) -> Model:
    """Logistic loss with labels ``sign(w*.x)``; the test error is the misclassified fraction."""
    w = Sector("w", "h", rho)
    l = index("l")  # noqa: E741
    margin = LABEL * TokenSum(w.field(l), l)
    return Model(
        name="logistic",
        sectors=(w,),
        loss=softplus(-margin),
        channel=sp.sign(w.teacher(RELEVANT)),
        law=GaussianLaw(w),
        test_loss=(1 - sp.sign(margin)) / 2,
        test_error=sp.acos(w.m / sp.sqrt(w.rho * w.q)) / sp.pi,
    )
