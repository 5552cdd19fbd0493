"""Functions that generated mpmath code calls, at the precision in force."""

from __future__ import annotations

from typing import Any

import mpmath as mp

exp, log, tanh, sin, cos, acos, sign, sqrt, fabs, erf, erfc = (
    mp.exp, mp.log, mp.tanh, mp.sin, mp.cos, mp.acos, mp.sign, mp.sqrt, mp.fabs, mp.erf, mp.erfc
)

__all__ = [
    "acos", "centre", "cos", "erf", "erfc", "exp", "fabs", "log", "log_softplus", "maximum0",
    "rational", "sigmoid", "sign", "sin", "softmax", "softplus", "softplus_score", "sqrt", "tanh",
    "total",
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


def maximum0(x: Any) -> Any:
    return max(x, mp.mpf(0))


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
