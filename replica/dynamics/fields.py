"""Local fields of fresh samples at given overlaps, on quasi-random nodes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from replica.codegen.programs import input_shapes
from replica.dynamics.starts import OVERLAPS, own_parts
from replica.ir.lower import lower
from replica.model import LABEL, NOISE, Array, Model
from replica.normals import standard_normal
from replica.saddle_point.kernels import Compiled
from replica.saddle_point.nodes import SCRAMBLES, sobol_points
from replica.symbolic.tokens import index

CHUNK = 4096
"""Nodes whose fields are made at once."""


@dataclass(frozen=True)
class _Draws:
    """Teacher fields and standard normals of one length, ``(L, 8 n)``; the label ``(8 n,)``."""

    probability: float
    teachers: Mapping[str, Array]
    noises: Mapping[str, Array]
    label: Array


class FieldLaw:
    """Samples whose fields have the covariance that the overlaps are, in eight scrambles.

    The students' fields are linear in the teachers' fields and in independent normals (a Cholesky
    factor), each scramble with its own overlaps.
    """

    def __init__(
        self, model: Model, values: Mapping[str, float], lengths: Mapping[int, float], nodes: int,
        seed: int,
    ) -> None:
        self.model, self.values = model, dict(values)
        self.rho = [s.variance(self.values) for s in model.sectors]
        label = Compiled.of(lower(
            "label", {LABEL.name: model.channel}, input_shapes(model), {index("l"): "token"}
        ))
        names = tuple(s.name for s in model.sectors)
        self.draws: dict[int, _Draws] = {}
        for length, probability in lengths.items():
            power = max(4, math.ceil(math.log2(nodes * probability / SCRAMBLES)))
            own = model.law.dimension(length, names)
            teachers: dict[str, list[Array]] = {n: [] for n in names}
            noises: dict[str, list[Array]] = {n: [] for n in names}
            xi = []
            for b in range(SCRAMBLES):
                u = sobol_points(own + 2 * length + 1, power, (seed, 31, length, b))
                for n, x in model.law.teacher_fields(u[:own], length, values, names).items():
                    teachers[n].append(x)
                rest = standard_normal(u[own:])
                xi.append(rest[0])
                for i, n in enumerate(names):
                    noises[n].append(rest[1 + i :: 2])
            drawn = {s.teacher.__name__: np.concatenate(teachers[s.name], axis=1)
                     for s in model.sectors}
            found = label({**self.values, **drawn, NOISE.name: np.concatenate(xi)}, length)[0]
            self.draws[length] = _Draws(
                probability, drawn,
                {s.noise.__name__: np.concatenate(noises[s.name], axis=1) for s in model.sectors},
                np.broadcast_to(found, (drawn[model.sectors[0].teacher.__name__].shape[1],)),
            )

    def chunks(self, overlaps: Array, length: int, block: int) -> Iterator[dict[str, Array]]:
        """Named fields of one scramble at overlaps ``(7,)``, a part of the nodes at a time.

        The order is that of :data:`~replica.dynamics.starts.OVERLAPS`. Small parts stay in cache.
        """
        draws = self.draws[length]
        k, v = self.model.sectors
        per_block = len(draws.label) // SCRAMBLES
        at = dict(zip(OVERLAPS, map(float, overlaps), strict=True))
        rho_k, rho_v = self.rho
        a, c, b = own_parts(at, rho_k, rho_v)
        for start in range(block * per_block, (block + 1) * per_block, CHUNK):
            here = slice(start, min(start + CHUNK, (block + 1) * per_block))
            teachers = {n: x[:, here] for n, x in draws.teachers.items()}
            noises = {n: x[:, here] for n, x in draws.noises.items()}
            star, z_star = (teachers[s.teacher.__name__] for s in (k, v))
            one, two = (noises[s.noise.__name__] for s in (k, v))
            yield {
                **teachers, **noises, LABEL.name: draws.label[here],
                k.field_name: (at["m_k"] / rho_k) * star + (at["m_kv"] / rho_v) * z_star + a * one,
                v.field_name: (at["m_vk"] / rho_k) * star + (at["m_v"] / rho_v) * z_star
                + c * one + b * two,
            }
