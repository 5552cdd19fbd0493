"""What a simulation gives: one result per seed, and their averages with standard errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivations.setting import Setting

OVERLAPS = ("m_k", "m_v", "q_k", "q_v", "m_kv", "m_vk", "q_kv")


@dataclass(frozen=True)
class SeedResult:
    """One seed.

    ``train_loss`` and ``gradient_norm`` belong to a minimised training loss: ``None`` where
    there is none (one-pass SGD, message passing). ``path`` holds the overlaps at ``times``:
    iterations of message passing, samples per dimension of SGD.
    """

    seed: int
    overlaps: Mapping[str, float]
    test_error: float
    test_error_sampled: float
    train_loss: float | None
    gradient_norm: float | None
    converged: bool
    times: tuple[float, ...] = ()
    path: tuple[Mapping[str, float], ...] = ()

    def document(self) -> dict[str, Any]:
        return {
            "seed": self.seed, "overlaps": dict(self.overlaps), "test_error": self.test_error,
            "test_error_sampled": self.test_error_sampled, "train_loss": self.train_loss,
            "gradient_norm": self.gradient_norm, "converged": self.converged,
        }


@dataclass(frozen=True)
class Simulation:
    """Averages over seeds; ``standard_errors`` has the same names as the averages."""

    dimension: int
    samples: int
    alpha: float
    overlaps: Mapping[str, float]
    test_error: float
    test_error_sampled: float
    excess_risk: float
    train_loss: float | None
    standard_errors: Mapping[str, Any]
    converged_fraction: float
    gradient_norm: float | None
    per_seed: tuple[SeedResult, ...]
    start: str
    method: str
    seconds: float
    trajectory: tuple[Mapping[str, Any], ...] = ()
    """Means of the overlaps at each ``time``, with ``standard_errors``."""

    def document(self) -> dict[str, Any]:
        """The keys of the command line's JSON."""
        return {
            "overlaps": dict(self.overlaps),
            "test_error": self.test_error,
            "test_error_sampled": self.test_error_sampled,
            "excess_risk": self.excess_risk,
            "train_loss": self.train_loss,
            "standard_errors": {
                k: dict(v) if isinstance(v, Mapping) else v
                for k, v in self.standard_errors.items()
            },
            "converged_fraction": self.converged_fraction,
            "gradient_norm": self.gradient_norm,
            "dimension": self.dimension,
            "samples": self.samples,
            "per_seed": [s.document() for s in self.per_seed],
            **({"trajectory": [dict(t) for t in self.trajectory]} if self.trajectory else {}),
            "seconds": self.seconds,
        }


def summarise(
    setting: Setting,
    alpha: float,
    dimension: int,
    results: list[SeedResult],
    start: str,
    method: str,
    seconds: float,
) -> Simulation:
    """Means over seeds and their standard errors (``None`` for a single seed)."""

    def mean(values: list[Any]) -> Any:
        return None if None in values else float(np.mean(values))

    def error(values: list[Any]) -> float | None:
        if len(values) < 2 or None in values:
            return None
        return float(np.std(values, ddof=1) / math.sqrt(len(values)))

    columns = {n: [r.overlaps[n] for r in results] for n in OVERLAPS}
    scalars: dict[str, list[Any]] = {
        "test_error": [r.test_error for r in results],
        "test_error_sampled": [r.test_error_sampled for r in results],
        "train_loss": [r.train_loss for r in results],
    }
    errors: dict[str, Any] = {"overlaps": {n: error(c) for n, c in columns.items()}}
    errors |= {n: error(c) for n, c in scalars.items()}
    errors["excess_risk"] = errors["test_error"]
    return Simulation(
        dimension=dimension,
        samples=round(alpha * dimension),
        alpha=alpha,
        overlaps={n: mean(c) for n, c in columns.items()},
        test_error=mean(scalars["test_error"]),
        test_error_sampled=mean(scalars["test_error_sampled"]),
        excess_risk=mean(scalars["test_error"]) - setting.noise**2,
        train_loss=mean(scalars["train_loss"]),
        standard_errors=errors,
        converged_fraction=mean([float(r.converged) for r in results]),
        gradient_norm=max((r.gradient_norm for r in results if r.gradient_norm is not None),
                          default=None),
        per_seed=tuple(results),
        start=start,
        method=method,
        seconds=seconds,
        trajectory=tuple(_trajectory(results, mean, error)),
    )


def _trajectory(
    results: list[SeedResult], mean: Callable[[list[Any]], Any], error: Callable[[list[Any]], Any]
) -> Iterator[dict[str, Any]]:
    """Means over seeds along the path; a seed that has converged stays where it is."""
    longest = max(results, key=lambda r: len(r.times))
    for i, time in enumerate(longest.times):
        points = [r.path[min(i, len(r.path) - 1)] for r in results]
        columns = {n: [p[n] for p in points] for n in points[0]}
        yield {
            "time": time, **{n: mean(c) for n, c in columns.items()},
            "standard_errors": {n: error(c) for n, c in columns.items()},
        }
