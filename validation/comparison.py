"""Statistics of theory against simulation.

Simulated means at two or more dimensions are extrapolated to infinite dimension by weighted least
squares in ``1/D``; each comparison is a Student t test with Welch-Satterthwaite degrees of freedom
over both sides; one Sidak bound covers all comparisons together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from replica.saddle_point.nodes import SCRAMBLES

LEVEL = 0.01
"""Probability that the criterion rejects although every equation holds."""


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error and the degrees of freedom behind that error."""

    value: float
    error: float
    freedom: float


@dataclass(frozen=True)
class Comparison:
    """One observable of one case. ``p`` is two-sided; ``counted`` says if the verdict uses it."""

    case: str
    observable: str
    theory: float
    theory_error: float
    simulation: float
    simulation_error: float
    z: float
    p: float
    counted: bool
    reason: str

    def document(self) -> dict[str, Any]:
        return {
            "case": self.case, "observable": self.observable, "theory": self.theory,
            "theory_se": self.theory_error, "simulation": self.simulation,
            "simulation_se": self.simulation_error, "z": self.z, "p": self.p,
            "counted": self.counted, "reason": self.reason,
        }


def from_samples(values: Sequence[float]) -> Estimate:
    """Mean of independent samples. At least two."""
    array = np.asarray(values, dtype=float)
    if len(array) < 2:
        raise ValueError("a standard error needs at least two samples")
    return Estimate(
        float(array.mean()), float(array.std(ddof=1) / math.sqrt(len(array))), len(array) - 1.0
    )


def extrapolate(dimensions: Sequence[int], estimates: Sequence[Estimate]) -> Estimate:
    """Intercept of ``value = a + b/D`` by weighted least squares.

    With a single dimension the value itself; its ``1/D`` bias is then left in.
    """
    if len(dimensions) == 1:
        return estimates[0]
    x = np.array([1.0 / d for d in dimensions])
    y = np.array([e.value for e in estimates])
    error = np.array([max(e.error, 1e-300) for e in estimates])
    design = np.stack([np.ones_like(x), x], axis=1) / error[:, None]
    # coefficients of the intercept in the observations
    row = np.linalg.pinv(design)[0] / error
    variances = (row * error) ** 2
    variance = float(variances.sum())
    parts = sum(float(v) ** 2 / e.freedom for v, e in zip(variances, estimates, strict=True))
    freedom = variance**2 / parts if parts > 0 else 1.0
    return Estimate(float(row @ y), math.sqrt(variance), freedom)


def compare(
    case: str, observable: str, theory: float, theory_error: float, simulation: Estimate,
    counted: bool, reason: str = "",
) -> Comparison:
    """Student t test of theory against simulation."""
    from scipy.stats import t as student

    total = theory_error**2 + simulation.error**2
    if total == 0:
        z = 0.0 if theory == simulation.value else math.inf
        p = 1.0 if z == 0 else 0.0
    else:
        z = (simulation.value - theory) / math.sqrt(total)
        freedom = total**2 / (
            theory_error**4 / (SCRAMBLES - 1) + simulation.error**4 / simulation.freedom
        )
        p = 2 * float(student.sf(abs(z), freedom))
    return Comparison(
        case, observable, theory, theory_error, simulation.value, simulation.error, z, p,
        counted, reason,
    )


def threshold(count: int, level: float = LEVEL) -> float:
    """Smallest p-value allowed among ``count`` comparisons (Sidak)."""
    return float(1.0 - (1.0 - level) ** (1.0 / max(1, count)))


def agrees(comparisons: Sequence[Comparison], level: float = LEVEL) -> bool:
    """Whether no counted comparison falls below the joint threshold, and there is one."""
    counted = [c for c in comparisons if c.counted]
    bound = threshold(len(counted), level)
    return bool(counted) and all(c.p >= bound for c in counted)
