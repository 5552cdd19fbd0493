"""Sampling single-location regression exactly, in finite dimension.

Sample ``mu`` of seed ``s`` depends on ``(s, mu block)`` alone. The teachers are orthogonalised and
scaled to ``|k*|^2 = |v*|^2 = D``, so that no chance overlap of order ``1/sqrt(D)`` enters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from replica.errors import UsageError
from replica.model import Array

MEMORY_LIMIT = 6e9


@dataclass(frozen=True)
class Batch:
    """Samples of one length: tokens ``(n, length, D)``, labels ``(n,)``; the relevant token is
    at ``location``, shape ``(n,)``."""

    tokens: Array
    labels: Array
    location: np.ndarray
    length: int


@dataclass(frozen=True)
class Dataset:
    """Batches by length, and the teachers, each of shape ``(D,)``."""

    batches: tuple[Batch, ...]
    key: Array
    value: Array

    @property
    def samples(self) -> int:
        return sum(len(b.labels) for b in self.batches)


def teachers(dimension: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Orthogonal ``k*, v*`` with squared norm ``D``."""
    key, value = rng.standard_normal((2, dimension))
    key *= math.sqrt(dimension) / np.linalg.norm(key)
    value -= key * (key @ value) / dimension
    value *= math.sqrt(dimension) / np.linalg.norm(value)
    return key, value


def check_memory(lengths: Mapping[int, float], dimension: int, samples: int) -> None:
    """Raise ``UsageError`` with the size if the tokens of a data set would not fit."""
    mean_length = sum(k * p for k, p in lengths.items())
    needed = 8.0 * samples * mean_length * dimension
    if needed > MEMORY_LIMIT:
        raise UsageError(
            "dimension", dimension,
            f"a data set below {MEMORY_LIMIT / 1e9:.0f} GB (this one needs {needed / 1e9:.1f} GB)",
        )


def draw(
    task: str,
    nu: float,
    lengths: Mapping[int, float],
    noise: float,
    dimension: int,
    samples: int,
    seed: int,
    *,
    given: tuple[Array, Array] | None = None,
    stream: int = 0,
) -> Dataset:
    """Draw a data set.

    Parameters
    ----------
    stream
        0 for training, another number for fresh samples of the same seed.
    given
        Teachers to use; drawn from the seed if omitted.

    Raises
    ------
    UsageError
        If the tokens would not fit in memory.
    """
    check_memory(lengths, dimension, samples)
    key, value = given or teachers(dimension, np.random.default_rng([seed, 0]))
    rng = np.random.default_rng([seed, 1, stream])
    batches = tuple(
        _batch(task, nu, length, noise, key, value, count, rng)
        for length, count in _counts(lengths, samples, rng).items()
    )
    return Dataset(batches, key, value)


def split_samples(lengths: Mapping[int, float], samples: int, seed: int) -> dict[int, int]:
    """How many of the training samples of a seed have each length."""
    return _counts(lengths, samples, np.random.default_rng([seed, 1, 0]))


def _counts(
    lengths: Mapping[int, float], samples: int, rng: np.random.Generator
) -> dict[int, int]:
    drawn = rng.choice(list(lengths), size=samples, p=list(lengths.values()))
    counts = {length: int(np.count_nonzero(drawn == length)) for length in sorted(lengths)}
    return {length: n for length, n in counts.items() if n}


def _batch(
    task: str,
    nu: float,
    length: int,
    noise: float,
    key: Array,
    value: Array,
    count: int,
    rng: np.random.Generator,
) -> Batch:
    dimension = len(key)
    tokens = rng.standard_normal((count, length, dimension))
    rows = np.arange(count)
    if task == "spiked":
        location = rng.integers(length, size=count)
        tokens[rows, location] += math.sqrt(nu / dimension) * key
    else:
        scores = tokens @ key / math.sqrt(dimension)
        if math.isinf(nu):
            location = scores.argmax(axis=1)
        else:  # Gumbel's trick draws from softmax(nu scores)
            location = (nu * scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    labels = tokens[rows, location] @ value / math.sqrt(dimension)
    labels = labels + noise * rng.standard_normal(count)
    return Batch(tokens, labels, location, length)
