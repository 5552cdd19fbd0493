"""Population risk of given overlaps, on and off the manifold, by quasi-Monte Carlo.

Given ``(chi*, chi)`` the readout fields ``(z*, z)`` are Gaussian with known conditional mean and
covariance, so ``E(y - sigma.z)^2`` is an average over ``(chi*, chi)`` of the attention times
polynomials (Gaussian conditioning).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from derivations.setting import Setting
from replica.model import Array, Model
from replica.saddle_point.nodes import sobol_points
from validation.data import Dataset, draw

FRESH = 2000
"""Fresh samples per seed for the sampled test error."""
Weights = Callable[[Mapping[str, Any], int], tuple[Any, ...]]
"""The attention of ``length`` tokens from named scores, as the first of a tuple."""


def population_error(
    model: Model,
    weights: Weights,
    overlaps: Mapping[str, float],
    values: Mapping[str, float],
    lengths: Mapping[int, float],
    noise: float,
    power: int = 14,
    seed: int = 0,
) -> float:
    """``E(y - f)^2`` at the seven overlaps.

    ``weights`` computes the attention from the named scores. The label is the value field of the
    relevant token plus noise of standard deviation ``noise``.
    """
    from replica.normals import standard_normal

    m_k, m_v, q_k, q_v = (overlaps[n] for n in ("m_k", "m_v", "q_k", "q_v"))
    m_kv, m_vk, q_kv = (overlaps[n] for n in ("m_kv", "m_vk", "q_kv"))
    total = 0.0
    attention = model.sectors[0]
    for length, probability in lengths.items():
        law = model.law.dimension(length, (attention.name,))
        u = sobol_points(law + length, power, (seed, 7, length))
        drawn = model.law.teacher_fields(u[:law], length, values, (attention.name,))
        key = drawn[attention.name]
        spread = np.sqrt(max(q_k - m_k**2, 0.0))
        chi = m_k * key + spread * standard_normal(u[law:])
        sigma = np.broadcast_to(
            weights({**values, attention.field_name: chi}, length)[0], chi.shape
        )
        # regression of (z, z*) on (chi*, chi) under the plain Gaussian law of one token
        fields = np.array([[1.0, m_k], [m_k, q_k]])
        cross = np.array([[m_vk, q_kv], [0.0, m_kv]])
        slope = cross @ np.linalg.pinv(fields, rcond=1e-10)
        left = np.array([[q_v, m_v], [m_v, 1.0]]) - slope @ cross.T
        mean_z = slope[0, 0] * key + slope[0, 1] * chi
        mean_star = slope[1, 0] * key[0] + slope[1, 1] * chi[0]
        residual = mean_star - (sigma * mean_z).sum(axis=0)
        variance = (
            left[1, 1] - 2.0 * left[0, 1] * sigma[0] + left[0, 0] * (sigma**2).sum(axis=0)
        )
        total += probability * float(np.mean(residual**2 + variance))
    return total + noise**2


def fresh_error(
    setting: Setting, model: Model, weights: Weights, data: Dataset, k: Array, v: Array, seed: int
) -> float:
    """Mean squared error of trained ``k, v`` on fresh samples of the same teachers."""
    s, dimension = setting, len(k)
    fresh = draw(s.task, s.nu, s.lengths, s.noise, dimension, FRESH, seed,
                 given=(data.key, data.value), stream=1)
    squares = []
    for b in fresh.batches:
        chi = (b.tokens @ k / math.sqrt(dimension)).T
        z = (b.tokens @ v / math.sqrt(dimension)).T
        named = {**s.values(), model.sectors[0].field_name: chi}
        sigma = np.broadcast_to(weights(named, b.length)[0], chi.shape)
        squares.append((b.labels - (sigma * z).sum(axis=0)) ** 2)
    return float(np.mean(np.concatenate(squares)))
