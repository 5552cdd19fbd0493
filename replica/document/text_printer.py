"""Plain text of derived expressions, for the terminal."""

from __future__ import annotations

from typing import Any

import sympy as sp
from sympy.core.function import AppliedUndef
from sympy.printing.str import StrPrinter

from replica.model import LABEL

_BOUND = {"l1": "l", "l2": "m", "l3": "l'", "l4": "m'"}


class ReplicaTextPrinter(StrPrinter):
    """SymPy's string printer with short forms for our nodes."""

    def _print_Symbol(self, expr: Any) -> str:
        if expr.name.startswith("l") and expr.name in _BOUND:
            return _BOUND[expr.name]
        return str(expr.name)

    def _print_Function(self, expr: Any) -> str:
        if isinstance(expr, AppliedUndef):
            arguments = ", ".join(self._print(a) for a in expr.args)
            return f"{expr.func.__name__}[{arguments}]"
        return str(super()._print_Function(expr))

    def _print_TokenSum(self, expr: Any) -> str:
        return f"sum_{self._print(expr.bound)}({self._print(expr.body)})"

    def _print_TokenWeights(self, expr: Any) -> str:
        if any(a.func.__name__.endswith("_star") for a in expr.body.atoms(AppliedUndef)):
            return f"({self._print(expr.explicit())})"
        return f"sigma[{self._print(expr.position)}]"

    def _print_LocationProbability(self, expr: Any) -> str:
        return f"{'p' if LABEL in expr.free_symbols else 'P'}[{self._print(expr.position)}]"

    def _print_Centred(self, expr: Any) -> str:
        return f"({self._print(expr.explicit())})"

    def _print_Expectation(self, expr: Any) -> str:
        return f"E[{self._print(expr.body)}]"

    def _print_Minimum(self, expr: Any) -> str:
        fields = ", ".join(self._print(f) for f in expr.fields)
        return f"min_{{{fields}}}{{{self._print(expr.objective)}}}"

    def _print_LogPartition(self, expr: Any) -> str:
        return "log int Dt exp(-beta loss)"

    def _print_Proximal(self, expr: Any) -> str:
        return f"prox_{self._print(expr.field)}[{self._print(expr.position)}]"


def to_text(expr: Any) -> str:
    """One line of text for an expression."""
    if isinstance(expr, sp.MatrixBase):
        rows = ["[" + ", ".join(to_text(x) for x in expr.row(i)) + "]" for i in range(expr.rows)]
        return "[" + ", ".join(rows) + "]"
    return str(ReplicaTextPrinter({"order": None}).doprint(expr))
