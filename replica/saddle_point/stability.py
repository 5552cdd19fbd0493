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
WORK_LIMIT = 2e10


@dataclass(frozen=True)
class Replicon:
    """Spectral radius and the standard error from the spread of the block means."""

    radius: float
    standard_error: float


def replicon(engine: NumpyEngine, values: Mapping[str, float]) -> Replicon | None:
    """Spectral radius of ``T`` at the engine's minimisers; ``None`` if it is not finite."""
    sectors = len(engine.kernels.model.sectors)
    blocks = np.zeros((BLOCKS, sectors, sectors))
    for group, state in zip(engine.nodes.groups, engine.state, strict=True):
        size = sectors * group.length
        affordable = max(2, int(WORK_LIMIT / (size**3 * BLOCKS)))
        per_block = min(group.count // BLOCKS, affordable)
        chunk = max(1, min(per_block, int(4e6 / size**2)))
        for b in range(BLOCKS):
            first = b * (group.count // BLOCKS)
            total = np.zeros(blocks.shape[1:])
            for a in range(first, first + per_block, chunk):
                here = slice(a, min(a + chunk, first + per_block))
                total += _squared_response(engine, group, state, here, values)
            blocks[b] += group.probability * total / per_block
    V = np.array([values[s.V.name] for s in engine.kernels.model.sectors])
    T = values["alpha"] * V[None, :, None] ** 2 * blocks
    if not np.all(np.isfinite(T)):
        return None
    radii = np.array([np.max(np.abs(np.linalg.eigvals(t))) for t in T])
    quartiles = np.quantile(radii, [0.25, 0.75])
    # 1.349 quartile ranges to a standard deviation, 1.2533 from a mean's to a median's error
    error = 1.2533 * (quartiles[1] - quartiles[0]) / 1.349 / np.sqrt(BLOCKS)
    return Replicon(float(np.median(radii)), float(error))


def _squared_response(
    engine: NumpyEngine, group: NodeGroup, state: Array, here: slice, values: Mapping[str, float]
) -> Array:
    """Sum over nodes of ``sum_lm (df_al/domega_cm)^2`` for each pair of sectors."""
    response = responses(engine, group, state, here, values)
    size = len(engine.kernels.model.sectors)
    L = response.shape[1] // size
    squared = response.reshape(-1, size, L, size, L) ** 2
    total: Array = squared.sum(axis=(0, 2, 4))
    return total


def responses(
    engine: NumpyEngine, group: NodeGroup, state: Array, here: slice, values: Mapping[str, float]
) -> Array:
    """``df/domega`` per node, shape ``(nodes, sectors*length, sectors*length)``."""
    k, L = engine.kernels, group.length
    inputs = engine.block_inputs(group, here, values)
    inputs |= engine.minimisers(inputs, state[:, here], L)
    fields = {
        s.field_name: inputs[s.cavity.__name__] + values[s.V.name] * inputs[s.residual.__name__]
        for s in k.model.sectors
    }
    hessian = k.hessian({**inputs, **fields}, L)
    A = np.block([[hessian[a.name + c.name] for c in k.model.sectors] for a in k.model.sectors])
    V = np.repeat([values[s.V.name] for s in k.model.sectors], L)
    result: Array = -np.linalg.solve(np.eye(len(V)) + A * V[None, None, :], A)
    return result
