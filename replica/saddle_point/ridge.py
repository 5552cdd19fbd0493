"""Ridge strengths of least test error, by gradients through the saddle point."""

from __future__ import annotations

import contextlib
import math
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
SEARCH_NODES = 2**12
"""Nodes of the search. The error is flat at its minimum, so few do; the result has all nodes."""
EVALUATIONS = 40
GRADIENT = 1e-3
"""Slope of ``log E`` by ``log r`` at which a search ends: what is left in ``E`` is its square."""
EDGE = 1.02
"""Within this factor of the range's end the optimum counts as at the end."""


@dataclass(frozen=True)
class BestRidge:
    """The strengths by name of their symbols, and the solution there.

    ``at_edge`` names the strengths that ended at the end of the range: the infimum lies beyond.
    ``slopes`` are ``d log E / d log r`` at the solution on the nodes of the search.
    """

    ridge: Mapping[str, float]
    solution: Solution
    at_edge: tuple[str, ...]
    slopes: Mapping[str, float]
    evaluations: int


class _Enough(Exception):
    """The evaluations of one descent are used up."""


def risk_slopes(problem: SaddlePointProblem, solution: Solution, alpha: float) -> dict[str, float]:
    """``dE/dr_w`` along the saddle point, by implicit differentiation.

    With ``x = F(x, r)``: ``dx/dr = (1 - F')^-1 dF/dr``; ``r`` enters ``F`` through the prior alone.
    """
    x = problem.point(solution)
    moves = response(problem, x, alpha, problem.inner)
    hats = {n: solution.conjugates[o] for n, o in
            zip(problem.hat_names, problem.names, strict=True)}
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
    other = SaddlePointProblem(
        problem.equations, {**problem.values, **ridge}, problem.lengths, problem.options,
        problem.kernels,
    )
    other.nodes, other.workers = problem.nodes, problem.workers
    return other


class RidgeSearch:
    """Minimise the test error of a problem over the ridge strengths named in ``free``."""

    def __init__(self, problem: SaddlePointProblem, free: Sequence[str]) -> None:
        names = [s.ridge.name for s in problem.sectors]
        for name in free:
            if name not in names:
                raise UsageError("reg", name, ", ".join(names))
        self.problem, self.free = problem, tuple(free)
        few = min(SEARCH_NODES, problem.options.nodes)
        options = replace(
            problem.options, nodes=few, tolerance=max(problem.options.tolerance, 1e-7)
        )
        self.rough = SaddlePointProblem(
            problem.equations, problem.values, problem.lengths, options, problem.kernels
        )
        self.rough.workers = problem.workers

    def solve(
        self, alpha: float, start: BestRidge | None = None, several: bool = True
    ) -> BestRidge:
        """The best strengths at one sample ratio.

        Starts from ``start``, a result nearby, and with ``several`` also from the usual strengths.
        """
        candidates: list[tuple[Array, Array | None]] = [] if start is None else [
            (np.log([start.ridge[n] for n in self.free]), self.rough.point(start.solution))
        ]
        if several or not candidates:
            candidates += [(np.full(len(self.free), math.log(r)), None) for r in STARTS]
        ends = [self._descend(alpha, p, x) for p, x in candidates]
        evaluations = sum(e[3] for e in ends)
        value, place, x, _, slope = min(ends, key=lambda e: e[0])
        ridge = dict(zip(self.free, map(float, np.exp(place)), strict=True))
        final = at_ridge(self.problem, ridge)
        solution = final.solve(alpha, x if math.isfinite(value) else None)
        edge = tuple(n for n in self.free
                     if not LOWEST * EDGE < ridge[n] < HIGHEST / EDGE)
        messages = [f"optimal {n} is at the end of the range, {ridge[n]:g}" for n in edge]
        largest = float(np.max(np.abs(slope))) if len(slope) else 0.0
        if not math.isfinite(value):
            messages.append("no ridge strength gave a saddle point")
        elif largest > 10 * GRADIENT and not edge:
            messages.append(f"the search over ridge strengths left a slope of {largest:.1e}")
        solution = replace(
            solution, messages=(*solution.messages, *messages),
            converged=solution.converged and math.isfinite(value),
        )
        return BestRidge(
            {s.ridge.name: final.values[s.ridge.name] for s in final.sectors}, solution, edge,
            dict(zip(self.free, map(float, slope), strict=True)), evaluations,
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

    def _descend(
        self, alpha: float, place: Array, x: Array | None
    ) -> tuple[float, Array, Array | None, int, Array]:
        """Lowest ``log E``, its place in ``log r``, the overlaps, evaluations, slopes there."""
        from scipy.optimize import minimize

        low, high = math.log(LOWEST), math.log(HIGHEST)
        best: tuple[float, Array, Array | None, Array] = (
            math.inf, np.clip(place, low, high), x, np.zeros(len(place))
        )
        count = 0

        def error(at: Array) -> tuple[float, Array]:
            nonlocal best, count
            count += 1
            if count > EVALUATIONS:
                raise _Enough
            problem = at_ridge(self.rough, dict(zip(self.free, np.exp(at), strict=True)))
            found = problem._solve_from(alpha, best[2])
            if not found.converged and best[2] is not None:
                found = problem._solve_from(alpha, None)
            if not found.converged or not found.test_error > 0:
                return 10.0, np.zeros(len(at))  # a wall: the line search steps back
            slopes = risk_slopes(problem, found, alpha)
            slope = np.array([slopes[n] * r / found.test_error
                              for n, r in zip(self.free, np.exp(at), strict=True)])
            value = math.log(found.test_error)
            if value < best[0] and np.all(np.isfinite(slope)):
                best = (value, at.copy(), problem.point(found), slope)
            return value, np.nan_to_num(slope, posinf=0.0, neginf=0.0)

        with contextlib.suppress(_Enough):
            minimize(
                error, best[1], jac=True, method="L-BFGS-B", bounds=[(low, high)] * len(place),
                options={"gtol": GRADIENT, "ftol": 1e-8},
            )
        value, at, point, slope = best
        # at an end of the range a slope that points outwards is none
        inside = ~(((at <= low + 1e-9) & (slope > 0)) | ((at >= high - 1e-9) & (slope < 0)))
        return value, at, point, count, np.where(inside, slope, 0.0)
