"""Overlaps at time 0."""

from __future__ import annotations

from collections.abc import Mapping

OVERLAPS = ("m_k", "m_kv", "m_vk", "m_v", "q_k", "q_kv", "q_v")
"""Every overlap: ``m_kv`` is that of ``k`` with ``v*``, ``m_vk`` that of ``v`` with ``k*``."""

STARTS: Mapping[str, Mapping[str, float]] = {
    "random": {"q_k": 0.01, "q_v": 0.01},
    "informed": {"m_k": 1.0, "q_k": 1.0, "m_v": 1.0, "q_v": 1.0},
}
"""Overlaps that are not named are zero."""
