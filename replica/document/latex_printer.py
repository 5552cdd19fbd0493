"""LaTeX of derived expressions in the field's notation."""

from __future__ import annotations

from typing import Any

import sympy as sp
from sympy.core.function import AppliedUndef
from sympy.printing.latex import LatexPrinter

from replica.document.notation import function_latex, pair_latex, symbol_latex
from replica.ir.table import BY_CLASS
from replica.model import LABEL
from replica.symbolic.tokens import TokenSum


class ReplicaLatexPrinter(LatexPrinter):
    """SymPy's printer with rules for our nodes and the explicit symbol table."""

    def _as_ordered_terms(self, expr: Any, order: Any = None) -> list[Any]:
        """Positive terms first: ``q - m^2``, not ``-m^2 + q``."""
        terms = super()._as_ordered_terms(expr, order=order)
        return sorted(terms, key=lambda t: t.could_extract_minus_sign())

    def _print_Symbol(self, expr: Any, style: str = "plain") -> str:
        return symbol_latex(expr.name)

    _print_RandomSymbol = _print_Symbol

    def _print_MatrixSymbol(self, expr: Any, style: str = "plain") -> str:
        return symbol_latex(expr.name)

    def _print_AppliedUndef(self, expr: Any, exp: Any = None) -> str:
        if len(expr.args) == 2:
            text = pair_latex(expr.func.__name__, *(self._print(a) for a in expr.args))
        else:
            text = function_latex(expr.func.__name__, self._print(expr.args[0]))
        return rf"\left({text}\right)^{{{exp}}}" if exp is not None else text

    def _print_Function(self, expr: Any, exp: Any = None) -> str:
        if isinstance(expr, AppliedUndef):
            return self._print_AppliedUndef(expr, exp)
        return str(super()._print_Function(expr, exp))

    def _print_primitive(self, expr: Any, exp: Any = None) -> str:
        power = f"^{{{exp}}}" if exp is not None else ""
        return rf"{BY_CLASS[type(expr)].latex}{power}\left({self._print(expr.args[0])}\right)"

    def _print(self, expr: Any, **kwargs: Any) -> str:
        row = BY_CLASS.get(type(expr))
        if row is not None and row.latex is not None:
            return self._print_primitive(expr, **kwargs)
        return str(super()._print(expr, **kwargs))

    def _print_TokenSum(self, expr: Any, exp: Any = None) -> str:
        body = self._print(expr.body)
        if isinstance(expr.body, sp.Add):
            body = rf"\left({body}\right)"
        text = rf"\sum_{{{self._print(expr.bound)}}} {body}"
        return rf"\left({text}\right)^{{{exp}}}" if exp is not None else text

    def _print_TokenWeights(self, expr: Any, exp: Any = None) -> str:
        position = self._print(expr.position)
        if any(a.func.__name__.endswith("_star") for a in expr.body.atoms(AppliedUndef)):
            text = self._print(expr.explicit())
            return rf"\left({text}\right)^{{{exp}}}" if exp is not None else text
        power = f"^{{{exp}}}" if exp is not None else ""
        return rf"\sigma_{{{position}}}{power}"

    def _print_LocationProbability(self, expr: Any, exp: Any = None) -> str:
        letter = "p" if LABEL in expr.free_symbols else "P"
        power = f"^{{{exp}}}" if exp is not None else ""
        return rf"{letter}_{{{self._print(expr.position)}}}{power}"

    def _print_Centred(self, expr: Any, exp: Any = None) -> str:
        text = rf"\left({self._print(expr.explicit())}\right)"
        return f"{text}^{{{exp}}}" if exp is not None else text

    def _print_Expectation(self, expr: Any) -> str:
        return rf"\mathbb{{E}}\left[{self._print(expr.body)}\right]"

    def _print_Minimum(self, expr: Any) -> str:
        fields = ", ".join(self._print(f) for f in expr.fields)
        return rf"\min_{{{fields}}}\left\{{{self._print(expr.objective)}\right\}}"

    def _print_Proximal(self, expr: Any) -> str:
        return rf"{self._print(expr.field)}^{{\mathrm{{prox}}}}_{{{self._print(expr.position)}}}"

    def _print_LogPartition(self, expr: Any) -> str:
        return r"\log \int \mathcal{D}t\, e^{-\beta \ell}"

    def _print_KroneckerDelta(self, expr: Any, exp: Any = None) -> str:
        a, b = (self._print(x) for x in expr.args)
        return rf"\delta_{{{a} {b}}}"

    def _print_Trace(self, expr: Any, exp: Any = None) -> str:
        return rf"\operatorname{{Tr}}\left({self._print(expr.arg)}\right)"

    def _needs_mul_brackets(self, expr: Any, first: bool = False, last: bool = False) -> bool:
        if isinstance(expr, TokenSum) and not last:
            return True
        return bool(super()._needs_mul_brackets(expr, first=first, last=last))


def to_latex(expr: Any) -> str:
    """LaTeX of one expression."""
    if isinstance(expr, sp.MatrixBase) and expr.shape == (1, 1):
        expr = expr[0, 0]
    return str(ReplicaLatexPrinter({"fold_short_frac": False}).doprint(expr))
