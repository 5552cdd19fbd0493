"""Numerically stable functions as SymPy functions with their own derivative.

Written through ``exp`` these overflow or cancel; every printer has a stable form of each.
"""

from __future__ import annotations

from typing import Any

import sympy as sp


class sigmoid(sp.Function):
    """``1/(1 + exp(-x))``."""

    nargs = 1

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        x = self.args[0]
        return sigmoid(x) * sigmoid(-x)

    def _eval_rewrite_as_exp(self, x: Any, **_: Any) -> sp.Expr:
        return 1 / (1 + sp.exp(-x))

    def _eval_is_positive(self) -> bool | None:
        return True if self.args[0].is_extended_real else None

    def _eval_evalf(self, prec: int) -> Any:
        return self._eval_rewrite_as_exp(self.args[0])._eval_evalf(prec)


class softplus(sp.Function):
    """``log(1 + exp(x))``."""

    nargs = 1

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        return sigmoid(self.args[0])

    def _eval_rewrite_as_exp(self, x: Any, **_: Any) -> sp.Expr:
        return sp.log(1 + sp.exp(x))

    def _eval_is_positive(self) -> bool | None:
        return True if self.args[0].is_extended_real else None

    def _eval_evalf(self, prec: int) -> Any:
        return self._eval_rewrite_as_exp(self.args[0])._eval_evalf(prec)


class log_softplus(sp.Function):
    """``log(log(1 + exp(x)))``, which tends to ``x`` for large negative ``x``."""

    nargs = 1

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        return softplus_score(self.args[0])

    def _eval_rewrite_as_exp(self, x: Any, **_: Any) -> sp.Expr:
        return sp.log(sp.log(1 + sp.exp(x)))

    def _eval_evalf(self, prec: int) -> Any:
        return self._eval_rewrite_as_exp(self.args[0])._eval_evalf(prec)


class softplus_score(sp.Function):
    """``sigmoid(x)/softplus(x)``, the derivative of ``log softplus``; tends to 1 at -oo."""

    nargs = 1

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        x = self.args[0]
        return softplus_score(x) * (sigmoid(-x) - softplus_score(x))

    def _eval_rewrite_as_exp(self, x: Any, **_: Any) -> sp.Expr:
        return 1 / ((1 + sp.exp(-x)) * sp.log(1 + sp.exp(x)))

    def _eval_is_positive(self) -> bool | None:
        return True if self.args[0].is_extended_real else None

    def _eval_evalf(self, prec: int) -> Any:
        return self._eval_rewrite_as_exp(self.args[0])._eval_evalf(prec)


class erfcx(sp.Function):
    """``exp(x^2) erfc(x)``."""

    nargs = 1

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        x = self.args[0]
        return 2 * x * erfcx(x) - 2 / sp.sqrt(sp.pi)

    def _eval_rewrite_as_exp(self, x: Any, **_: Any) -> sp.Expr:
        return sp.exp(x**2) * sp.erfc(x)

    def _eval_is_positive(self) -> bool | None:
        return True if self.args[0].is_extended_real else None

    def _eval_evalf(self, prec: int) -> Any:
        return self._eval_rewrite_as_exp(self.args[0])._eval_evalf(prec)


class log_ndtr(sp.Function):
    """Logarithm of the standard normal distribution function."""

    nargs = 1

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        return sp.sqrt(2 / sp.pi) / erfcx(-self.args[0] / sp.sqrt(2))

    def _eval_rewrite_as_exp(self, x: Any, **_: Any) -> sp.Expr:
        return sp.log(sp.erfc(-x / sp.sqrt(2)) / 2)

    def _eval_evalf(self, prec: int) -> Any:
        return self._eval_rewrite_as_exp(self.args[0])._eval_evalf(prec)


class owens_t(sp.Function):
    """Owen's ``T(h, a) = int_0^a exp(-h^2 (1 + x^2)/2)/(1 + x^2) dx/(2 pi)``."""

    nargs = 2

    def _eval_evalf(self, prec: int) -> Any:
        import mpmath as mp

        h, a = (x._eval_evalf(prec) for x in self.args)
        if h is None or a is None or not (h.is_Float and a.is_Float):
            return None
        with mp.workprec(prec + 10):
            height, end = mp.mpf(h), mp.mpf(a)
            value = mp.quad(
                lambda x: mp.exp(-height**2 * (1 + x * x) / 2) / (1 + x * x), [0, end]
            ) / (2 * mp.pi)
            return sp.Float(value, precision=prec)

    def _latex(self, printer: Any, exp: Any = None) -> str:
        text = rf"T\left({', '.join(printer._print(a) for a in self.args)}\right)"
        return text if exp is None else f"{text}^{{{exp}}}"


def plain(expr: Any) -> Any:
    """Our functions written through ``exp``, ``log`` and ``erfc``; everything else as it is.

    SymPy's own ``rewrite(exp)`` would turn ``x**2`` into ``exp(2 log x)`` too.
    """
    own = (sigmoid, softplus, log_softplus, softplus_score, erfcx, log_ndtr)
    return expr.replace(
        lambda e: isinstance(e, own), lambda e: e._eval_rewrite_as_exp(*e.args)
    )
