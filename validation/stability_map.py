"""The replicon over a plane of two parameters, and the line on which it is 1."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from derivations.setting import Setting
from replica.errors import UsageError
from replica.saddle_point.ridge import at_ridge
from replica.saddle_point.solution import Solution
from replica.saddle_point.solve import SaddlePointProblem, SolverOptions
from validation.processes import run_jobs
from validation.results import Simulation

RIDGES = ("reg", "reg_k", "reg_v")
AXES = ("alpha", "nu", "noise", *RIDGES)
BISECTIONS = 6
APART, FINITE_SIZE = 4.0, 0.03
"""Standard errors, and relative difference on top, beyond which simulation and theory part."""
NEAR = 0.02
"""Relative width of a bracket at which the search for the line ends."""


@dataclass(frozen=True)
class MapPoint:
    """The saddle point at one place of the plane; ``replicon`` also where it did not converge.

    ``simulated`` is the test error of training on sampled data, ``None`` without simulations.
    """

    x: float
    y: float
    replicon: float | None
    standard_error: float | None
    test_error: float
    test_error_error: float
    converged: bool
    simulated: float | None = None
    simulated_error: float | None = None

    @property
    def stable(self) -> bool:
        return self.converged and self.replicon is not None and self.replicon < 1

    @property
    def parts(self) -> bool:
        """Whether theory and simulation part: beyond their errors and a finite-size margin."""
        if self.simulated is None or self.simulated_error is None:
            return False
        error = math.hypot(self.test_error_error, self.simulated_error)
        return abs(self.simulated - self.test_error) > (
            APART * error + FINITE_SIZE * abs(self.test_error)
        )

    def document(self) -> dict[str, Any]:
        return {
            "x": self.x, "y": self.y, "replicon": self.replicon,
            "standard_error": self.standard_error, "test_error": self.test_error,
            "stable": self.stable, "converged": self.converged,
            **({} if self.simulated is None else {
                "simulated_test_error": self.simulated,
                "simulated_standard_error": self.simulated_error, "parts": self.parts,
            }),
        }


@dataclass(frozen=True)
class Crossing:
    """A place on the line: ``y`` at which the replicon is 1, for one ``x``.

    ``standard_error`` is that of the replicon over its slope, and at least half the last bracket
    where one of its ends did not converge.
    """

    x: float
    y: float
    standard_error: float

    def document(self) -> dict[str, Any]:
        return {"x": self.x, "y": self.y, "standard_error": self.standard_error}


@dataclass(frozen=True)
class Plane:
    """What to map: the setting, its ``alpha``, and the values of the two axes."""

    setting: Setting
    alpha: float
    x: str
    xs: tuple[float, ...]
    y: str
    ys: tuple[float, ...]
    options: SolverOptions
    workers: int | None = None
    dimension: int | None = None
    """Dimension of simulations at every place; none if omitted."""
    seeds: int = 8

    def __post_init__(self) -> None:
        for name, axis in (("x", self.x), ("y", self.y)):
            if axis not in AXES:
                raise UsageError(name, axis, ", ".join(AXES))
        if self.x == self.y or (self.x in RIDGES and "reg" in (self.x, self.y)
                                and self.y in RIDGES):
            raise UsageError("y", self.y, f"another axis than {self.x}")
        if self.dimension is not None:
            smallest = min(self.xs) if self.x == "alpha" else (
                min(self.ys) if self.y == "alpha" else self.alpha
            )
            if self.dimension < 10 or round(smallest * self.dimension) < 10:
                raise UsageError("dimension", self.dimension, "at least 10, with ten samples")
            if self.seeds < 3:
                raise UsageError("seeds", self.seeds, "an integer >= 3")
        for axis, values in ((self.x, self.xs), (self.y, self.ys)):
            if len(set(values)) < 2 or len(set(values)) < len(values):
                raise UsageError(axis.replace("_", "-"), _text(values),
                                 "at least two different values for an axis")
            zero = axis in ("nu", "noise")
            if not all(math.isfinite(v) and (v > 0 or (v == 0 and zero)) for v in values):
                raise UsageError(axis.replace("_", "-"), _text(values),
                                 f"finite numbers {'>=' if zero else '>'} 0")

    def at(self, x: float, y: float) -> tuple[Setting, float]:
        """Setting and ``alpha`` at a place."""
        values: dict[str, Any] = {}
        for axis, value in ((self.x, x), (self.y, y)):
            values |= {n: value for n in (("reg_k", "reg_v") if axis == "reg" else (axis,))}
        alpha = float(values.pop("alpha", self.alpha))
        return replace(self.setting, **values), alpha


def _text(values: Sequence[float]) -> str:
    return ",".join(f"{v:g}" for v in values)


@dataclass(frozen=True)
class StabilityMap:
    """Points in the order of ``ys`` within that of ``xs``, and the line in the order of ``xs``."""

    plane: Plane
    points: tuple[MapPoint, ...]
    line: tuple[Crossing, ...]

    def document(self) -> dict[str, Any]:
        return {
            "x": self.plane.x, "y": self.plane.y,
            "points": [p.document() for p in self.points],
            "line": [c.document() for c in self.line],
        }


class _Column:
    """All places of one ``x``; problems that differ in the ridge alone share nodes and code."""

    def __init__(self, plane: Plane, x: float) -> None:
        self.plane, self.x = plane, x
        self.problems: dict[Any, SaddlePointProblem] = {}

    def problem(self, setting: Setting) -> SaddlePointProblem:
        from replica.derivation.chain import derive_erm

        key = (setting.nu, setting.noise)
        if key not in self.problems:
            shared = next(iter(self.problems.values()), None)
            self.problems[key] = SaddlePointProblem(
                derive_erm(setting.model()) if shared is None else shared.equations,
                setting.values(), setting.lengths, self.plane.options,
            )
        return at_ridge(self.problems[key], {"r_k": setting.reg_k, "r_v": setting.reg_v})

    def solve(self, y: float, last: Solution | None) -> Solution:
        setting, alpha = self.plane.at(self.x, y)
        problem = self.problem(setting)
        return problem.solve(alpha, None if last is None else problem.point(last))

    def point(self, y: float, s: Solution) -> MapPoint:
        simulated = self.simulate(y) if self.plane.dimension else None
        return MapPoint(
            self.x, y, s.replicon, s.standard_errors["replicon"], s.test_error,
            s.standard_errors["test_error"], s.converged,
            simulated.test_error if simulated else None,
            simulated.standard_errors["test_error"] if simulated else None,
        )

    def simulate(self, y: float) -> Simulation:
        from validation.simulate import simulate_setting

        assert self.plane.dimension is not None
        setting, alpha = self.plane.at(self.x, y)
        return simulate_setting(
            setting, alpha, self.plane.dimension, self.plane.seeds, start="random",
            first_seed=self.plane.options.seed,
        )

    def run(self) -> tuple[list[MapPoint], list[Crossing]]:
        """From the last ``y`` to the first: large ridge strengths are the easy end."""
        order = sorted(self.plane.ys, reverse=True)
        solved: list[tuple[float, Solution]] = []
        last: Solution | None = None
        for y in order:
            s = self.solve(y, last)
            solved.append((y, s))
            last = s if s.converged else None
        line = [c for a, b in itertools.pairwise(solved)
                if (c := self.crossing(a, b)) is not None]
        points = {y: self.point(y, s) for y, s in solved}
        return [points[y] for y in self.plane.ys], line

    def crossing(
        self, above: tuple[float, Solution], below: tuple[float, Solution]
    ) -> Crossing | None:
        """Where the replicon passes 1 between two places, by bisection and interpolation."""
        ends = [above, below]
        if any(s.replicon is None for _, s in ends) or (_excess(above[1]) > 0) == (
            _excess(below[1]) > 0
        ):
            return None
        logarithmic = min(above[0], below[0]) > 0
        for _ in range(BISECTIONS):
            (a, left), (b, right) = ends
            if abs(a - b) <= NEAR * max(abs(a), abs(b)):
                break
            middle = math.sqrt(a * b) if logarithmic else 0.5 * (a + b)
            start = left if left.converged else right
            s = self.solve(middle, start if start.converged else None)
            if s.replicon is None:
                break
            side = 0 if (_excess(s) > 0) == (_excess(left) > 0) else 1
            ends[side] = (middle, s)
        (a, left), (b, right) = ends
        fa, fb = _excess(left), _excess(right)
        y = a + (b - a) * fa / (fa - fb)
        slope = abs((fb - fa) / (b - a))
        error = max(float(s.standard_errors["replicon"] or 0.0) / float(s.replicon or 1.0)
                    for s in (left, right)) / slope
        if not (left.converged and right.converged):
            error = max(error, 0.5 * abs(a - b))
        return Crossing(self.x, y, min(error, abs(above[0] - below[0])))


def _excess(s: Solution) -> float:
    return math.log(max(float(s.replicon or 0.0), 1e-12))


def _work(job: tuple[Plane, int]) -> tuple[int, list[MapPoint], list[Crossing]]:
    plane, column = job
    points, line = _Column(plane, plane.xs[column]).run()
    return column, points, line


def stability_map(
    plane: Plane, progress: Callable[[int, int], None] | None = None
) -> tuple[StabilityMap, bool]:
    """Map the plane, a process per column, and whether Ctrl-C stopped it; what is done is kept."""
    jobs = [(plane, i) for i in range(len(plane.xs))]
    done, interrupted = run_jobs(_work, jobs, plane.workers, progress)
    done.sort(key=lambda d: d[0])
    return StabilityMap(
        plane, tuple(p for _, points, _ in done for p in points),
        tuple(c for *_, line in done for c in line),
    ), interrupted


def axis_words(words: Mapping[str, Any], axes: tuple[str, str]) -> dict[str, Any]:
    """Model options with the axes' own values left out: a number stands in for each."""
    found = dict(words)
    for axis in axes:
        if axis in RIDGES:
            names = ("reg_k", "reg_v") if axis == "reg" else (axis,)
            found |= {n: 1.0 for n in names}
        elif axis != "alpha":
            found[axis] = 1.0
    return found
