"""The table of primitive functions: one row says how each printer writes one function.

A SymPy function that is not here is an error before any code exists.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from replica.symbolic import primitives as prim


@dataclass(frozen=True)
class Primitive:
    """One element-wise function of one argument.

    ``numpy`` and ``mpmath`` name a function of the runtime modules of those printers, ``c`` a
    function of the C runtime. ``safe`` is the range of arguments for which the result is accurate
    in double precision.
    """

    name: str
    sympy: type[sp.Function]
    numpy: str
    mpmath: str
    c: str
    safe: tuple[float, float]


_INF = float("inf")

PRIMITIVES: tuple[Primitive, ...] = (
    Primitive("exp", sp.exp, "exp", "exp", "rp_exp", (-745.0, 709.0)),
    Primitive("log", sp.log, "log", "log", "log", (0.0, _INF)),
    Primitive("tanh", sp.tanh, "tanh", "tanh", "tanh", (-_INF, _INF)),
    Primitive("sin", sp.sin, "sin", "sin", "sin", (-1e8, 1e8)),
    Primitive("cos", sp.cos, "cos", "cos", "cos", (-1e8, 1e8)),
    Primitive("acos", sp.acos, "arccos", "acos", "acos", (-1.0, 1.0)),
    Primitive("erf", sp.erf, "erf", "erf", "erf", (-_INF, _INF)),
    Primitive("erfc", sp.erfc, "erfc", "erfc", "erfc", (-_INF, 26.0)),
    Primitive("sign", sp.sign, "sign", "sign", "rp_sign", (-_INF, _INF)),
    Primitive("abs", sp.Abs, "abs", "fabs", "fabs", (-_INF, _INF)),
    Primitive("softplus", prim.softplus, "softplus", "softplus", "rp_softplus", (-745.0, _INF)),
    Primitive("sigmoid", prim.sigmoid, "sigmoid", "sigmoid", "rp_sigmoid", (-745.0, _INF)),
    Primitive(
        "log_softplus", prim.log_softplus, "log_softplus", "log_softplus", "rp_log_softplus",
        (-_INF, _INF),
    ),
    Primitive(
        "softplus_score", prim.softplus_score, "softplus_score", "softplus_score",
        "rp_softplus_score", (-_INF, _INF),
    ),
)

BY_NAME = {p.name: p for p in PRIMITIVES}
BY_CLASS = {p.sympy: p for p in PRIMITIVES}
