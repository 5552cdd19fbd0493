"""Derived expressions that hold data averages, split into integrands and a map of their means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from replica.codegen.programs import input_shapes, split_averages
from replica.ir.lower import lower
from replica.ir.program import Shape
from replica.model import Array, Model
from replica.saddle_point.kernels import Compiled
from replica.symbolic.tokens import TokenSum, index


@dataclass(frozen=True)
class Averaged:
    """``integrands`` are evaluated on nodes; ``values`` takes their means."""

    integrands: Compiled
    values: Compiled

    @classmethod
    def of(
        cls, name: str, expressions: Mapping[str, Any], model: Model,
        extra: Mapping[str, Shape] | None = None,
    ) -> Averaged:
        """Lower named expressions. ``extra`` gives shapes of inputs that the model does not name.

        Raises ``UnsupportedNodeError`` for an expression that no code can be generated for.
        """
        shapes: dict[str, Shape] = {**input_shapes(model), **(extra or {})}
        means, integrands = split_averages(expressions)
        bodies = {n: separate_logarithms(e) for n, e in integrands.items()}
        known: dict[str, Shape] = {n: s for n, s in shapes.items() if s == "uniform"}
        known |= {n: "uniform" for n in integrands}
        return cls(
            Compiled.of(lower(f"{name}_integrands", bodies, shapes, {index("l"): "token"})),
            Compiled.of(lower(f"{name}_values", means, known)),
        )

    def on(self, inputs: Mapping[str, Any], length: int, nodes: int) -> Array:
        """``(integrands, nodes)``."""
        found = self.integrands(inputs, length)
        return np.array([np.broadcast_to(f, (nodes,)) for f in found]).reshape(-1, nodes)

    def at(self, means: Array, uniform: Mapping[str, float]) -> dict[str, Any]:
        """The expressions at means of shape ``(integrands, ...)``."""
        named = dict(zip(self.integrands.program.outputs, means, strict=True))
        return self.values.named({**uniform, **named}, 0)


def separate_logarithms(expr: Any) -> Any:
    """``log(c sum_l d exp(u_l))`` as ``log c + log d + log sum_l exp(u_l)``, which has a stable
    form; ``c`` and ``d`` are positive."""

    def rule(node: Any) -> Any:
        factors = sp.Mul.make_args(node.args[0])
        sums = [f for f in factors if isinstance(f, TokenSum)]
        if len(sums) != 1:
            return node
        (held,) = sums
        outside = [f for f in factors if f is not held]
        constant, inside = held.body.as_independent(held.bound, as_Add=False)
        body = sp.powsimp(inside)
        if not isinstance(body, sp.exp):
            return node
        logs = [sp.expand_log(sp.log(f), force=True) for f in (*outside, constant)]
        return sp.Add(*logs) + sp.log(TokenSum(body, held.bound))

    return sp.sympify(expr).replace(lambda e: isinstance(e, sp.log), rule)
