"""Population risk of given overlaps, on and off the manifold, by quasi-Monte Carlo.

Given ``(chi*, chi)`` the readout fields ``(z*, z)`` are Gaussian with known conditional mean and
covariance, so ``E(y - sigma.z)^2`` is an average over ``(chi*, chi)`` of the attention times
polynomials (Gaussian conditioning).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from replica.model import Array, Model
from replica.saddle_point.kernels import Compiled
from replica.saddle_point.nodes import sobol_points


def population_error(
    model: Model,
    weights: Compiled,
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


def sampled_error(predictions: Array, labels: Array) -> float:
    """Mean squared error on fresh samples."""
    return float(np.mean((labels - predictions) ** 2))
