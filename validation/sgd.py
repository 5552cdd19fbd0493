"""One-pass stochastic gradient descent on fresh samples, with the derived slopes of the loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from derivations.setting import Setting, positive
from replica.codegen.programs import input_shapes
from replica.derivation.chain import derive_flow
from replica.dynamics.starts import OVERLAPS, STARTS, own_parts
from replica.ir.lower import lower
from replica.model import LABEL, Array
from replica.saddle_point.kernels import Compiled
from replica.symbolic.tokens import index
from validation.data import Dataset, draw, teachers
from validation.erm import all_overlaps
from validation.population import Weights, fresh_error, population_error
from validation.results import SeedResult

RECORDS = 40
"""Times at which the overlaps are kept."""
BLOCK = 256
"""Samples drawn at once."""


def weights_with(
    start: Mapping[str, float], key: Array, value: Array, seed: int
) -> tuple[Array, Array]:
    """``k, v`` of shape ``(D,)`` with exactly the given overlaps, random otherwise.

    Random weights would have chance overlaps of order ``1/sqrt(D)``.
    """
    dimension = len(key)
    rng = np.random.default_rng([seed, 2])
    basis = np.linalg.qr(
        np.stack([key, value, *rng.standard_normal((2, dimension))], axis=1)
    )[0].T * math.sqrt(dimension)
    first, second = basis[2], basis[3]  # the signs of the first two are QR's own
    at = {n: start.get(n, 0.0) for n in OVERLAPS}
    side, along, off = own_parts(at)
    k = at["m_k"] * key + at["m_kv"] * value + side * first
    v = at["m_vk"] * key + at["m_v"] * value + along * first + off * second
    return k, v


class OnePass:
    """SGD of step size ``step``; the ridge strengths of the setting are the weight decay."""

    def __init__(self, setting: Setting, attention: Weights, step: float) -> None:
        self.setting, self.attention = setting, attention
        self.step = positive("step", step)
        self.model = setting.model()
        slopes = derive_flow(self.model).derivation["slopes of the loss"].conclusion
        self.slopes = Compiled.of(
            lower("slopes", slopes, input_shapes(self.model), {index("j"): "token"})
        )

    def run_seed(
        self, alpha: float, dimension: int, seed: int, start: str | Mapping[str, float]
    ) -> SeedResult:
        """``alpha D`` steps, and the overlaps along them."""
        s = self.setting
        overlaps = STARTS[start] if isinstance(start, str) else start
        key, value = teachers(dimension, np.random.default_rng([seed, 0]))
        data = Dataset((), key, value)
        k, v = weights_with(overlaps, key, value, seed)
        total = round(alpha * dimension)
        records = {round(total * i / RECORDS) for i in range(1, RECORDS + 1)} - {0}
        times, path = [0.0], [all_overlaps(data, k, v)]
        root = math.sqrt(dimension)
        shrink_k, shrink_v = (1.0 - self.step * r / dimension for r in (s.reg_k, s.reg_v))
        sectors = self.model.sectors
        done = 0
        with np.errstate(over="ignore", invalid="ignore"):
            while done < total:
                count = min(BLOCK, total - done)
                fresh = draw(s.task, s.nu, s.lengths, s.noise, dimension, count, seed,
                             given=(key, value), stream=2 + done // BLOCK)
                for batch, i in self._in_turn(fresh, seed, done):
                    X = batch.tokens[i]
                    inputs: dict[str, Any] = {
                        **s.values(), sectors[0].field_name: (X @ k / root)[:, None],
                        sectors[1].field_name: (X @ v / root)[:, None],
                        LABEL.name: batch.labels[i : i + 1],
                    }
                    g_k, g_v = (np.ravel(g) for g in self.slopes(inputs, batch.length))
                    k = shrink_k * k - self.step * (g_k @ X) / root
                    v = shrink_v * v - self.step * (g_v @ X) / root
                    done += 1
                    if done in records:
                        times.append(done / dimension)
                        path.append(all_overlaps(data, k, v))
        measured = path[-1]
        finite = all(math.isfinite(x) for x in measured.values())
        weights = self.attention
        error = population_error(
            self.model, weights, measured, s.values(), s.lengths, s.noise
        ) if finite else math.inf
        sampled = fresh_error(
            s, self.model, weights, data, k, v, seed
        ) if finite else math.inf
        return SeedResult(
            seed=seed, overlaps=measured, test_error=error, test_error_sampled=sampled,
            train_loss=None, gradient_norm=None, converged=finite,
            times=tuple(times), path=tuple(path),
        )

    def _in_turn(self, data: Dataset, seed: int, done: int) -> Any:
        """Samples of all lengths in a random order: batches hold one length each."""
        order = [(b, i) for b in data.batches for i in range(len(b.labels))]
        if len(data.batches) > 1:
            np.random.default_rng([seed, 3, done]).shuffle(order)
        return order
