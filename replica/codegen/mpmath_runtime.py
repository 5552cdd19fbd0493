"""Functions that generated mpmath code calls, at the precision in force."""

from __future__ import annotations

from typing import Any

import mpmath as mp

exp, expm1, log, log1p, tanh, sin, cos, acos, sign, sqrt, fabs, erf, erfc = (
    mp.exp, mp.expm1, mp.log, mp.log1p, mp.tanh, mp.sin, mp.cos, mp.acos, mp.sign, mp.sqrt,
    mp.fabs, mp.erf, mp.erfc,
)
maximum, minimum = max, min

__all__ = [
    "acos", "centre", "cos", "erf", "erfc", "erfcx", "exp", "expm1", "fabs", "log", "log1p",
    "log_ndtr", "log_softplus", "logsumexp", "maximum", "minimum", "rational", "sigmoid", "sign",
    "sin", "softmax", "softplus", "softplus_score", "sqrt", "step", "tanh", "total",
]


def rational(p: int, q: int) -> Any:
    return mp.mpf(p) / q


def sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def softplus(x: Any) -> Any:
    return mp.log1p(mp.exp(x))


def log_softplus(x: Any) -> Any:
    return mp.log(softplus(x))


def softplus_score(x: Any) -> Any:
    return sigmoid(x) / softplus(x)


def erfcx(x: Any) -> Any:
    return mp.exp(x * x) * mp.erfc(x)


def log_ndtr(x: Any) -> Any:
    tail = mp.erfc(abs(x) / mp.sqrt(2)) / 2
    return mp.log(tail) if x < 0 else mp.log1p(-tail)


def step(x: Any) -> Any:
    return mp.mpf((x > 0) - (x < 0) + 1) / 2


def logsumexp(u: list[Any]) -> Any:
    top = max(u)
    return top + mp.log(mp.fsum(mp.exp(x - top) for x in u))


def total(values: list[Any]) -> Any:
    return mp.fsum(values)


def softmax(u: list[Any]) -> list[Any]:
    top = max(u)
    e = [mp.exp(x - top) for x in u]
    norm = mp.fsum(e)
    return [x / norm for x in e]


def centre(values: list[Any], weights: list[Any]) -> list[Any]:
    top = values[max(range(len(weights)), key=lambda k: weights[k])]
    shifted = [v - top for v in values]
    mean = mp.fsum(w * v for w, v in zip(weights, shifted, strict=True))
    return [v - mean for v in shifted]
