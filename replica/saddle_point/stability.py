"""The replicon: linear stability of replica symmetry, evaluated at the proximal minimisers.

``T_ac = alpha V_a^2 E sum_lm (df_al/domega_cm)^2`` with ``df/domega = -(1 + A V)^{-1} A``. It is
pointwise (jumps of the proximal map are not seen), a necessary condition. Near the ends of jump
surfaces the integrand has no variance, so the mean is a median of block means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from replica.model import Array
from replica.saddle_point.nodes import NodeGroup
from replica.saddle_point.sweep import NumpyEngine

BLOCKS = 16


@dataclass(frozen=True)
class Replicon:
    """Spectral radius and the standard error from the spread of the block means."""

    radius: float
    standard_error: float


def replicon(engine: NumpyEngine, values: Mapping[str, float]) -> Replicon | None:
    """Spectral radius of ``T`` at the engine's minimisers; ``None`` if it is not finite."""
    sectors = engine.kernels.model.sectors
    jobs = []
    for group, state in zip(engine.nodes.groups, engine.state, strict=True):
        size = group.count // BLOCKS
        per_block = min(size, engine.affordable_responses(group) // BLOCKS)
        jobs += [
            (block, per_block, group, state, slice(block * size, block * size + per_block))
            for block in range(BLOCKS)
        ]

    def total(job: tuple[int, int, NodeGroup, Array, slice]) -> Array:
        _, count, group, state, here = job
        mean: Array = engine.squared_responses(group, state, here, values) / count
        return group.probability * mean

    blocks = np.zeros((BLOCKS, len(sectors), len(sectors)))
    for job, found in zip(jobs, engine.workers.map(total, jobs), strict=True):
        blocks[job[0]] += found
    V = np.array([values[s.V.name] for s in sectors])
    T = values["alpha"] * V[None, :, None] ** 2 * blocks
    if not np.all(np.isfinite(T)):
        return None
    radii = np.array([np.max(np.abs(np.linalg.eigvals(t))) for t in T])
    quartiles = np.quantile(radii, [0.25, 0.75])
    # 1.349 quartile ranges to a standard deviation, 1.2533 from a mean's to a median's error
    error = 1.2533 * (quartiles[1] - quartiles[0]) / 1.349 / np.sqrt(BLOCKS)
    return Replicon(float(np.median(radii)), float(error))
