"""Several saddle points: all that can be found, and a look for others beside one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from replica.errors import UsageError
from replica.model import Array
from replica.saddle_point.solution import Solution
from replica.saddle_point.solve import SaddlePointProblem

CLOSE = 1e-3
"""Relative distance of the overlaps below which two ends are one saddle point."""
SCALES = {"wide": 4.0, "narrow": 0.25}
"""Factors on the first sector's overlaps of the informed start that are tried as well."""
LOOK_NODES, LOOK_TOLERANCE = 2**12, 1e-5
"""How accurately other saddle points are looked for beside one."""
EQUAL = 3.0
"""Standard errors within which two numbers are not told apart."""


@dataclass(frozen=True)
class Branch:
    """One saddle point and the names of the starts that led to it."""

    solution: Solution
    starts: tuple[str, ...]


@dataclass(frozen=True)
class SaddlePoints:
    """The saddle points at one sample ratio, the lowest free energy first.

    The first is the global minimum among those found, the others are metastable. ``failed`` has the
    ends of starts that led nowhere: a cycle, infeasible overlaps, no convergence.
    """

    alpha: float
    branches: tuple[Branch, ...]
    failed: Mapping[str, Solution]

    @property
    def lowest(self) -> Solution:
        """The solution of lowest free energy; one that did not converge if none did."""
        return self.branches[0].solution if self.branches else next(iter(self.failed.values()))

    def document(self) -> dict[str, Any]:
        """The keys ``branches`` and ``failed_starts`` of the JSON."""
        return {
            "branches": [{"starts": list(b.starts), **b.solution.document()}
                         for b in self.branches],
            "failed_starts": {n: _why(s) for n, s in self.failed.items()},
        }

    @property
    def tie(self) -> bool:
        """Whether the two lowest free energies agree within their errors."""
        if len(self.branches) < 2:
            return False
        a, b = (x.solution for x in self.branches[:2])
        error = np.hypot(a.standard_errors["free_energy"], b.standard_errors["free_energy"])
        return bool(b.free_energy - a.free_energy < EQUAL * error)

    def messages(self) -> list[str]:
        """What a reader must know, a line each."""
        found = [f"start {name}: {_why(s)}" for name, s in self.failed.items()]
        if len(self.branches) > 1:
            gaps = ", ".join(
                f"{b.solution.free_energy - self.branches[0].solution.free_energy:.2g} above "
                f"(test error {b.solution.test_error:.4g}, from {', '.join(b.starts)})"
                for b in self.branches[1:]
            )
            found.append(f"metastable saddle points: free energy {gaps}")
        if self.tie:
            found.append("the lowest free energies agree within their errors: which saddle point "
                         "is the global minimum is open; use more nodes")
        return found


def _why(solution: Solution) -> str:
    """How an iteration ended that did not converge."""
    infeasible = [] if solution.feasible else ["infeasible overlaps"]
    return "; ".join([*infeasible, *solution.messages]) or "not converged"


def starts(problem: SaddlePointProblem, alpha: float) -> dict[str, Array]:
    """Named points to start from."""
    found = {name: problem.start_point(alpha, name) for name in ("informed", "uninformed")}
    return found | {n: problem.start_point(alpha, "informed", s) for n, s in SCALES.items()}


def saddle_points(
    problem: SaddlePointProblem, alpha: float, near: Sequence[Array] = ()
) -> SaddlePoints:
    """Every saddle point that a start leads to; ``near`` are points of neighbouring ratios.

    Raises ``UsageError`` for an ``alpha`` that is not finite and positive.
    """
    if not 0 < alpha < np.inf:
        raise UsageError("alpha", alpha, "a finite number > 0")
    points = {**starts(problem, alpha), **{f"neighbour {i + 1}": x for i, x in enumerate(near)}}
    ends: list[Branch] = []
    failed: dict[str, Solution] = {}
    for name, x in points.items():
        solution = problem._solve_from(alpha, x)
        if not solution.converged:
            failed[name] = solution
            continue
        for i, other in enumerate(ends):
            if _same(problem, solution, other.solution):
                ends[i] = Branch(other.solution, (*other.starts, name))
                break
        else:
            ends.append(Branch(solution, (name,)))
    ends.sort(key=lambda b: b.solution.free_energy)
    return SaddlePoints(alpha, tuple(ends), failed)


class Rivals:
    """A look for other saddle points, on few nodes, beside solutions of a problem."""

    def __init__(self, problem: SaddlePointProblem) -> None:
        self.problem = problem

    @cached_property
    def rough(self) -> SaddlePointProblem:
        return self.problem.rougher(LOOK_NODES, LOOK_TOLERANCE)

    def beside(self, alpha: float, solution: Solution) -> Solution:
        """The solution, with a message if the other start leads to another saddle point."""
        if not solution.converged or self.problem.backend.name == "mpmath":
            return solution
        mine = self.rough._solve_from(alpha, self.problem.point(solution))
        for name in ("uninformed", "informed"):
            other = self.rough._solve_from(alpha, self.rough.start_point(alpha, name))
            if not (mine.converged and other.converged) or _same(self.rough, mine, other):
                continue
            lower = other.free_energy < mine.free_energy
            note = (
                f"the {name} start leads to another saddle point, of "
                f"{'lower' if lower else 'higher'} free energy ({other.free_energy:.4g} against "
                f"{mine.free_energy:.4g}, test error {other.test_error:.4g}): "
                f"{'this one is metastable; ' if lower else ''}--start all gives all"
            )
            return replace(solution, messages=(*solution.messages, note))
        return solution


def _same(problem: SaddlePointProblem, a: Solution, b: Solution) -> bool:
    """Whether two ends are one point: near each other, or not told apart by their errors.

    Where minima of samples jump, an iteration stops at any of many points within the errors.
    """
    x, y = problem.point(a), problem.point(b)
    errors = np.array([
        np.hypot(a.standard_errors["order_parameters"][n], b.standard_errors["order_parameters"][n])
        for n in problem.names
    ])
    near = np.maximum(CLOSE * np.maximum(0.1, np.abs(y)), EQUAL * errors)
    return bool(np.all(np.abs(x - y) <= near))


def branch_curve(
    problem: SaddlePointProblem, alphas: Sequence[float],
    report: Callable[[int], None] | None = None,
) -> Iterator[list[SaddlePoints]]:
    """Saddle points along ``alphas``, every branch continued upwards and then downwards.

    Yields what is known after each step, in the order of ``alphas``.
    """
    order = sorted(range(len(alphas)), key=lambda i: alphas[i])
    found: dict[int, SaddlePoints] = {}
    done = 0
    for direction in (order, order[::-1]):
        near: list[Array] = []
        for i in direction:
            if i not in found or near:
                new = saddle_points(problem, alphas[i], near)
                old = found.get(i, new)
                found[i] = new if len(new.branches) >= len(old.branches) else old
            near = [problem.point(b.solution) for b in found[i].branches]
            done += 1
            if report is not None:
                report((done + 1) // 2)
            yield [found[i] for i in sorted(found)]
