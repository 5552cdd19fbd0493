"""The table of primitive functions: one row says everything about one function.

A SymPy function that is not here is an error before any code exists. Beside these rows the IR has
arithmetic, square roots, ``maximum`` and ``minimum`` (of two arguments; their derivative is a step,
1/2 at the kink), and over tokens: sum, softmax, logsumexp, centring and picking the relevant one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy as sp
from sympy.codegen.cfunctions import expm1, log1p

from replica.symbolic import primitives as prim

_INF = float("inf")


@dataclass(frozen=True)
class Primitive:
    """One element-wise function of one argument.

    Attributes
    ----------
    sympy
        The class; its derivative rule is the function's (:meth:`derivative`).
    numpy, mpmath
        Names in the runtime modules of those printers.
    c
        Name in the kernel headers; one body serves C and CUDA.
    latex
        How documents write it; ``None`` leaves it to SymPy.
    safe
        Arguments for which the result is accurate in double precision.
    kink
        What holds at a point where the function is not smooth.
    """

    name: str
    sympy: Any
    numpy: str
    mpmath: str
    c: str
    safe: tuple[float, float]
    latex: str | None = None
    kink: str | None = None

    def derivative(self, x: Any) -> Any:
        """The derivative at ``x``, again in functions of this table."""
        return sp.diff(self.sympy(x), x)


def _row(
    name: str, function: Any, safe: tuple[float, float] = (-_INF, _INF), *, numpy: str = "",
    mpmath: str = "", latex: str | None = None, kink: str | None = None,
) -> Primitive:
    return Primitive(
        name, function, numpy or name, mpmath or name, f"rp_{name}", safe, latex, kink
    )


PRIMITIVES: tuple[Primitive, ...] = (
    _row("exp", sp.exp, (-745.0, 709.0)),
    _row("expm1", expm1, (-_INF, 709.0), latex=r"\operatorname{expm1}"),
    _row("log", sp.log, (0.0, _INF)),
    _row("log1p", log1p, (-1.0, _INF), latex=r"\operatorname{log1p}"),
    _row("tanh", sp.tanh),
    _row("sin", sp.sin, (-1e8, 1e8)),
    _row("cos", sp.cos, (-1e8, 1e8)),
    _row("acos", sp.acos, (-1.0, 1.0), numpy="arccos"),
    _row("erf", sp.erf, latex=r"\operatorname{erf}"),
    _row("erfc", sp.erfc, (-_INF, 26.0), latex=r"\operatorname{erfc}"),
    _row("erfcx", prim.erfcx, (-26.0, _INF), latex=r"\operatorname{erfcx}"),
    _row("log_ndtr", prim.log_ndtr, latex=r"\log\Phi"),
    _row("sign", sp.sign, kink="0 at 0"),
    _row("abs", sp.Abs, mpmath="fabs", kink="slope 0 at 0"),
    _row("step", sp.Heaviside, latex=r"\theta", kink="1/2 at 0"),
    _row("softplus", prim.softplus, (-745.0, _INF), latex=r"\operatorname{softplus}"),
    _row("sigmoid", prim.sigmoid, (-745.0, _INF), latex=r"\operatorname{sigmoid}"),
    _row("log_softplus", prim.log_softplus, latex=r"\operatorname{log\,softplus}"),
    _row("softplus_score", prim.softplus_score, latex=r"\operatorname{(log\,softplus)'}"),
)

BY_NAME = {p.name: p for p in PRIMITIVES}
BY_CLASS = {p.sympy: p for p in PRIMITIVES}
