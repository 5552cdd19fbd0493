"""Quasi-random samples of the data law, pooled over independent scrambles.

Node ``n`` depends on the seed, the length and ``n`` alone. Points are scrambled Sobol sequences,
``2^m`` per scramble, so that the spread over scrambles gives the standard error of any average.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from replica.errors import UsageError
from replica.model import LABEL, NOISE, Array, Model
from replica.normals import standard_normal

SCRAMBLES = 8
MAX_SOBOL_DIMENSION = 21201
SMALL = 2**16
"""Fewer numbers than this are drawn faster without threads."""


@dataclass(frozen=True)
class NodeGroup:
    """Nodes of one sequence length.

    ``arrays`` maps teacher fields and noises to ``(length, nodes)``, label noise and label to
    ``(nodes,)``; only what the generated code reads is there.
    Scramble ``s`` holds nodes ``s*per_scramble`` to ``(s+1)*per_scramble``.
    """

    length: int
    probability: float
    per_scramble: int
    arrays: Mapping[str, Array]

    @property
    def count(self) -> int:
        return SCRAMBLES * self.per_scramble


@dataclass(frozen=True)
class NodeSet:
    """One group per sequence length with its probability."""

    groups: tuple[NodeGroup, ...]
    seed: int

    @property
    def count(self) -> int:
        return sum(g.count for g in self.groups)


def make_nodes(
    model: Model,
    lengths: Mapping[int, float],
    count: int,
    seed: int,
    values: Mapping[str, float],
    needed: Collection[str],
    label: Callable[[Mapping[str, Any], int], tuple[Any, ...]] | None,
    threads: int = 1,
) -> NodeSet:
    """Draw the nodes.

    Parameters
    ----------
    lengths
        Length to probability; each length gets its share of the nodes.
    count
        Total number of nodes, rounded up per length to ``8 * 2^m``.
    needed
        Names of the fields and noises that the generated code reads; only these cost dimensions.
    label
        The generated channel, called with named arrays; ``None`` where no label is stored.
    """
    groups = []
    for length, probability in sorted(lengths.items()):
        share = max(1, math.ceil(count * probability / SCRAMBLES))
        power = max(4, math.ceil(math.log2(share)))
        groups.append(
            _group(model, length, probability, power, seed, values, needed, label, threads)
        )
    return NodeSet(tuple(groups), seed)


def _group(
    model: Model,
    length: int,
    probability: float,
    power: int,
    seed: int,
    values: Mapping[str, float],
    needed: Collection[str],
    label: Callable[[Mapping[str, Any], int], tuple[Any, ...]] | None,
    threads: int,
) -> NodeGroup:
    taught = [s for s in model.sectors if s.teacher.__name__ in needed]
    noisy = [s for s in model.sectors if s.noise.__name__ in needed]
    names = [s.name for s in taught]
    law = model.law.dimension(length, names) if taught else 0
    dimension = law + len(noisy) * length + (NOISE.name in needed)
    if dimension > MAX_SOBOL_DIMENSION:
        raise UsageError("length", length, f"at most {MAX_SOBOL_DIMENSION // 4 - 1} tokens")
    per_scramble = 2**power
    total = SCRAMBLES * per_scramble
    arrays: dict[str, Array] = {
        **{s.teacher.__name__: np.empty((length, total)) for s in taught},
        **{s.noise.__name__: np.empty((length, total)) for s in noisy},
    }
    if NOISE.name in needed:
        arrays[NOISE.name] = np.empty(total)

    def draw(scramble: int) -> None:
        here = slice(scramble * per_scramble, (scramble + 1) * per_scramble)
        u = sobol_points(max(1, dimension), power, (seed, length, scramble))
        if taught:
            fields = model.law.teacher_fields(u[:law], length, values, names)
            for s in taught:
                arrays[s.teacher.__name__][:, here] = fields[s.name]
        for k, s in enumerate(noisy):
            rows = slice(law + k * length, law + (k + 1) * length)
            standard_normal(u[rows], arrays[s.noise.__name__][:, here])
        if NOISE.name in needed:
            standard_normal(u[-1], arrays[NOISE.name][here])

    if threads > 1 and total * dimension > SMALL:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(draw, range(SCRAMBLES)))
    else:
        for scramble in range(SCRAMBLES):
            draw(scramble)
    if label is not None:
        found = label({**values, **arrays}, length)[0]
        arrays[LABEL.name] = np.broadcast_to(found, (total,)).copy()
    return NodeGroup(length, probability, per_scramble, arrays)


def sobol_points(dimension: int, power: int, key: tuple[int, ...]) -> Array:
    """``(dimension, 2^power)`` scrambled Sobol points strictly inside (0, 1)."""
    from scipy.stats import qmc

    rng = np.random.default_rng(np.random.SeedSequence(key))
    points = qmc.Sobol(dimension, scramble=True, rng=rng).random_base2(power)
    tiny = 2.0**-54
    inside: Array = np.ascontiguousarray(points.T)
    np.clip(inside, tiny, 1.0 - 2.0**-53, out=inside)
    return inside
