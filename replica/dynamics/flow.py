"""The derived flow of the overlaps, integrated in time with an error from eight scrambles."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import sympy as sp

from replica.codegen.programs import input_shapes
from replica.derivation.chain import FlowEquations
from replica.derivation.flow import STEP
from replica.derivation.reduction import with_activation
from replica.derivation.transverse import curvature_at, slope_at
from replica.dynamics.fields import FieldLaw
from replica.dynamics.starts import OVERLAPS
from replica.errors import UsageError
from replica.ir.lower import lower
from replica.ir.program import Shape
from replica.model import LABEL, Array
from replica.saddle_point.averaged import Averaged
from replica.saddle_point.kernels import Compiled
from replica.saddle_point.nodes import SCRAMBLES
from replica.symbolic.averages import Expectation
from replica.symbolic.tokens import index

RELATIVE, ABSOLUTE = 1e-6, 1e-8
DIVERGED = 1e4
"""Overlaps larger than this are a divergence."""
BOUND = 10 * DIVERGED
"""A trial step of the integrator is not evaluated beyond this."""
SETTLED = 1e-3
"""Rates, relative to the overlaps, below which the flow has come to rest."""
NARROW = 1e-6
"""A part of the key off its teacher below this fraction of it cannot be shared with the values."""
CROSS = ("m_kv", "m_vk", "q_kv")
Complete = Callable[[dict[str, Any], int, int], dict[str, Any]]
"""Further inputs from the named ones, the length and the number of nodes."""


@dataclass(frozen=True)
class Stability:
    """Eigenvalues of the cross overlaps' linearised flow: real parts, the largest first.

    ``standard_error`` is that of the largest. ``decays`` says whether all are negative.
    """

    growth_rates: tuple[float, ...]
    standard_error: float

    @property
    def decays(self) -> bool:
        return self.growth_rates[0] < 0

    def document(self) -> dict[str, Any]:
        return {"growth_rates": list(self.growth_rates), "standard_error": self.standard_error,
                "decays": self.decays}


@dataclass(frozen=True)
class Trajectory:
    """Overlaps ``(times, 7)`` with standard errors, test errors, and what happens off the manifold.

    Times are samples per dimension, or those multiplied by the step size for gradient flow.
    """

    start: str
    times: tuple[float, ...]
    overlaps: Array
    standard_errors: Array
    test_error: Array
    test_error_errors: Array
    settled: bool
    diverged: bool
    stability: tuple[Stability, Stability] | None
    """At the start and at the end."""

    def at_end(self, name: str) -> float:
        return float(self.overlaps[-1, OVERLAPS.index(name)])

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "start": self.start, "time": list(self.times),
            "overlaps": {n: self.overlaps[:, i].tolist() for i, n in enumerate(OVERLAPS)},
            "test_error": self.test_error.tolist(),
            "standard_errors": {
                "overlaps": {n: self.standard_errors[:, i].tolist()
                             for i, n in enumerate(OVERLAPS)},
                "test_error": self.test_error_errors.tolist(),
            },
            "settled": self.settled, "diverged": self.diverged,
        }
        if self.stability is not None:
            first, last = self.stability
            found["manifold"] = {"start": first.document(), "end": last.document()}
        return found


class OverlapFlow:
    """One-pass SGD of step size ``step`` on a model; gradient flow at ``step = 0``.

    Parameters
    ----------
    values
        Every parameter by the name of its symbol; ``r_k, r_v`` are the weight decay.
    nodes
        In total over eight scrambles, each of which is integrated on its own.

    Raises
    ------
    UsageError
        For a step below 0 or too few nodes.
    """

    def __init__(
        self, equations: FlowEquations, values: Mapping[str, float], lengths: Mapping[int, float],
        step: float, nodes: int = 2**14, seed: int = 0,
    ) -> None:
        if not 0 <= step < math.inf:
            raise UsageError("step", step, "a number >= 0; 0 is gradient flow")
        if not 128 <= nodes <= 2**22:
            raise UsageError("nodes", nodes, "128 to 2^22")
        self.model, self.step, self.nodes, self.seed = equations.model, step, nodes, seed
        self.values = {**values, STEP.name: step}
        self.lengths = dict(lengths)
        self.law = FieldLaw(self.model, self.values, self.lengths, nodes, seed)
        steps = equations.derivation
        known: dict[str, Shape] = {STEP.name: "uniform", **{n: "uniform" for n in OVERLAPS}}
        rates = steps["flow of the overlaps" if step > 0 else "gradient flow"].conclusion
        self.rates = Averaged.of("rates", rates, self.model, known)
        prediction = with_activation(self.model.prediction, self.model)
        error = Expectation((LABEL - prediction) ** 2, self.model.random_symbols)
        self.error = Averaged.of("error", {"test_error": error}, self.model, known)
        self.equations = equations

    # -- averages ------------------------------------------------------------------------------

    def _means(
        self, averaged: Averaged, overlaps: Array, block: int, complete: Complete | None = None
    ) -> Array:
        """Averages over one scramble at overlaps ``(7,)``; ``complete`` adds inputs of its own."""
        total: Any = 0.0
        for length, draws in self.law.draws.items():
            for fields in self.law.chunks(overlaps, length, block):
                count = len(fields[LABEL.name])
                inputs = {**self.values, **fields}
                if complete is not None:
                    inputs |= complete(inputs, length, count)
                sums = averaged.on(inputs, length, count).sum(axis=1)
                total = total + draws.probability * SCRAMBLES / len(draws.label) * sums
        return np.asarray(total)

    def _uniform(self, overlaps: Array) -> dict[str, Any]:
        return {**self.values, **dict(zip(OVERLAPS, overlaps.T, strict=True))}

    def rate(self, overlaps: Array, block: int) -> Array:
        """Rates ``(7,)`` at overlaps ``(7,)``, averaged over one scramble."""
        found = self.rates.at(self._means(self.rates, overlaps, block), self._uniform(overlaps))
        return np.array([float(found[f"d{n}"]) for n in OVERLAPS])

    def test_error(self, overlaps: Array) -> Array:
        """``E(y - f)^2`` of each scramble at overlaps ``(8, 7)``."""
        return np.array([
            float(self.error.at(self._means(self.error, x, b), self._uniform(x))["test_error"])
            for b, x in enumerate(overlaps)
        ])

    # -- the manifold --------------------------------------------------------------------------

    @cached_property
    def _growth(self) -> tuple[Compiled, Compiled, Averaged]:
        """Slopes, second slopes, and the averages of the cross overlaps' linearised flow."""
        steps, model = self.equations.derivation, self.model
        shapes = input_shapes(model)
        j, i = index("j"), index("i")
        slopes = Compiled.of(lower(
            "slopes", steps["slopes of the loss"].conclusion, shapes, {j: "token"}
        ))
        second = Compiled.of(lower(
            "second", steps["curvature of the loss"].conclusion, shapes, {j: "row", i: "col"}
        ))
        extra: dict[str, Shape] = {STEP.name: "uniform", **{n: "uniform" for n in OVERLAPS}}
        extra |= {slope_at(s).__name__: "token" for s in model.sectors}
        extra |= {curvature_at(a, c).__name__: "pair" for a in model.sectors
                  for c in model.sectors}
        growth = dict(steps["stability of the manifold"].conclusion)
        if self.step == 0:  # per unit of step size times time
            growth = {n: sp.diff(e, STEP).xreplace({STEP: sp.S.Zero}) for n, e in growth.items()}
        return slopes, second, Averaged.of("growth", growth, model, extra)

    def stability(self, overlaps: Array) -> Stability | None:
        """Growth of small cross overlaps at overlaps ``(8, 7)`` on the manifold.

        ``None`` where the flow has no such step (a single sector).
        """
        if "stability of the manifold" not in self.equations.derivation:
            return None
        on = overlaps.copy()
        on[:, [OVERLAPS.index(n) for n in CROSS]] = 0.0
        m, q = (on[:, OVERLAPS.index(n)].mean() for n in ("m_k", "q_k"))
        narrow = q - m * m / self.law.rho[0] < NARROW * q
        matrices = np.array([self._growth_matrix(x, b, narrow) for b, x in enumerate(on)])
        if narrow:
            matrices = matrices[:, :2, :2]
        pooled = np.linalg.eigvals(matrices.mean(axis=0))
        blocks = [np.linalg.eigvals(x).real.max() for x in matrices]
        rates = tuple(sorted(map(float, pooled.real), reverse=True))
        return Stability(rates, float(_spread(np.array(blocks), 0)))

    def _growth_matrix(self, overlaps: Array, block: int, narrow: bool) -> Array:
        """Derivatives of the cross overlaps' rates by the cross overlaps, one scramble."""
        slopes, second, growth = self._growth
        k, v = self.model.sectors
        at = overlaps.copy()
        if narrow:  # no part of the key is left to share: its inverse width counts as zero
            at[OVERLAPS.index("q_k")] = np.inf
        uniform = self._uniform(at)

        def complete(inputs: dict[str, Any], length: int, nodes: int) -> dict[str, Any]:
            first, twice = slopes.named(inputs, length), second.named(inputs, length)
            return uniform | {
                slope_at(s).__name__: np.broadcast_to(first[f"slope_{s.name}"], (length, nodes))
                for s in (k, v)
            } | {
                curvature_at(a, c).__name__: np.broadcast_to(
                    twice[f"hessian_{a.name}{c.name}"], (length, length, nodes)
                ) for a in (k, v) for c in (k, v)
            }

        found = growth.at(self._means(growth, overlaps, block, complete), uniform)
        return np.array([[float(found[f"growth_{x}_{y}"]) for y in CROSS] for x in CROSS])

    # -- time ----------------------------------------------------------------------------------

    def run(
        self, start: Mapping[str, float], times: Iterable[float], name: str = ""
    ) -> Trajectory:
        """Integrate from ``start`` (overlaps by name, zero where not named) over ``times``.

        Raises ``UsageError`` for overlaps that no weights can have.
        """
        from scipy.integrate import solve_ivp

        first = self.checked(start)
        grid = list(map(float, times))
        runs = []
        for block in range(SCRAMBLES):
            def rate(_: float, x: Array, block: int = block) -> Array:
                with np.errstate(over="ignore", invalid="ignore"):
                    found = self.rate(np.clip(x, -BOUND, BOUND), block)
                return np.where(np.isfinite(found), found, 0.0)

            def size(_: float, x: Array) -> float:
                return float(np.abs(x).max()) - DIVERGED

            size.terminal = True  # type: ignore[attr-defined]
            runs.append(solve_ivp(
                rate, (grid[0], grid[-1]), first, method="RK45", t_eval=grid, rtol=RELATIVE,
                atol=ABSOLUTE, events=size,
            ))
        kept = min(len(r.t) for r in runs)
        states = np.stack([r.y.T[:kept] for r in runs], axis=1)
        errors = np.array([self.test_error(x) for x in states])
        last = states[-1]
        moving = np.abs(np.mean([self.rate(x, b) for b, x in enumerate(last)], axis=0)).max()
        ends = [self.stability(x) for x in (states[0], last)]
        pair = None if None in ends else (ends[0], ends[1])

        return Trajectory(
            start=name, times=tuple(grid[:kept]), overlaps=states.mean(axis=1),
            standard_errors=_spread(states, 1), test_error=errors.mean(axis=1),
            test_error_errors=_spread(errors, 1),
            settled=bool(moving < SETTLED * max(1.0, float(np.abs(last).max()))),
            diverged=any(r.status != 0 for r in runs),
            stability=pair,  # type: ignore[arg-type]
        )

    def checked(self, start: Mapping[str, float]) -> Array:
        """The seven overlaps of a start. Raises ``UsageError`` if their matrix is not one of
        scalar products."""
        unknown = set(start) - set(OVERLAPS)
        if unknown:
            raise UsageError("start", sorted(unknown)[0], ", ".join(OVERLAPS))
        x = {n: float(start.get(n, 0.0)) for n in OVERLAPS}
        rho_k, rho_v = self.law.rho
        gram = np.array([
            [rho_k, 0.0, x["m_k"], x["m_vk"]], [0.0, rho_v, x["m_kv"], x["m_v"]],
            [x["m_k"], x["m_kv"], x["q_k"], x["q_kv"]], [x["m_vk"], x["m_v"], x["q_kv"], x["q_v"]],
        ])
        if not np.all(np.isfinite(gram)) or np.linalg.eigvalsh(gram).min() < -1e-9:
            raise UsageError("start", dict(start), "overlaps of vectors: m^2 <= q, and the like")
        return np.array([x[n] for n in OVERLAPS])


def _spread(values: Array, axis: int) -> Array:
    """Standard error of a mean over the scrambles along ``axis``."""
    return np.asarray(np.std(values, axis=axis, ddof=1) / math.sqrt(SCRAMBLES))
