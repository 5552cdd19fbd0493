"""Overlaps at time 0."""

from __future__ import annotations

import math
from collections.abc import Mapping

OVERLAPS = ("m_k", "m_kv", "m_vk", "m_v", "q_k", "q_kv", "q_v")
"""Every overlap: ``m_kv`` is that of ``k`` with ``v*``, ``m_vk`` that of ``v`` with ``k*``."""

STARTS: Mapping[str, Mapping[str, float]] = {
    "random": {"q_k": 0.01, "q_v": 0.01},
    "informed": {"m_k": 1.0, "q_k": 1.0, "m_v": 1.0, "q_v": 1.0},
}
"""Overlaps that are not named are zero."""


def own_parts(
    at: Mapping[str, float], rho_k: float = 1.0, rho_v: float = 1.0
) -> tuple[float, float, float]:
    """What is left off the teachers: length of the key's part, then the values' along and off it.

    The triangular factor of the overlaps' covariance; teachers have variances ``rho``.
    """
    key = math.sqrt(max(at["q_k"] - at["m_k"] ** 2 / rho_k - at["m_kv"] ** 2 / rho_v, 0.0))
    shared = at["q_kv"] - at["m_k"] * at["m_vk"] / rho_k - at["m_kv"] * at["m_v"] / rho_v
    # a key along the teachers has no part of its own that the values could share
    along = shared / key if key > 1e-9 else 0.0
    rest = at["q_v"] - at["m_vk"] ** 2 / rho_k - at["m_v"] ** 2 / rho_v - along**2
    return key, along, math.sqrt(max(rest, 0.0))
