"""Evaluation at random rational points, for checks."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import mpmath as mp
import sympy as sp

from replica.derivation.step import CheckResult

DIGITS = 30


def random_point(symbols: Iterable[sp.Symbol], seed: int = 0) -> dict[sp.Symbol, sp.Rational]:
    """Positive rational values, the same for the same names and seed.

    Symbols that may be negative get a sign. Values lie in [1/3, 7/3) with denominator 97.
    """
    point = {}
    for s in sorted(set(symbols), key=lambda s: s.name):
        rng = random.Random(f"{s.name}/{seed}")
        value = sp.Rational(rng.randrange(33, 226), 97)
        if not s.is_nonnegative and rng.random() < 0.5:
            value = -value
        point[s] = value
    return point


def evaluate(expr: Any, point: dict[Any, Any], digits: int = DIGITS) -> Any:
    """``expr`` at a point as an mpmath number with ``digits`` digits."""
    value = sp.N(sp.sympify(expr).xreplace(point), digits + 10)
    if value.free_symbols:
        raise ValueError(f"no value for {sorted(map(str, value.free_symbols))}")
    with mp.workdps(digits + 10):
        return mp.mpmathify(value)


def compare(pairs: Iterable[tuple[Any, Any]], what: str, tolerance: float = 1e-18) -> CheckResult:
    """Compare numbers pairwise, relative to their size."""
    worst = 0.0
    count = 0
    for a, b in pairs:
        count += 1
        gap = abs(a - b) / (1 + abs(b))
        worst = max(worst, float(gap)) if gap == gap else float("inf")
    passed = count > 0 and worst < tolerance
    return CheckResult(passed, f"{what}: {count} values, largest difference {worst:.1e}")
