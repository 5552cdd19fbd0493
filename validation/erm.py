"""Regularised empirical risk minimisation by L-BFGS on sampled data.

The loss and its gradient by the local fields are the generated kernels of the derived model, so
any activation trains; the optimiser is SciPy's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from replica.codegen.cuda import Device
from replica.model import LABEL, Array
from replica.saddle_point.kernels import Compiled
from validation.data import Dataset

GRADIENT_TOLERANCE = 1e-6
MAX_ITERATIONS = 5000
CHUNK = 4096
"""Samples per call of the loss kernel; keeps temporaries in cache."""


@dataclass(frozen=True)
class Trained:
    """Weights at the end of training, each ``(D,)``; losses are regularised, per dimension."""

    k: Array
    v: Array
    train_loss: float
    gradient_norm: float
    converged: bool
    iterations: int


class TrainingProblem:
    """``sum_mu loss + r_k |k|^2/2 + r_v |v|^2/2``, divided by ``D``.

    The tokens and ``loss`` may live on a device, arrays of the module ``xp``; the two weight
    vectors and the optimiser stay on the host.
    """

    def __init__(
        self, data: Dataset, loss: Compiled, values: dict[str, float], reg_k: float, reg_v: float,
        device: Device | None = None,
    ) -> None:
        self.device = device
        self.xp: Any = np if device is None else device.xp
        self.data, self.loss, self.values = data, loss, values
        self.reg_k, self.reg_v = reg_k, reg_v
        self.dimension = len(data.key)

    def objective(self, weights: Array) -> tuple[float, Array]:
        """Value and gradient at ``(k, v)`` concatenated."""
        D = self.dimension
        xp = self.xp
        pair = xp.asarray(weights.reshape(2, D).T / math.sqrt(D))
        total = 0.5 * (self.reg_k * weights[:D] @ weights[:D]
                       + self.reg_v * weights[D:] @ weights[D:])
        gradient = np.concatenate([self.reg_k * weights[:D], self.reg_v * weights[D:]])
        for batch in self.data.batches:
            flat = batch.tokens.reshape(-1, D)
            scores = flat @ pair
            chi = xp.ascontiguousarray(scores[:, 0].reshape(-1, batch.length).T)
            z = xp.ascontiguousarray(scores[:, 1].reshape(-1, batch.length).T)
            slopes = xp.empty((len(batch.labels), batch.length, 2))
            chunk = CHUNK if self.device is None else max(1, len(batch.labels))
            for a in range(0, len(batch.labels), chunk):
                here = slice(a, a + chunk)
                inputs: dict[str, Any] = {
                    **self.values, "chi": chi[:, here], "z": z[:, here],
                    LABEL.name: batch.labels[here],
                }
                loss, by_chi, by_z = self.loss(inputs, batch.length)
                total += float(xp.sum(loss))
                slopes[here, :, 0] = xp.broadcast_to(by_chi, chi[:, here].shape).T
                slopes[here, :, 1] = xp.broadcast_to(by_z, z[:, here].shape).T
            by_weights = (flat.T @ slopes.reshape(-1, 2)).T.ravel() / math.sqrt(D)
            gradient += by_weights if self.device is None else self.device.host(by_weights)
        return float(total) / D, gradient / D

    def train(self, start: Array) -> Trained:
        """Minimise from ``start`` (shape ``(2D,)``)."""
        from scipy.optimize import minimize

        found = minimize(
            self.objective, start, jac=True, method="L-BFGS-B",
            options={
                "maxiter": MAX_ITERATIONS, "maxfun": 2 * MAX_ITERATIONS, "maxcor": 20,
                "gtol": GRADIENT_TOLERANCE / self.dimension, "ftol": 1e-15,
            },
        )
        D = self.dimension
        # gradient of the loss per dimension by weights of order one, root mean square
        norm = float(np.linalg.norm(found.jac) * math.sqrt(D / 2))
        return Trained(
            k=found.x[:D], v=found.x[D:], train_loss=float(found.fun), gradient_norm=norm,
            converged=norm < 1e-4, iterations=int(found.nit),
        )


def starting_weights(data: Dataset, start: str, seed: int) -> Array:
    """``(k, v)`` at the teachers (informed) or of variance 0.01 (random)."""
    if start == "informed":
        return np.concatenate([data.key, data.value])
    rng = np.random.default_rng([seed, 2])
    weights: Array = 0.1 * rng.standard_normal(2 * len(data.key))
    return weights


def overlaps(data: Dataset, trained: Trained) -> dict[str, float]:
    """All seven overlaps."""
    return all_overlaps(data, trained.k, trained.v)


def all_overlaps(data: Dataset, k: Array, v: Array) -> dict[str, float]:
    """The seven overlaps of weights ``(D,)``."""
    D, key, value = len(data.key), data.key, data.value
    pairs = {
        "m_k": (k, key), "m_v": (v, value), "q_k": (k, k), "q_v": (v, v),
        "m_kv": (k, value), "m_vk": (v, key), "q_kv": (k, v),
    }
    return {n: float(a @ b) / D for n, (a, b) in pairs.items()}
