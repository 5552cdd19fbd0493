"""Mutations of conclusions, to see that the checks can fail.

Each additive term, at any depth, is dropped, doubled or has its sign flipped. A mutant that a
step's check accepts is a survivor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sympy as sp

from replica.derivation.step import Derivation, Step
from replica.symbolic.averages import LogPartition, OneSamplePartition


@dataclass(frozen=True)
class Mutant:
    """A changed conclusion: which one, what was done to which term, and the new value."""

    name: str
    change: str
    term: str
    value: Any


FACTORS = (("dropped", 0), ("doubled", 2), ("flipped", -1))


def mutants(step: Step) -> Iterator[Mutant]:
    """All mutants of a step's conclusions that differ from the original."""
    for name, value in step.conclusion.items():
        for term, change, mutated in _mutate(value):
            if mutated != value:
                yield Mutant(name, change, str(term)[:120], mutated)


def _mutate(value: Any) -> Iterator[tuple[Any, str, Any]]:
    if isinstance(value, sp.MatrixBase):
        for i in range(value.rows):
            for j in range(value.cols):
                for term, change, entry in _mutate(value[i, j]):
                    changed = sp.Matrix(value)
                    changed[i, j] = entry
                    yield term, change, sp.ImmutableMatrix(changed)
        return
    if value == 0:  # nothing to scale: a term appears
        yield value, "made one", sp.S.One
        return
    yield from _terms(value)


def _terms(expr: Any) -> Iterator[tuple[Any, str, Any]]:
    """Mutate each term of each sum below ``expr``, and ``expr`` itself if it is one term."""
    if not isinstance(expr, sp.Add | sp.MatAdd):
        for change, factor in FACTORS:
            yield expr, change, _scaled(expr, factor)
    yield from _inside(expr)


def _scaled(expr: Any, factor: int) -> Any:
    return sp.MatMul(factor, expr) if isinstance(expr, sp.MatrixExpr) else factor * expr


def _inside(expr: Any) -> Iterator[tuple[Any, str, Any]]:
    if isinstance(expr, LogPartition | OneSamplePartition) or not isinstance(expr, sp.Basic):
        return
    if isinstance(expr, sp.Add | sp.MatAdd):
        for k, term in enumerate(expr.args):
            others = [*expr.args[:k], *expr.args[k + 1 :]]
            for change, factor in FACTORS:
                kept = [] if factor == 0 else [_scaled(term, factor)]
                yield term, change, expr.func(*kept, *others)
    for k, arg in enumerate(expr.args):
        if not isinstance(arg, sp.Expr) or arg.is_Atom:
            continue
        for term, change, mutated in _inside(arg):
            try:
                rebuilt = expr.func(*expr.args[:k], mutated, *expr.args[k + 1 :])
            except (TypeError, ValueError, AttributeError):
                continue  # the node cannot hold the mutated part
            yield term, change, rebuilt


def survivors(step: Step) -> list[Mutant]:
    """Mutants that the step's check accepts. A check that raises has caught its mutant."""
    if step.check is None:
        return list(mutants(step))
    kept = []
    for mutant in mutants(step):
        try:
            result = step.check({**step.conclusion, mutant.name: mutant.value})
        except Exception:  # whatever a wrong equation breaks, it was noticed
            continue
        if result.passed:
            kept.append(mutant)
    return kept


def all_survivors(
    derivation: Derivation, known: Derivation | None = None
) -> dict[str, list[Mutant]]:
    """Survivors by step, steps without survivors left out.

    Steps that conclude the same in a ``known`` derivation are passed over.
    """
    found = {
        s.name: survivors(s) for s in derivation
        if known is None or s.name not in known or known[s.name].conclusion != s.conclusion
    }
    return {name: kept for name, kept in found.items() if kept}
