"""Simulation of a setting over seeds: all overlaps, losses and errors with standard errors."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from derivations.setting import Setting
from replica.codegen.cuda import Device, find_device
from replica.codegen.programs import build_programs
from replica.derivation.chain import derive_erm
from replica.errors import UsageError
from replica.ir.lower import lower
from replica.model import SIGMA, Model
from replica.saddle_point.kernels import Compiled
from replica.symbolic.tokens import index
from validation.data import Dataset, draw
from validation.device_data import draw_on_device
from validation.erm import Trained, TrainingProblem, overlaps, starting_weights
from validation.population import population_error, sampled_error

OVERLAPS = ("m_k", "m_v", "q_k", "q_v", "m_kv", "m_vk", "q_kv")
FRESH = 2000
"""Fresh samples per seed for the sampled test error."""


@dataclass(frozen=True)
class SeedResult:
    """One seed."""

    seed: int
    overlaps: Mapping[str, float]
    test_error: float
    test_error_sampled: float
    train_loss: float
    gradient_norm: float
    converged: bool

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
    train_loss: float
    standard_errors: Mapping[str, Any]
    converged_fraction: float
    gradient_norm: float
    per_seed: tuple[SeedResult, ...]
    start: str
    method: str
    seconds: float

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
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class Simulator:
    """The generated kernels of one setting, ready to train on samples."""

    setting: Setting
    model: Model
    loss: Compiled
    weights: Compiled
    device: Device | None = None

    def run_seed(
        self, alpha: float, dimension: int, seed: int, start: str
    ) -> SeedResult:
        """Sample, train, measure."""
        s, values = self.setting, self.setting.values()
        samples = round(alpha * dimension)
        law = (s.task, s.nu, s.lengths, s.noise, dimension, samples, seed)
        data = draw(*law) if self.device is None else draw_on_device(self.device, *law)
        problem = TrainingProblem(data, self.loss, values, s.reg_k, s.reg_v, self.device)
        trained = problem.train(starting_weights(data, start, seed))
        if s.activation.even and trained.k @ data.key < 0:
            trained = replace(trained, k=-trained.k)  # the same predictor
        measured = overlaps(data, trained)
        error = population_error(
            self.model, self.weights, measured, values, s.lengths, s.noise
        )
        return SeedResult(
            seed=seed, overlaps=measured, test_error=error,
            test_error_sampled=self._fresh_error(data, trained, dimension, seed),
            train_loss=trained.train_loss, gradient_norm=trained.gradient_norm,
            converged=trained.converged,
        )

    def _fresh_error(self, data: Dataset, trained: Trained, dimension: int, seed: int) -> float:
        s = self.setting
        fresh = draw(s.task, s.nu, s.lengths, s.noise, dimension, FRESH, seed,
                     given=(data.key, data.value), stream=1)
        predictions, labels = [], []
        for b in fresh.batches:
            chi = (b.tokens @ trained.k / math.sqrt(dimension)).T
            z = (b.tokens @ trained.v / math.sqrt(dimension)).T
            named = {**s.values(), self.model.sectors[0].field_name: chi}
            sigma = np.broadcast_to(self.weights(named, b.length)[0], chi.shape)
            predictions.append((sigma * z).sum(axis=0))
            labels.append(b.labels)
        return sampled_error(np.concatenate(predictions), np.concatenate(labels))


def make_simulator(setting: Setting, backend: str = "auto") -> Simulator:
    """Generate the kernels of a setting. ``backend``: ``auto`` and ``numpy`` are the CPU.

    Raises
    ------
    UsageError
        For an unknown backend, or ``cuda`` without a device.
    """
    if backend not in ("auto", "numpy", "cuda"):
        raise UsageError("backend", backend, "auto, numpy, cuda")
    model = setting.model()
    programs = build_programs(derive_erm(model), stein=True)
    weights = attention_kernel(model, setting)
    if backend != "cuda":
        return Simulator(setting, model, Compiled.of(programs.loss), weights)
    device, found = find_device()
    if device is None:
        raise UsageError("backend", backend, f"numpy here: {found}")
    from cupyx.scipy import special

    loss = Compiled.of(programs.loss).on(device.xp, special)
    return Simulator(setting, model, loss, weights, device)


def attention_kernel(model: Model, setting: Setting) -> Compiled:
    """The attention weights as a function of the scores."""
    activation, attention = model.activation, model.attention
    assert activation is not None
    assert attention is not None
    j = index("j")
    inputs: dict[str, Any] = {attention.field_name: "token"}
    inputs |= {n: "uniform" for n in setting.values()}
    program = lower(
        "weights", {SIGMA.__name__: activation.at(attention.field, j)}, inputs, {j: "token"}
    )
    return Compiled.of(program)


def simulate_setting(
    setting: Setting,
    alpha: float,
    dimension: int,
    seeds: int,
    *,
    start: str = "random",
    method: str = "lbfgs",
    first_seed: int = 0,
    progress: Callable[[int], None] | None = None,
    keep: list[SeedResult] | None = None,
    simulator: Simulator | None = None,
    threads: int | None = None,
) -> Simulation:
    """Train ``seeds`` times and average.

    Parameters
    ----------
    keep
        A list that receives each seed's result as it is finished, so that an interrupt loses
        only the seed in flight.
    simulator
        Kernels already generated for this setting.
    threads
        Threads of the linear algebra; the library's own choice if omitted.

    Raises
    ------
    UsageError
        For a dimension below 2, no seeds, no samples, or an unknown start or method.
    """
    if dimension < 2:
        raise UsageError("dimension", dimension, "an integer >= 2")
    if seeds < 1:
        raise UsageError("seeds", seeds, "an integer >= 1")
    if start not in ("informed", "random"):
        raise UsageError("start", start, "informed, random")
    if method != "lbfgs":
        raise UsageError("method", method, "lbfgs")
    if round(alpha * dimension) < 1:
        raise UsageError("alpha", alpha, f"at least one sample: alpha >= 0.5/{dimension}")
    clock = time.perf_counter()
    simulator = simulator or make_simulator(setting)
    results: list[SeedResult] = [] if keep is None else keep
    with threadpool_limits(threads):
        for i in range(seeds):
            results.append(simulator.run_seed(alpha, dimension, first_seed + i, start))
            if progress is not None:
                progress(i + 1)
    return summarise(
        setting, alpha, dimension, results, start, method, time.perf_counter() - clock
    )


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

    def mean(values: list[float]) -> float:
        return float(np.mean(values))

    def error(values: list[float]) -> float | None:
        return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None

    columns = {n: [r.overlaps[n] for r in results] for n in OVERLAPS}
    scalars = {
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
        gradient_norm=max(r.gradient_norm for r in results),
        per_seed=tuple(results),
        start=start,
        method=method,
        seconds=seconds,
    )
