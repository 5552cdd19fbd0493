"""Fixed points at one sample ratio: which one algorithms reach, which one is optimal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from replica.errors import UsageError
from replica.model import Array
from replica.state_evolution.branch import Branch
from replica.state_evolution.evolution import (
    CLOSE,
    STARTS,
    FixedPoint,
    StateEvolution,
    block_error,
)


@dataclass(frozen=True)
class Phase:
    """All fixed points found at ``alpha``.

    algorithmic
        Index of the one reached from no information, as by message passing.
    information_theoretic
        Index of the stable one of largest free entropy.
    gap, gap_error
        Free entropy of the informed less that of the uninformed one, with its standard error;
        zero where they coincide.
    """

    alpha: float
    fixed_points: tuple[FixedPoint, ...]
    algorithmic: int
    information_theoretic: int
    gap: float
    gap_error: float
    messages: tuple[str, ...] = ()

    @property
    def hard(self) -> bool:
        """Whether the optimal fixed point is out of reach of first-order algorithms."""
        return self.algorithmic != self.information_theoretic

    @property
    def converged(self) -> bool:
        return all(p.converged for p in self.fixed_points)

    def document(self) -> dict[str, Any]:
        return {
            "fixed_points": [p.document() for p in self.fixed_points],
            "algorithmic": self.algorithmic,
            "information_theoretic": self.information_theoretic,
            "hard": self.hard,
            "free_entropy_gap": self.gap,
            "free_entropy_gap_error": self.gap_error,
        }


def phase_at(
    evolution: StateEvolution, alpha: float, below: Array | None = None, above: Array | None = None
) -> Phase:
    """The fixed points at ``alpha``, from both starts and between them.

    ``below`` and ``above`` are fixed points known to bound those wanted: the uninformed one at a
    smaller ``alpha``, the informed one at a larger.

    Raises ``UsageError`` for an ``alpha`` that is not finite and positive.
    """
    if not 0 < alpha < np.inf:
        raise UsageError("alpha", alpha, "a finite number > 0")
    starts = {n: x * evolution.rho for n, x in STARTS.items()}
    starts |= {n: q for n, q in (("uninformed", below), ("informed", above)) if q is not None}
    ends = {n: evolution.settle(alpha, q) for n, q in starts.items()}
    low, high = ends["uninformed"], ends["informed"]
    same = np.abs(low[0] - high[0]).max() < CLOSE
    points = [evolution.fixed_point(low[0], alpha, "both" if same else "uninformed", low[1])]
    messages = []
    gap = gap_error = 0.0
    if not same:
        for q in Branch(evolution).between(low[0], high[0], alpha):
            points.append(evolution.fixed_point(q, alpha, "between", 0))
        points.append(evolution.fixed_point(high[0], alpha, "informed", high[1]))
        entropies = [evolution.outcome(e[0], alpha)["free_entropy"] for e in (low, high)]
        difference = entropies[1] - entropies[0]
        gap, gap_error = float(difference[0]), block_error(difference[1:])
        if abs(gap) < 2 * gap_error:
            messages.append(
                f"the free entropies differ by {gap:.1e}, less than two standard errors "
                f"({gap_error:.1e}): which fixed point is optimal is open; use more nodes"
            )
    messages += [
        f"the iteration from the {p.start} start did not converge: residual {p.residual:.1e}"
        for p in points if not p.converged
    ]
    stable = [i for i, p in enumerate(points) if p.start != "between"]
    best = max(stable, key=lambda i: points[i].free_entropy)
    return Phase(alpha, tuple(points), 0, best, gap, gap_error, tuple(messages))


def phases(
    evolution: StateEvolution, alphas: Sequence[float],
    report: Callable[[int], None] | None = None,
) -> Iterator[Phase]:
    """Phases at several ratios, the uninformed branch continued upwards in ``alpha``.

    Overlaps grow with ``alpha``, so the uninformed fixed point at a smaller ratio is a start from
    below; the informed one is started afresh from the teacher. Yielded in the order of ``alphas``;
    ``report`` gets the number done.
    """
    below: Array | None = None
    last = 0.0
    for i, alpha in enumerate(alphas):
        found = phase_at(evolution, alpha, below if alpha >= last else None)
        first = found.fixed_points[0]
        below, last = np.array([first.q_k, first.q_v]), alpha
        if report is not None:
            report(i + 1)
        yield found
