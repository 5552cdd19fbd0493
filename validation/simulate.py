"""Simulation of a setting over seeds: all overlaps, losses and errors with standard errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

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
from validation.data import draw
from validation.device_data import draw_on_device
from validation.erm import TrainingProblem, overlaps, starting_weights
from validation.population import fresh_error, population_error
from validation.results import SeedResult, Simulation, summarise

METHODS = {"lbfgs": "random", "amp": "uninformed", "sgd": "random"}
"""Methods and the start that each takes where none is named."""


class Learner(Protocol):
    """Samples, learns and measures one seed."""

    def run_seed(self, alpha: float, dimension: int, seed: int, start: str) -> SeedResult: ...


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
            test_error_sampled=fresh_error(
                s, self.model, self.weights, data, trained.k, trained.v, seed
            ),
            train_loss=trained.train_loss, gradient_norm=trained.gradient_norm,
            converged=trained.converged,
        )


def make_learner(
    setting: Setting, method: str = "lbfgs", backend: str = "auto", step: float = 0.5
) -> Learner:
    """What learns by ``method``; ``step`` is that of SGD.

    Raises
    ------
    UsageError
        For an unknown method or a backend that it does not run on.
    """
    if method == "lbfgs":
        return make_simulator(setting, backend)
    if method not in METHODS:
        raise UsageError("method", method, ", ".join(METHODS))
    if backend not in ("auto", "numpy"):
        raise UsageError("backend", backend, f"auto, numpy with --method {method}")
    if method == "amp":
        from validation.amp import MessagePassing

        return MessagePassing(setting)
    from validation.sgd import OnePass

    return OnePass(setting, attention_kernel(setting.model(), setting), step)


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
    start: str | None = None,
    method: str = "lbfgs",
    first_seed: int = 0,
    progress: Callable[[int], None] | None = None,
    keep: list[SeedResult] | None = None,
    simulator: Learner | None = None,
    threads: int | None = None,
) -> Simulation:
    """Learn ``seeds`` times and average.

    Parameters
    ----------
    start
        ``informed`` or ``random``; message passing has one start, ``uninformed``.
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
    if method not in METHODS:
        raise UsageError("method", method, ", ".join(METHODS))
    start = METHODS[method] if start is None else start
    allowed = ("uninformed",) if method == "amp" else ("informed", "random")
    if start not in allowed:
        raise UsageError("start", start, ", ".join(allowed))
    if round(alpha * dimension) < 1:
        raise UsageError("alpha", alpha, f"at least one sample: alpha >= 0.5/{dimension}")
    clock = time.perf_counter()
    simulator = simulator or make_learner(setting, method)
    results: list[SeedResult] = [] if keep is None else keep
    with threadpool_limits(threads):
        for i in range(seeds):
            results.append(simulator.run_seed(alpha, dimension, first_seed + i, start))
            if progress is not None:
                progress(i + 1)
    return summarise(
        setting, alpha, dimension, results, start, method, time.perf_counter() - clock
    )
