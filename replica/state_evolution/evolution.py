"""The map of state evolution on pooled nodes, and its fixed points with errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import sympy as sp

from replica.codegen.programs import input_shapes
from replica.derivation.bayes import LOG_G, SCORE
from replica.derivation.chain import BayesEquations
from replica.errors import UsageError
from replica.ir.lower import lower
from replica.model import LABEL, NOISE, NOISE_STD, RATIO, Array
from replica.normals import standard_normal
from replica.saddle_point.averaged import Averaged
from replica.saddle_point.kernels import Compiled
from replica.saddle_point.nodes import SCRAMBLES, sobol_points
from replica.state_evolution.smoothing import Smoothing
from replica.symbolic.tokens import RELEVANT, index

TOLERANCE = 1e-9
MAX_ITERATIONS = 5000
EDGE = 1e-11
"""Overlaps are kept this far from 0 and from the teacher's variance."""
CLOSE = 1e-5
"""Fixed points nearer than this are one."""
STEP = 1e-5
"""Finite-difference step, relative to the distance to the ends of the interval."""
STARTS = {"uninformed": 1e-4, "informed": 1.0 - 1e-6}
NEWTON_EVERY = 25
TRUSTED = 0.05
"""A Newton step longer than this, in the overlaps, is not taken."""


@dataclass(frozen=True)
class FixedPoint:
    """One fixed point of state evolution.

    ``stable`` is whether small deviations shrink under the iteration; ``slope`` is the larger
    eigenvalue of the map there. ``start`` names the start that leads to it: ``uninformed``,
    ``informed``, ``both``, or ``between`` for an unstable one.
    """

    q_k: float
    q_v: float
    test_error: float
    free_entropy: float
    standard_errors: Mapping[str, float]
    start: str
    stable: bool
    slope: float
    residual: float
    converged: bool
    iterations: int

    def document(self) -> dict[str, Any]:
        return {
            "q_k": self.q_k, "q_v": self.q_v, "test_error": self.test_error,
            "free_entropy": self.free_entropy, "standard_errors": dict(self.standard_errors),
            "start": self.start, "stable": self.stable, "slope": self.slope,
            "residual": self.residual, "converged": self.converged,
            "iterations": self.iterations,
        }


class StateEvolution:
    """Derived state evolution of a model at fixed parameters and nodes.

    ``values`` names every parameter but ``alpha`` (``nu`` where finite, ``Delta``). ``nodes`` is
    the total over 8 scrambles; their spread gives the errors.
    """

    def __init__(
        self,
        equations: BayesEquations,
        values: Mapping[str, float],
        lengths: Mapping[int, float],
        nodes: int = 2**14,
        seed: int = 0,
    ) -> None:
        if not 64 <= nodes <= 2**24:
            raise UsageError("nodes", nodes, "64 to 2^24")
        self.equations = equations
        self.model = equations.model
        self.values = dict(values)
        self.lengths = dict(lengths)
        self.nodes, self.seed = nodes, seed
        if not self.values.get(NOISE_STD.name, 1.0) > 0:
            raise UsageError("noise", 0.0, "a number > 0: the posterior needs a likelihood")
        self.sectors = self.model.sectors
        self.rho = np.array([s.variance(self.values) for s in self.sectors])
        self.names = [s.q.name for s in self.sectors]
        extra: dict[str, Any] = {LOG_G.__name__: "token", SCORE.__name__: "pair"}
        self.conjugates = Averaged.of("conjugates", equations.conjugates, self.model, extra)
        self.results = Averaged.of(
            "results",
            {"free_entropy": equations.free_entropy, "test_error": equations.test_error},
            self.model, extra,
        )
        shapes = input_shapes(self.model)
        uniform: dict[str, Any] = {n: s for n, s in shapes.items() if s == "uniform"}
        self.overlaps = Compiled.of(lower("overlaps", equations.overlaps, uniform))
        self.inverse = Compiled.of(lower("inverse", self._inverse(), uniform))
        l = index("l")  # noqa: E741
        law = dict(equations.law)
        value = self.model.readout
        cavity = law[value.cavity.__name__]
        label = law[LABEL.name].xreplace(
            {value.cavity(RELEVANT): cavity.xreplace({l: RELEVANT})}
        )
        fields = {s.cavity.__name__: law[s.cavity.__name__] for s in self.sectors}
        self.law = Compiled.of(
            lower("law", {**fields, LABEL.name: label}, shapes, {l: "token"})
        )
        self.smoothing = None if equations.closed else Smoothing(self.model, self.values)

    def _inverse(self) -> dict[str, Any]:
        """Conjugates as functions of the overlaps, from the derived overlap equations."""
        found = {}
        for s in self.sectors:
            (value,) = sp.solve(self.equations.overlaps[s.q.name] - s.q, s.q_hat)
            found[s.q_hat.name] = value
        return found

    @cached_property
    def normals(self) -> dict[int, dict[str, Array]]:
        """Standard normals by length: fields ``(L, 8 n)``, label noise ``(8 n,)``."""
        found = {}
        for length, probability in self.lengths.items():
            power = max(4, int(np.ceil(np.log2(self.nodes * probability / SCRAMBLES))))
            parts = [
                standard_normal(sobol_points(2 * length + 1, power, (self.seed, 11, length, b)))
                for b in range(SCRAMBLES)
            ]
            drawn = np.concatenate(parts, axis=1)
            key, value = self.sectors
            # the first Sobol variables are the best spread: label and relevant token
            found[length] = {
                NOISE.name: drawn[0],
                value.noise.__name__: np.ascontiguousarray(drawn[1::2]),
                key.noise.__name__: np.ascontiguousarray(drawn[2::2]),
            }
        return found

    # -- averages --------------------------------------------------------------------------------

    def at(self, q: Array, alpha: float) -> dict[str, float]:
        """All uniform values."""
        return {**self.values, **dict(zip(self.names, map(float, q), strict=True)),
                RATIO.name: alpha}

    def means(self, averaged: Averaged, q: Array) -> Array:
        """Block means ``(integrands, 8)`` at overlaps ``q``."""
        total: Any = 0.0
        for length, probability in self.lengths.items():
            total = total + probability * self._mean(averaged, q, length)
        return np.asarray(total)

    def _mean(self, averaged: Averaged, q: Array, length: int) -> Array:
        inputs: dict[str, Any] = {**self.at(q, 1.0), **self.normals[length]}
        nodes = inputs[NOISE.name].shape[0]
        inputs |= self.law.named(inputs, length)
        if self.smoothing is None:
            return _blocks(averaged.on(inputs, length, nodes))
        # the relevant token has probability G_l/sum_m G_m given the keys: sum over its places
        key = self.sectors[0].cavity.__name__
        width = float(np.sqrt(max(self.rho[0] - q[0], EDGE)))
        omega = inputs[key]
        log_g, score = self.smoothing(omega, width)
        total: Any = 0.0
        for place in range(length):
            order = np.arange(length)
            order[[0, place]] = order[[place, 0]]
            here = {
                **inputs, key: omega[order], LOG_G.__name__: log_g[order],
                SCORE.__name__: score[np.ix_(order, order)],
            }
            weight = np.exp(log_g[place]) / length
            total = total + _blocks(weight * averaged.on(here, length, nodes))
        return np.asarray(total)

    def hats(self, q: Array, alpha: float = 1.0) -> Array:
        """Conjugates ``(sectors, 9)``: of the pooled averages, then of each block."""
        means = self.means(self.conjugates, q)
        named = self.conjugates.at(_pooled_first(means), self.at(q, alpha))
        return np.array([named[s.q_hat.name] for s in self.sectors])

    def image(self, q: Array, alpha: float) -> Array:
        """``(sectors, 9)`` images of ``q`` under the map: pooled, then of each block."""
        hats = self.hats(q, alpha)
        named = {s.q_hat.name: h for s, h in zip(self.sectors, hats, strict=True)}
        found = self.overlaps.named({**self.at(q, alpha), **named}, 0)
        return np.array([np.broadcast_to(found[n], hats.shape[1:]) for n in self.names])

    def outcome(self, q: Array, alpha: float) -> dict[str, Array]:
        """Free entropy and test error: pooled, then of each block."""
        means = self.means(self.results, q)
        at = {**self.at(q, alpha)}
        at |= dict(zip(
            (s.q_hat.name for s in self.sectors), self.conjugates_of(q), strict=True
        ))
        named = self.results.at(_pooled_first(means), at)
        return {n: np.broadcast_to(v, (SCRAMBLES + 1,)) for n, v in named.items()}

    def conjugates_of(self, q: Array) -> list[float]:
        """Conjugates that belong to overlaps, from the derived overlap equations."""
        named = self.inverse.named(self.at(q, 1.0), 0)
        return [float(named[s.q_hat.name]) for s in self.sectors]

    def clip(self, q: Array) -> Array:
        return np.clip(q, EDGE * self.rho, (1.0 - EDGE) * self.rho)

    # -- fixed points ----------------------------------------------------------------------------

    def trajectory(self, alpha: float, steps: int, start: float = STARTS["uninformed"]) -> Array:
        """Overlaps ``(steps + 1, 2)`` of the plain iteration."""
        q = start * self.rho
        path = [q]
        for _ in range(steps):
            q = self.clip(self.image(q, alpha)[:, 0])
            path.append(q)
        return np.array(path)

    def jacobian(self, q: Array, alpha: float) -> Array:
        """Derivative of the map by central differences."""
        columns = []
        for i in range(len(q)):
            h = STEP * min(q[i], self.rho[i] - q[i]) + 1e-13
            up, down = q.copy(), q.copy()
            up[i] += h
            down[i] -= h
            columns.append((self.image(up, alpha)[:, 0] - self.image(down, alpha)[:, 0]) / (2 * h))
        return np.array(columns).T

    def settle(self, alpha: float, start: Array) -> tuple[Array, int, float]:
        """Plain iteration from ``start``: end, iterations and residual.

        The map is monotone, so the iteration from near 0 rises to the lowest fixed point and that
        from near the teacher's variance falls to the highest. Newton steps shorten the slow
        approach near a transition; one that turns back, or is long, is not taken.
        """
        q = self.clip(start)
        residual = np.inf
        for i in range(MAX_ITERATIONS):
            new = self.clip(self.image(q, alpha)[:, 0])
            step = new - q
            residual = float(np.abs(step).max())
            q = new
            if residual <= TOLERANCE:
                return q, i + 1, residual
            if i % NEWTON_EVERY == NEWTON_EVERY - 1:
                found = self._newton(q, alpha, step)
                if found is not None:
                    return found, i + 1, self._residual(found, alpha)
        return q, MAX_ITERATIONS, residual

    def _residual(self, q: Array, alpha: float) -> float:
        return float(np.abs(self.image(q, alpha)[:, 0] - q).max())

    def _newton(self, q: Array, alpha: float, direction: Array) -> Array | None:
        point = q
        for _ in range(8):
            gap = self.image(point, alpha)[:, 0] - point
            J = self.jacobian(point, alpha)
            if np.abs(np.linalg.eigvals(J)).max() >= 1:
                return None
            move = np.linalg.solve(np.eye(len(q)) - J, gap)
            point = point + move
            if np.any(point != self.clip(point)) or np.abs(point - q).max() > TRUSTED:
                return None
            if np.abs(move).max() < 0.1 * TOLERANCE:
                forward = (point - q) * np.sign(direction)
                return point if np.all(forward > -1e-6) else None
        return None

    def fixed_point(self, q: Array, alpha: float, start: str, iterations: int) -> FixedPoint:
        """What is known at a fixed point, with linear response to the spread over blocks."""
        image = self.image(q, alpha)
        J = self.jacobian(q, alpha)
        slope = float(np.abs(np.linalg.eigvals(J)).max())
        response = np.linalg.inv(np.eye(len(q)) - J)
        moved = response @ (image[:, 1:] - image[:, :1])
        found = self.outcome(q, alpha)
        gradient = []
        for i in range(len(q)):
            h = STEP * min(q[i], self.rho[i] - q[i]) + 1e-13
            ends = []
            for sign in (1, -1):
                near = q.copy()
                near[i] += sign * h
                ends.append(self.outcome(near, alpha)["test_error"][0])
            gradient.append((ends[0] - ends[1]) / (2 * h))
        errors = {n: block_error(m) for n, m in zip(self.names, moved, strict=True)}
        test = found["test_error"]
        errors["test_error"] = block_error(test[1:] + np.array(gradient) @ moved)
        errors["free_entropy"] = block_error(found["free_entropy"][1:])  # stationary
        residual = float(np.abs(image[:, 0] - q).max())
        return FixedPoint(
            q_k=float(q[0]), q_v=float(q[1]), test_error=float(test[0]),
            free_entropy=float(found["free_entropy"][0]), standard_errors=errors, start=start,
            stable=slope < 1, slope=slope, residual=residual,
            converged=residual <= 10 * TOLERANCE, iterations=iterations,
        )


def _pooled_first(means: Array) -> Array:
    """``(integrands, 9)``: the mean over blocks before the blocks."""
    return np.asarray(np.concatenate([means.mean(axis=1, keepdims=True), means], axis=1))


def _blocks(values: Array) -> Array:
    """Means over the nodes of each scramble."""
    return np.asarray(values.reshape(len(values), SCRAMBLES, -1).mean(axis=2))


def block_error(blocks: Array) -> float:
    return float(np.std(blocks, ddof=1) / np.sqrt(SCRAMBLES))
