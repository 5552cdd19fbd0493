"""The solution of the saddle-point equations, with its errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Solution:
    """One saddle point. ``conjugates`` has the names of the overlaps they belong to, ``ridge`` has
    those of the ridge strengths' symbols.

    ``standard_errors`` has the keys ``order_parameters``, ``conjugates``, ``test_error``,
    ``train_loss``, ``free_energy`` and ``replicon``. ``residual`` is undamped, over the twelve
    equations. ``dimension`` is the largest number of random variables of a node, ``reductions`` how
    it was kept small. ``replicon`` is the spectral radius of the (kk, vv) block, a median of block
    means.
    """

    ridge: Mapping[str, float]
    order_parameters: Mapping[str, float]
    conjugates: Mapping[str, float]
    standard_errors: Mapping[str, Any]
    test_error: float
    excess_risk: float
    train_loss: float
    free_energy: float
    residual: float
    converged: bool
    feasible: bool
    sweeps: int
    replicon: float | None
    stable: bool | None
    competing_minima: float
    nodes: int
    dimension: int
    reductions: tuple[str, ...]
    seed: int
    backend: str
    seconds: float
    estimator: str
    envelope: float
    messages: tuple[str, ...] = field(default=())

    def document(self) -> dict[str, Any]:
        """The keys of the command line's JSON."""
        return {
            "ridge": dict(self.ridge),
            "order_parameters": dict(self.order_parameters),
            "conjugates": dict(self.conjugates),
            "standard_errors": {
                k: dict(v) if isinstance(v, Mapping) else v
                for k, v in self.standard_errors.items()
            },
            "test_error": self.test_error,
            "excess_risk": self.excess_risk,
            "train_loss": self.train_loss,
            "free_energy": self.free_energy,
            "residual": self.residual,
            "converged": self.converged,
            "feasible": self.feasible,
            "sweeps": self.sweeps,
            "replicon": self.replicon,
            "stable": self.stable,
            "competing_minima": self.competing_minima,
            "nodes": self.nodes,
            "dimension": self.dimension,
            "reductions": list(self.reductions),
            "seed": self.seed,
            "backend": self.backend,
            "estimator": self.estimator,
            "seconds": self.seconds,
        }
