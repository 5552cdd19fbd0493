"""Ridge strengths of least test error, by gradients through the saddle point."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from replica.errors import UsageError
from replica.model import Array
from replica.saddle_point.response import response
from replica.saddle_point.solution import Solution
from replica.saddle_point.solve import SaddlePointProblem

LOWEST, HIGHEST = 1e-4, 1e3
"""Range of the ridge strengths."""
STARTS = (0.1, 1.0)
"""Strengths from which a first search starts; a curve goes on from the point before."""
SEARCH_NODES, SEARCH_TOLERANCE = 2**12, 1e-7
"""Nodes of the search. The error is flat at its minimum, so few do; the result has all nodes."""
EVALUATIONS = 50
GRADIENT = 1e-3
"""Slope of ``log E`` by ``log r`` at which a search ends: what is left in ``E`` is its square."""
PATTERN = (0.2, 0.05)
"""Steps in ``log r`` of the final comparison of neighbours. Where minima of the samples jump the
error has kinks that slopes do not see."""
GAIN = 1e-5
"""Relative gain below which a neighbour is not better."""
EDGE = 1.02
"""Within this factor of the range's end the optimum counts as at the end."""


@dataclass(frozen=True)
class BestRidge:
    """The solution at the best strengths, which are its ``ridge``.

    ``at_edge`` names the strengths that ended at the end of the range: the infimum lies beyond.
    ``slopes`` are ``d log E / d log r`` on the nodes of the search where the descent ended, zero
    where a neighbour without slopes was better.
    """

    solution: Solution
    at_edge: tuple[str, ...]
    slopes: Mapping[str, float]
    evaluations: int


class _Enough(Exception):
    """The evaluations of one search are used up."""


class _Count:
    """Evaluations of one search, and of all."""

    def __init__(self) -> None:
        self.all = self.here = 0

    def begin(self) -> None:
        self.here = 0

    def add(self) -> None:
        if self.here >= EVALUATIONS:
            raise _Enough
        self.here += 1
        self.all += 1


@dataclass(frozen=True)
class _Place:
    """``log E`` at ``log r``, the overlaps there, and slopes if they were asked for."""

    value: float
    at: Array
    x: Array | None
    slope: Array


def risk_slopes(problem: SaddlePointProblem, solution: Solution, alpha: float) -> dict[str, float]:
    """``dE/dr_w`` along the saddle point, by implicit differentiation.

    With ``x = F(x, r)``: ``dx/dr = (1 - F')^-1 dF/dr``; ``r`` enters ``F`` through the prior alone.
    """
    x = problem.point(solution)
    moves = response(problem, x, alpha, problem.inner)
    hats = problem.named_hats(solution)
    at = problem.uniform(x, alpha)
    found = {}
    for s in problem.sectors:
        r = at[s.ridge.name]
        h = 1e-5 * r
        up, down = (problem.overlaps(hats, {**at, s.ridge.name: r + d}) for d in (h, -h))
        found[s.ridge.name] = float(
            moves.slope[2 * len(x)] @ (moves.inverse @ ((up - down) / (2 * h)))
        )
    return found


def at_ridge(problem: SaddlePointProblem, ridge: Mapping[str, float]) -> SaddlePointProblem:
    """The same problem on the same nodes at other ridge strengths."""
    other = problem.sibling(ridge)
    other.nodes = problem.nodes
    return other


def solutions(
    problem: SaddlePointProblem, free: Sequence[str], alphas: Sequence[float],
    report: Callable[[int], None] | None = None,
) -> Iterator[Solution]:
    """Solutions along ``alphas`` at the ridge strengths given, those named in ``free`` chosen."""
    if not free:
        return problem.curve(alphas, report)
    return (best.solution for best in RidgeSearch(problem, free).curve(alphas, report))


class RidgeSearch:
    """Minimise the test error of a problem over the ridge strengths named in ``free``."""

    def __init__(self, problem: SaddlePointProblem, free: Sequence[str]) -> None:
        names = [s.ridge.name for s in problem.sectors]
        for name in free:
            if name not in names:
                raise UsageError("reg", name, ", ".join(names))
        self.problem, self.free = problem, tuple(free)
        self.rough = problem.rougher(SEARCH_NODES, SEARCH_TOLERANCE)

    def solve(self, alpha: float, start: BestRidge | None = None) -> BestRidge:
        """The best strengths at one sample ratio.

        Starts from the usual strengths, and from ``start``, a result nearby.
        """
        candidates: list[tuple[Array, Array | None]] = [] if start is None else [
            (np.log([start.solution.ridge[n] for n in self.free]),
             self.rough.point(start.solution))
        ]
        candidates += [(np.full(len(self.free), math.log(r)), None) for r in STARTS]
        count, clock = _Count(), time.perf_counter()
        ends = [self._descend(alpha, p, x, count) for p, x in candidates]
        best, settled = self._compare(alpha, min(ends, key=lambda e: e.value), count)
        ridge = self._strengths(best.at)
        final = at_ridge(self.problem, ridge)
        solution = final.solve(alpha, best.x)
        edge = tuple(n for n in self.free if not LOWEST * EDGE < ridge[n] < HIGHEST / EDGE)
        messages = [f"optimal {n} is at the end of the range, {ridge[n]:g}" for n in edge]
        if not math.isfinite(best.value):
            messages.append("no ridge strength gave a saddle point")
        elif not settled:
            messages.append("the search over ridge strengths was cut short")
        solution = replace(
            solution, messages=(*solution.messages, *messages),
            seconds=time.perf_counter() - clock,
            converged=solution.converged and math.isfinite(best.value),
        )
        return BestRidge(
            solution, edge, dict(zip(self.free, map(float, best.slope), strict=True)), count.all
        )

    def curve(
        self, alphas: Sequence[float], report: Callable[[int], None] | None = None
    ) -> Iterator[BestRidge]:
        """Results along ``alphas``; each point starts from the one before, and afresh too."""
        last: BestRidge | None = None
        for i, alpha in enumerate(alphas):
            found = self.solve(alpha, last)
            last = found if found.solution.converged else None
            if report is not None:
                report(i + 1)
            yield found

    def _strengths(self, at: Array) -> dict[str, float]:
        return dict(zip(self.free, map(float, np.exp(at)), strict=True))

    def _at(self, alpha: float, at: Array, x: Array | None, slopes: bool) -> _Place:
        """The rough problem at strengths ``exp(at)``, solved from ``x``."""
        problem = at_ridge(self.rough, self._strengths(at))
        found = problem._solve_from(alpha, x)
        if not found.converged and x is not None:
            found = problem._solve_from(alpha, None)
        if not found.converged or not found.test_error > 0:
            return _Place(math.inf, at, x, np.zeros(len(at)))
        slope = np.zeros(len(at))
        if slopes:
            by_name = risk_slopes(problem, found, alpha)
            slope = np.array([by_name[n] for n in self.free]) * np.exp(at) / found.test_error
        return _Place(math.log(found.test_error), at, problem.point(found), slope)

    def _descend(self, alpha: float, place: Array, x: Array | None, count: _Count) -> _Place:
        """Down the slopes from one start."""
        from scipy.optimize import minimize

        low, high = math.log(LOWEST), math.log(HIGHEST)
        best = _Place(math.inf, np.clip(place, low, high), x, np.zeros(len(place)))
        count.begin()

        def error(at: Array) -> tuple[float, Array]:
            nonlocal best
            count.add()
            here = self._at(alpha, at.copy(), best.x, slopes=True)
            if here.value < best.value and np.all(np.isfinite(here.slope)):
                best = here
            # where there is no saddle point a wall: the line search steps back
            return min(here.value, 10.0), np.nan_to_num(here.slope, posinf=0.0, neginf=0.0)

        with contextlib.suppress(_Enough):
            minimize(
                error, best.at, jac=True, method="L-BFGS-B", bounds=[(low, high)] * len(place),
                options={"gtol": GRADIENT, "ftol": 1e-8},
            )
        # at an end of the range a slope that points outwards is none
        outwards = ((best.at <= low + 1e-9) & (best.slope > 0)) | (
            (best.at >= high - 1e-9) & (best.slope < 0)
        )
        return replace(best, slope=np.where(outwards, 0.0, best.slope))

    def _compare(self, alpha: float, best: _Place, count: _Count) -> tuple[_Place, bool]:
        """Move to better neighbours, by steps that shrink; whether none was left."""
        if not math.isfinite(best.value):
            return best, True
        low, high = math.log(LOWEST), math.log(HIGHEST)
        count.begin()

        def better(move: Array, than: _Place) -> _Place:
            at = np.clip(best.at + move, low, high)
            if np.all(at == best.at):
                return than
            count.add()
            here = self._at(alpha, at, best.x, slopes=False)
            return here if here.value < than.value - GAIN else than

        try:
            for step in PATTERN:
                while True:
                    moved = best
                    for move in step * np.eye(len(best.at)):
                        moved = better(-move, better(move, moved))
                    if moved is best:
                        break
                    while moved is not best:  # on in the same direction, in longer steps
                        move, best = 2 * (moved.at - best.at), moved
                        moved = better(move, best)
        except _Enough:
            return best, False
        return best, True
