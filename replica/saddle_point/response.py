"""Linear response of a saddle point: how results move with the overlaps and with the sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from replica.model import RATIO, Array
from replica.saddle_point.nodes import SCRAMBLES
from replica.saddle_point.sweep import Averages

if TYPE_CHECKING:
    from replica.saddle_point.solve import SaddlePointProblem

STEP = 1e-5


@dataclass(frozen=True)
class Response:
    """``slope``: derivatives of :func:`outputs` by the overlaps, ``(2n + 2, n)``.

    ``inverse``: ``(1 - F')^-1`` of the map ``F`` of the overlaps, ``(n, n)``; NaN if singular.
    """

    slope: Array

    @property
    def inverse(self) -> Array:
        size = self.slope.shape[1]
        try:
            return np.asarray(np.linalg.inv(np.eye(size) - self.slope[:size]))
        except np.linalg.LinAlgError:
            return np.full((size, size), np.nan)


def outputs(
    problem: SaddlePointProblem, means: Mapping[str, float], at: Mapping[str, float]
) -> Array:
    """New overlaps, their conjugates, test error and training loss, ``(2n + 2,)``."""
    hats = problem.hats(means, at)
    risk = float(problem.kernels.risk.named({**at, **means}, 0)["test_error"])
    loss = at[RATIO.name] * means["loss"] + sum(
        0.5 * at[s.ridge.name] * at[s.q.name] for s in problem.sectors
    )
    return np.concatenate([
        problem.overlaps(hats, at), [hats[n] for n in problem.hat_names], [risk, loss]
    ])


def response(problem: SaddlePointProblem, x: Array, alpha: float, inner: float) -> Response:
    """Finite differences on the problem's nodes; the minimisers are left as they were."""
    at = problem.uniform(x, alpha)
    engine = problem.engine
    base = outputs(problem, engine.sweep(at, inner).pooled(), at)
    saved = [s.copy() for s in engine.state]
    columns = []
    for i in range(len(x)):
        moved = x.copy()
        sign = -1.0 if i % 3 == 0 and x[i] > 0 else 1.0  # towards smaller |m|: feasible
        moved[i] += sign * STEP * max(0.1, abs(x[i]))
        there = problem.uniform(moved, alpha)
        image = outputs(problem, engine.sweep(there, inner).pooled(), there)
        columns.append((image - base) / (moved[i] - x[i]))
        for state, kept in zip(engine.state, saved, strict=True):
            state[...] = kept
    return Response(np.array(columns).T)


def standard_errors(
    problem: SaddlePointProblem, found: Response, averages: Averages, x: Array, alpha: float
) -> tuple[dict[str, Any], float]:
    """Errors from the spread over scrambles, ``delta x = (1 - F')^-1 (F_s(x) - F(x))``.

    The second value is the largest spread of ``delta x`` relative to the overlaps (``m`` to
    ``sqrt(q rho)``): the errors hold to first order in it.
    """
    at = problem.uniform(x, alpha)
    base = outputs(problem, averages.pooled(), at)
    spread = np.array([
        outputs(problem, {n: float(v[s]) for n, v in averages.per_scramble.items()}, at) - base
        for s in range(SCRAMBLES)
    ])
    size = len(x)
    shifts = found.inverse @ spread[:, :size].T
    total = spread.T[size:] + found.slope[size:] @ shifts
    error = np.concatenate([shifts, total]).std(axis=1, ddof=1) / np.sqrt(SCRAMBLES)
    envelope = averages.per_scramble["envelope"]
    names = problem.names
    scale = np.concatenate([
        (np.sqrt(q * rho), q, V)
        for (_, q, V), rho in zip(x.reshape(-1, 3), problem.rho, strict=True)
    ])
    moved = shifts.std(axis=1, ddof=1)
    stretch = float(np.max(np.divide(moved, scale, out=np.zeros(size), where=scale > 0)))
    return {
        "order_parameters": dict(zip(names, map(float, error[:size]), strict=True)),
        "conjugates": dict(zip(names, map(float, error[size : 2 * size]), strict=True)),
        "test_error": float(error[2 * size]),
        "train_loss": float(error[2 * size + 1]),
        # stationary: to first order only the average itself varies
        "free_energy": float(alpha * envelope.std(ddof=1) / np.sqrt(SCRAMBLES)),
    }, stretch
