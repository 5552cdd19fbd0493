"""Approximate message passing for the Bayes-optimal estimate on sampled data.

The scores of the channel and the extra precision of the keys are the derived ones, generated to
NumPy. On the Nishimori line the precision of an estimate is the mean square of its scores, so no
second derivative is needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from derivations.setting import Setting
from replica.codegen.programs import input_shapes
from replica.derivation.bayes import LOG_G, SCORE
from replica.derivation.chain import BayesEquations, derive_bayes
from replica.ir.lower import lower
from replica.model import LABEL, RATIO, Array
from replica.saddle_point.averaged import Averaged
from replica.saddle_point.kernels import Compiled
from replica.saddle_point.nodes import sobol_points
from replica.state_evolution.smoothing import Smoothing
from replica.symbolic.tokens import index
from validation.data import Dataset, draw
from validation.erm import all_overlaps
from validation.population import fresh_error, population_error
from validation.results import SeedResult

FREE = 5
"""Iterations without damping: undamped iterations leave state evolution later at finite size."""
DAMPING = 0.5
ITERATIONS = 200
SETTLED = 1e-5
"""Root mean square change of the estimates at which the iteration ends."""
CONVERGED = 2e-3
"""The change below which it counts as converged."""


@dataclass
class _Side:
    """One sector's estimate: mean, variance, precisions, and the scores of every batch."""

    mean: Array
    variance: float
    gain: float = 0.0
    scores: list[Array] = field(default_factory=list)


@dataclass(frozen=True)
class Estimate:
    """Posterior means ``(D,)``, their variances, and the overlaps after every iteration."""

    k: Array
    v: Array
    variance_k: float
    variance_v: float
    trajectory: tuple[dict[str, float], ...]
    change: float
    converged: bool


class MessagePassing:
    """The generated pieces of a setting, ready to run on its data."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.equations: BayesEquations = derive_bayes(setting.model())
        self.model = self.equations.model
        self.values = {n: x for n, x in setting.values().items() if n in ("nu", "Delta")}
        steps = self.equations.derivation
        shapes: dict[str, Any] = {
            **input_shapes(self.model), LOG_G.__name__: "token", SCORE.__name__: "pair",
        }
        self.scores = Compiled.of(lower(
            "scores", steps["scores of the channel"].conclusion, shapes, {index("l"): "token"}
        ))
        self.smoothing = None if self.equations.closed else Smoothing(self.model, self.values)
        self.closed_weight = None if not self.equations.closed else Compiled.of(lower(
            "weight", {"log_G": steps["channel"].conclusion["log_G"]}, shapes,
            {index("l"): "token"},
        ))
        self.extra = self._extra_precision()

    def _extra_precision(self) -> float:
        """``2 c'(1)`` per sample ratio: what the norm of the key tells."""
        steps = self.equations.derivation
        if "precision of the keys" not in steps:
            return 0.0
        averaged = Averaged.of(
            "precision", steps["precision of the keys"].conclusion, self.model
        )
        total: Any = 0.0
        for length, probability in self.setting.lengths.items():
            key = self.model.sectors[0]
            dimension = self.model.law.dimension(length, (key.name,))
            fields = self.model.law.teacher_fields(
                sobol_points(dimension, 12, (3, length)), length, self.values, (key.name,)
            )
            inputs = {**self.values, key.teacher.__name__: fields[key.name]}
            total = total + probability * averaged.on(inputs, length, 2**12).mean(axis=1)
        return float(averaged.at(np.asarray(total), {**self.values, RATIO.name: 1.0})["precision"])

    def channel(self, fields: dict[str, Array], labels: Array, variances: dict[str, float]
                ) -> dict[str, Array]:
        """Scores ``g_w``, each ``(L, n)``, at fields ``(L, n)``."""
        length, n = next(iter(fields.values())).shape
        inputs: dict[str, Any] = {**self.values, **fields, LABEL.name: labels}
        for s in self.model.sectors:
            inputs[s.q.name] = float(s.variance(self.values)) - variances[s.name]
        if self.smoothing is not None:
            key = self.model.sectors[0]
            width = math.sqrt(variances[key.name])
            log_g, score = self.smoothing(fields[key.cavity.__name__], width)
            inputs |= {LOG_G.__name__: log_g, SCORE.__name__: score}
        found = self.scores.named(inputs, length)
        return {s.name: np.broadcast_to(found[f"g_{s.name}"], (length, n))
                for s in self.model.sectors}

    def place_weights(self, fields: Array, variance: float) -> Array:
        """Posterior probability of each token to be the relevant one, no label seen."""
        key = self.model.sectors[0]
        if self.smoothing is not None:
            log_g, _ = self.smoothing(fields, math.sqrt(variance))
        else:
            assert self.closed_weight is not None
            at = {**self.values, key.cavity.__name__: fields,
                  key.q.name: float(key.variance(self.values)) - variance}
            log_g = np.broadcast_to(self.closed_weight(at, len(fields))[0], fields.shape)
        weights = np.exp(log_g - log_g.max(axis=0))
        return np.asarray(weights / weights.sum(axis=0))

    def run_seed(self, alpha: float, dimension: int, seed: int, start: str) -> SeedResult:
        """Sample, estimate, measure. The predictor weighs values by the places' probabilities."""
        s = self.setting
        samples = round(alpha * dimension)
        data = draw(s.task, s.nu, s.lengths, s.noise, dimension, samples, seed)
        found = self.run(data)

        def attention(named: Any, length: int) -> tuple[Any, ...]:
            return (self.place_weights(named[self.model.sectors[0].field_name], found.variance_k),)

        measured = found.trajectory[-1]
        error = population_error(
            self.model, attention, measured, s.values(), s.lengths, s.noise, power=12
        )
        return SeedResult(
            seed=seed, overlaps=measured, test_error=error,
            test_error_sampled=fresh_error(
                s, self.model, attention, data, found.k, found.v, seed
            ),
            train_loss=None, gradient_norm=None, converged=found.converged,
            times=tuple(float(t + 1) for t in range(len(found.trajectory))),
            path=found.trajectory,
        )

    def run(self, data: Dataset, iterations: int = ITERATIONS) -> Estimate:
        """Iterate from no information."""
        D, samples = len(data.key), data.samples
        root = math.sqrt(D)
        rho = {s.name: float(s.variance(self.values)) for s in self.model.sectors}
        key, value = self.model.sectors
        extra = {key.name: self.extra * samples / D, value.name: 0.0}
        sides = {s.name: _Side(np.zeros(D), rho[s.name]) for s in self.model.sectors}
        for side in sides.values():
            side.scores = [np.zeros((b.length, len(b.labels))) for b in data.batches]
        path: list[dict[str, float]] = []
        change = math.inf
        for t in range(iterations):
            share = 1.0 if t < FREE else 1.0 - DAMPING
            variances = {n: side.variance for n, side in sides.items()}
            for i, batch in enumerate(data.batches):
                flat = batch.tokens.reshape(-1, D)
                fields = {}
                for s in self.model.sectors:
                    side = sides[s.name]
                    raw = (flat @ side.mean / root).reshape(-1, batch.length).T
                    fields[s.cavity.__name__] = np.ascontiguousarray(
                        raw - side.variance * side.scores[i]
                    )
                found = self.channel(fields, batch.labels, variances)
                for n, side in sides.items():
                    side.scores[i] = share * found[n] + (1.0 - share) * side.scores[i]
            moved = 0.0
            for n, side in sides.items():
                square = sum(float(np.sum(g * g)) for g in side.scores) / D
                gain = square if t == 0 else share * square + (1.0 - share) * side.gain
                pull = np.zeros(D)
                for g, batch in zip(side.scores, data.batches, strict=True):
                    pull += np.ascontiguousarray(g.T).reshape(-1) @ batch.tokens.reshape(-1, D)
                new = ((gain - extra[n]) * side.mean + pull / root) / (1.0 / rho[n] + gain)
                moved = max(moved, float(np.sqrt(np.mean((new - side.mean) ** 2))))
                side.mean = share * new + (1.0 - share) * side.mean
                side.variance = share / (1.0 / rho[n] + gain) + (1.0 - share) * side.variance
                side.gain = gain
            path.append(all_overlaps(data, sides[key.name].mean, sides[value.name].mean))
            change = moved
            if not math.isfinite(moved) or moved < SETTLED:
                break
        return Estimate(
            sides[key.name].mean, sides[value.name].mean, sides[key.name].variance,
            sides[value.name].variance, tuple(path), change,
            math.isfinite(change) and change < CONVERGED,
        )
