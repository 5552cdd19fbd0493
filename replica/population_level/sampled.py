"""Any law and any activation: randomised quasi-Monte Carlo over the scores of all tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from replica.ir.lower import lower
from replica.model import SIGMA, Array, Model
from replica.normals import standard_normal
from replica.saddle_point.kernels import Compiled
from replica.saddle_point.nodes import SCRAMBLES, sobol_points
from replica.symbolic.tokens import index


class SampledMoments:
    """``s1`` and ``s2`` of eight independently scrambled nets of ``2^power`` points each."""

    def __init__(
        self, model: Model, values: Mapping[str, Any], length: int, power: int, seed: int
    ) -> None:
        self.values, self.length = dict(values), length
        activation, key = model.activation, model.sectors[0]
        assert activation is not None
        l = index("l")  # noqa: E741
        shapes: dict[str, Any] = {key.field_name: "token"} | {n: "uniform" for n in values}
        self.field = key.field_name
        self.weights = Compiled.of(lower(
            "weights", {SIGMA.__name__: activation.at(key.field, l)}, shapes, {l: "token"}
        ))
        own = model.law.dimension(length, (key.name,))
        teachers, noise = [], []
        for b in range(SCRAMBLES):
            u = sobol_points(own + length, power, (seed, 23, length, b))
            teachers.append(
                model.law.teacher_fields(u[:own], length, self.values, (key.name,))[key.name]
            )
            noise.append(standard_normal(u[own:]))
        self.teacher = np.concatenate(teachers, axis=1)
        self.noise = np.concatenate(noise, axis=1)
        self.rho = key.variance(self.values)

    def __call__(self, m: float, q: float) -> tuple[Array, Array]:
        """Block means of ``sigma_eps`` and ``sum_l sigma_l^2``, each of shape ``(8,)``."""
        chi = (m / self.rho) * self.teacher
        chi = chi + np.sqrt(max(q - m * m / self.rho, 0.0)) * self.noise
        sigma = np.broadcast_to(
            self.weights({**self.values, self.field: chi}, self.length)[0], chi.shape
        )
        return (sigma[0].reshape(SCRAMBLES, -1).mean(axis=1),
                (sigma**2).sum(axis=0).reshape(SCRAMBLES, -1).mean(axis=1))
