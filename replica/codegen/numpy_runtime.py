"""Functions that generated NumPy code calls. Arrays: tokens are axis 0, samples the last axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import erf, erfc, erfcx

exp, expm1, log, log1p, tanh, sin, cos, arccos, sign, sqrt, maximum, minimum = (
    np.exp, np.expm1, np.log, np.log1p, np.tanh, np.sin, np.cos, np.arccos, np.sign, np.sqrt,
    np.maximum, np.minimum,
)

__all__ = [
    "arccos", "centre", "cos", "erf", "erfc", "erfcx", "exp", "expm1", "log", "log1p", "log_ndtr",
    "log_softplus", "logsumexp", "maximum", "minimum", "sigmoid", "sign", "sin", "softmax",
    "softplus", "softplus_score", "sqrt", "step", "tanh",
]


def log_ndtr(x: Any) -> Any:
    # two forms that keep their digits in both tails
    u = x / np.sqrt(2.0)
    low = x < -1.0
    left = np.log(0.5 * erfcx(np.where(low, -u, 1.0))) - 0.5 * x * x
    return np.where(low, left, np.log1p(-0.5 * erfc(np.where(low, 0.0, u))))


def sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, e) / (1.0 + e)


def softplus(x: Any) -> Any:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def log_softplus(x: Any) -> Any:
    # below -37, log(log1p(e^x)) = x - e^x/2 to double precision, with no underflow
    low = x < -37.0
    return np.where(low, x, np.log(softplus(np.where(low, 0.0, x))))


def softplus_score(x: Any) -> Any:
    low = x < -37.0
    safe = np.where(low, 0.0, x)
    return np.where(low, 1.0, sigmoid(safe) / softplus(safe))


def step(x: Any) -> Any:
    return np.heaviside(x, 0.5)


def logsumexp(u: Any) -> Any:
    top = u.max(axis=0)
    return top + np.log(np.exp(u - top).sum(axis=0))


def softmax(u: Any) -> Any:
    e = np.exp(u - u.max(axis=0))
    e /= e.sum(axis=0)
    return e


def centre(values: Any, weights: Any) -> Any:
    """``values - sum(weights*values)``, centred on the token of largest weight."""
    values = np.broadcast_to(values, weights.shape)
    top = weights.argmax(axis=0)
    from_top = values - np.take_along_axis(values, top[None, :], axis=0)
    return from_top - (weights * from_top).sum(axis=0)
