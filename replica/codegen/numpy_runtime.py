"""Functions that generated NumPy code calls. Arrays: tokens are axis 0, samples the last axis.

They are made for an array module, NumPy or CuPy, and its special functions.
"""

from __future__ import annotations

from typing import Any


def namespace(xp: Any, special: Any) -> dict[str, Any]:
    """Names to functions on arrays of the module ``xp``; ``special`` has erf, erfc and erfcx."""

    def sigmoid(x: Any) -> Any:
        e = xp.exp(-xp.abs(x))
        return xp.where(x >= 0, 1.0, e) / (1.0 + e)

    def softplus(x: Any) -> Any:
        return xp.maximum(x, 0.0) + xp.log1p(xp.exp(-xp.abs(x)))

    def log_softplus(x: Any) -> Any:
        # below -37, log(log1p(e^x)) = x - e^x/2 to double precision, with no underflow
        low = x < -37.0
        return xp.where(low, x, xp.log(softplus(xp.where(low, 0.0, x))))

    def softplus_score(x: Any) -> Any:
        low = x < -37.0
        safe = xp.where(low, 0.0, x)
        return xp.where(low, 1.0, sigmoid(safe) / softplus(safe))

    def log_ndtr(x: Any) -> Any:
        # two forms that keep their digits in both tails
        u = x / 2.0**0.5
        low = x < -1.0
        left = xp.log(0.5 * special.erfcx(xp.where(low, -u, 1.0))) - 0.5 * x * x
        return xp.where(low, left, xp.log1p(-0.5 * special.erfc(xp.where(low, 0.0, u))))

    def step(x: Any) -> Any:
        return 0.5 * (1.0 + xp.sign(x))

    def logsumexp(u: Any) -> Any:
        top = u.max(axis=0)
        return top + xp.log(xp.exp(u - top).sum(axis=0))

    def softmax(u: Any) -> Any:
        e = xp.exp(u - u.max(axis=0))
        e /= e.sum(axis=0)
        return e

    def centre(values: Any, weights: Any) -> Any:
        """``values - sum(weights*values)``, centred on the token of largest weight."""
        values = xp.broadcast_to(values, weights.shape)
        top = weights.argmax(axis=0)
        from_top = values - xp.take_along_axis(values, top[None, :], axis=0)
        return from_top - (weights * from_top).sum(axis=0)

    plain = ("abs", "arange", "arccos", "cos", "exp", "expm1", "eye", "log", "log1p", "maximum",
             "minimum", "sign", "sin", "sqrt", "tanh")
    made = (sigmoid, softplus, log_softplus, softplus_score, log_ndtr, step, logsumexp, softmax,
            centre)
    return {
        **{n: getattr(xp, n) for n in plain},
        **{n: getattr(special, n) for n in ("erf", "erfc", "erfcx")},
        **{f.__name__: f for f in made},
    }
