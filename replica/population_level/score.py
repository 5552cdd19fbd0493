"""The activation as a function of a single token's score, in doubles and in many digits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import sympy as sp

from replica.codegen.mpmath_printer import compile_mpmath
from replica.ir.lower import lower
from replica.ir.program import Shape
from replica.model import Activation, Array
from replica.saddle_point.kernels import Compiled


class ScoreFunction:
    """``sigma(x)`` of an element-wise activation, the log weight of a normalised one.

    ``values`` are the activation's parameters by the names of their symbols.
    """

    def __init__(self, activation: Activation, values: Mapping[str, Any]) -> None:
        body = activation.log_weight if activation.normalised else activation.expression
        self.activation = activation
        self.values = {p.symbol.name: values[p.symbol.name] for p in activation.parameters}
        shapes: dict[str, Shape] = {activation.x.name: "node"}
        shapes |= {n: "uniform" for n in self.values}
        self.compiled = Compiled.of(lower("score", {"value": sp.sympify(body)}, shapes))
        self._exact = compile_mpmath(self.compiled.program)

    @property
    def normalised(self) -> bool:
        return self.activation.normalised

    def __call__(self, x: Array) -> Array:
        found = self.compiled({**self.values, self.activation.x.name: x}, 0)[0]
        return np.broadcast_to(found, x.shape)

    def exact(self, x: Any, values: Mapping[str, Any] | None = None) -> Any:
        """At mpmath's precision; ``values`` may give the parameters with many digits."""
        named = {**self.values, **(values or {}), self.activation.x.name: x}
        return self._exact(*(named[n] for n in self.compiled.input_names), 0)[0]
