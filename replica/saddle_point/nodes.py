"""Quasi-random samples of the data law, pooled over independent scrambles.

Node ``n`` depends on the seed, the length and ``n`` alone. Points are scrambled Sobol sequences,
``2^m`` per scramble, so that the spread over scrambles gives the standard error of any average.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from replica.errors import UsageError
from replica.model import LABEL, NOISE, Array, Model
from replica.normals import standard_normal
from replica.saddle_point.workers import Workers

SCRAMBLES = 8
MAX_SOBOL_DIMENSION = 21201
SMALL = 2**16
"""Fewer numbers than this are drawn faster without threads."""


@dataclass(frozen=True)
class NodeGroup:
    """Nodes of one sequence length.

    ``arrays`` maps teacher fields and noises to ``(length, nodes)``, label noise and label to
    ``(nodes,)``; only what the generated code reads is there.
    Scramble ``s`` holds nodes ``s*per_scramble`` to ``(s+1)*per_scramble``. ``dimension`` is the
    number of random variables of a node.
    """

    length: int
    probability: float
    per_scramble: int
    arrays: Mapping[str, Array]
    dimension: int

    @property
    def count(self) -> int:
        return SCRAMBLES * self.per_scramble

    def thinned(self, share: int) -> NodeGroup:
        """The first ``1/share`` of every scramble, at least 16 nodes."""
        size = max(16, self.per_scramble // share)
        arrays = {
            n: np.ascontiguousarray(
                a.reshape(*a.shape[:-1], SCRAMBLES, self.per_scramble)[..., :size]
            ).reshape(*a.shape[:-1], SCRAMBLES * size)
            for n, a in self.arrays.items()
        }
        return replace(self, per_scramble=size, arrays=arrays)


@dataclass(frozen=True)
class NodeSet:
    """One group per sequence length with its probability.

    ``reductions`` says how the number of random variables was kept small.
    """

    groups: tuple[NodeGroup, ...]
    seed: int
    reductions: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return sum(g.count for g in self.groups)

    def thinned(self, share: int) -> NodeSet:
        """The first ``1/share`` of every scramble (``share`` a power of two): smaller nets."""
        return replace(self, groups=tuple(g.thinned(share) for g in self.groups))


def make_nodes(
    model: Model,
    lengths: Mapping[int, float],
    count: int,
    seed: int,
    values: Mapping[str, float],
    needed: Collection[str],
    label: Callable[[Mapping[str, Any], int], tuple[Any, ...]] | None,
    workers: Workers | None = None,
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
    workers = workers or Workers(1)
    groups = []
    for length, probability in sorted(lengths.items()):
        share = max(1, math.ceil(count * probability / SCRAMBLES))
        power = max(4, math.ceil(math.log2(share)))
        groups.append(
            _group(model, length, probability, power, seed, values, needed, label, workers)
        )
    return NodeSet(tuple(groups), seed, tuple(_reductions(model, needed)))


def _reductions(model: Model, needed: Collection[str]) -> list[str]:
    """What was used of the theory, for the user to read."""
    found = [
        f"marginal law of omega_{s.name}: its teacher field is averaged over"
        for s in model.sectors
        if s.teacher.__name__ not in needed and s.noise.__name__ in needed
    ]
    if _centred(model) in needed:
        found.append("shift invariance: only differences of the scores are drawn")
    return found


def _centred(model: Model) -> str:
    """Name of the noise of which only differences between tokens matter, or an empty string.

    A constant added to the attention's cavity field moves the minimiser along and changes no
    displacement where the activation does not see it; displacements then sum to zero over tokens,
    so averages of ``f . omega`` and ``f . zeta`` do not see it either.
    """
    activation, attention = model.activation, model.attention
    if activation is None or attention is None or not activation.shift_invariant:
        return ""
    return str(attention.noise.__name__)


def _group(
    model: Model,
    length: int,
    probability: float,
    power: int,
    seed: int,
    values: Mapping[str, float],
    needed: Collection[str],
    label: Callable[[Mapping[str, Any], int], tuple[Any, ...]] | None,
    workers: Workers,
) -> NodeGroup:
    taught = [s for s in model.sectors if s.teacher.__name__ in needed]
    noisy = [s for s in model.sectors if s.noise.__name__ in needed]
    names = [s.name for s in taught]
    centred = _centred(model)
    law = model.law.dimension(length, names) if taught else 0
    sizes = {s.noise.__name__: length - (s.noise.__name__ == centred) for s in noisy}
    if NOISE.name in needed:
        sizes[NOISE.name] = 1
    rows: dict[str, slice] = {}
    dimension = 0
    for name, size in [*_ordered(model, sizes, law)]:
        rows[name] = slice(dimension, dimension + size)
        dimension += size
    laws = rows.pop(_LAW)
    if dimension > MAX_SOBOL_DIMENSION:
        raise UsageError("length", length, f"at most {MAX_SOBOL_DIMENSION // 4 - 1} tokens")
    per_scramble = 2**power
    total = SCRAMBLES * per_scramble
    names_of = [*(s.teacher.__name__ for s in taught), *(s.noise.__name__ for s in noisy)]
    # one block: large enough for huge pages, which are much cheaper to touch first
    block = np.empty((len(names_of) * length + (NOISE.name in needed), total))
    arrays: dict[str, Array] = {
        n: block[k * length : (k + 1) * length] for k, n in enumerate(names_of)
    }
    if NOISE.name in needed:
        arrays[NOISE.name] = block[-1]

    def draw(scramble: int) -> None:
        here = slice(scramble * per_scramble, (scramble + 1) * per_scramble)
        u = sobol_points(max(1, dimension), power, (seed, length, scramble))
        if taught:
            fields = model.law.teacher_fields(u[laws], length, values, names)
            for s in taught:
                arrays[s.teacher.__name__][:, here] = fields[s.name]
        for name, place in rows.items():
            if name == centred:
                arrays[name][:, here] = spread_differences(standard_normal(u[place]), length)
            elif name == NOISE.name:
                standard_normal(u[place.start], arrays[name][here])
            else:
                standard_normal(u[place], arrays[name][:, here])

    if total * dimension < SMALL:
        workers = Workers(1)
    workers.map(draw, range(SCRAMBLES))
    if label is not None:
        found = label({**values, **arrays}, length)[0]
        arrays[LABEL.name] = np.broadcast_to(found, (total,)).copy()
    return NodeGroup(length, probability, per_scramble, arrays, dimension)


_LAW = "teacher fields"


def _ordered(model: Model, sizes: Mapping[str, int], law: int) -> list[tuple[str, int]]:
    """Sobol variables in the order of their weight: the first are the best spread.

    Measured on the seven reference rows: with normalised weights readout and label come first
    (twice smaller errors for softmax), with element-wise weights the attention does.
    """
    attention = model.attention
    key = attention.noise.__name__ if attention is not None else ""
    parts = [(_LAW, law), *sizes.items()]
    if model.activation is None or not model.activation.normalised:
        return parts
    return sorted(parts, key=lambda part: (part[0] == key, part[0] == _LAW))


def spread_differences(normals: Array, length: int) -> Array:
    """``(length, n)`` standard normals less their mean over tokens, from ``length - 1`` normals.

    Helmert's orthonormal basis of the vectors that sum to zero, applied in ``O(length)``.
    """
    i = np.arange(1, length)[:, None]
    scaled = normals / np.sqrt(i * (i + 1.0))
    found: Array = np.zeros((length, normals.shape[1]))
    found[: length - 1] = np.cumsum(scaled[::-1], axis=0)[::-1]
    found[1:] -= i * scaled
    return found


def sobol_points(dimension: int, power: int, key: tuple[int, ...]) -> Array:
    """``(dimension, 2^power)`` scrambled Sobol points strictly inside (0, 1)."""
    from scipy.stats import qmc

    rng = np.random.default_rng(np.random.SeedSequence(key))
    points = qmc.Sobol(dimension, scramble=True, rng=rng).random_base2(power)
    tiny = 2.0**-54
    inside: Array = np.ascontiguousarray(points.T)
    np.clip(inside, tiny, 1.0 - 2.0**-53, out=inside)
    return inside
