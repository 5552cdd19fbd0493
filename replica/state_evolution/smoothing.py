"""``G_l(omega) = E_t g(l, omega + sqrt(rho - q) t)`` and its score where no closed form exists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from replica.codegen.programs import input_shapes
from replica.errors import UsageError
from replica.ir.lower import lower
from replica.model import Array, Model
from replica.normals import standard_normal
from replica.saddle_point.kernels import Compiled
from replica.saddle_point.nodes import sobol_points

INNER_POWER = 9
"""Inner points of the general rule, as a power of two."""
BLOCK = 2**8
"""Nodes that the general rule treats at once."""


class Smoothing:
    """The smoothed weight of a model: the law's own rule, or averages over inner points.

    A law has its own rule in a method ``smoothed_weight(omega, width, values)`` that returns what
    :meth:`__call__` does.
    """

    def __init__(self, model: Model, values: Mapping[str, float]) -> None:
        self.model, self.values = model, values
        self.own: Any = getattr(model.law, "smoothed_weight", None)
        self.weight: Compiled | None = None
        if self.own is None:
            if model.sampling_only:
                raise UsageError(
                    "model", model.name, "a law with a smoothed_weight: its weight has no density"
                )
            self.weight = Compiled.of(
                lower("log_weight", {"log_g": model.log_weight}, input_shapes(model))
            )

    def __call__(self, omega: Array, width: float) -> tuple[Array, Array]:
        """``log G``, shape ``(L, n)``, and ``score[l, m] = d log G_l / d omega_m``,
        ``(L, L, n)``, at fields ``(L, n)``."""
        if self.own is not None:
            log_g, score = self.own(omega, width, self.values)
            return log_g, score
        parts = [
            self._general(omega[:, a : a + BLOCK], width) for a in range(0, omega.shape[1], BLOCK)
        ]
        return (np.concatenate([p[0] for p in parts], axis=-1),
                np.concatenate([p[1] for p in parts], axis=-1))

    def _general(self, omega: Array, width: float) -> tuple[Array, Array]:
        assert self.weight is not None
        length, n = omega.shape
        t = standard_normal(sobol_points(length, INNER_POWER, (5, length)))
        inner = t.shape[1]
        field = (omega[:, :, None] + width * t[:, None, :]).reshape(length, -1)
        key = self.model.sectors[0].teacher.__name__
        log_G, score = np.empty((length, n)), np.empty((length, length, n))
        for position in range(length):
            order = np.arange(length)
            order[[0, position]] = order[[position, 0]]
            (log_g,) = self.weight({**self.values, key: field[order]}, length)
            log_g = np.broadcast_to(log_g, (n * inner,)).reshape(n, inner)
            top = log_g.max(axis=1, keepdims=True)
            weights = np.exp(log_g - top)
            total = weights.sum(axis=1)
            log_G[position] = top[:, 0] + np.log(total / inner)
            # integration by parts over t: d log G/d omega_m = E[g t_m]/(width E g)
            score[position] = (weights @ t.T / total[:, None] / width).T
        return log_G, score
