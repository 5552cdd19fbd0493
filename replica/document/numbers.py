"""Numbers as people and JSON read them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def clean(value: Any) -> Any:
    """Infinity to ``"inf"``, NaN to ``None``, mappings and sequences through."""
    if isinstance(value, Mapping):
        return {str(k): clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [clean(v) for v in value]
    if isinstance(value, bool) or value is None or isinstance(value, str | int):
        return value
    number = float(value)
    if math.isnan(number):
        return None
    if math.isinf(number):
        return "inf" if number > 0 else "-inf"
    return number


def with_error(value: float | None, error: float | None) -> str:
    """``0.3329(2)``: the error in units of the last digits shown, two digits below 0.25."""
    if value is None or math.isnan(value):
        return "-"
    if error is None or not math.isfinite(error) or error <= 0:
        return f"{value:.6g}"
    size = max(abs(value), error)
    if not 1e-3 <= size < 1e6:  # 1.23(4)e-05
        power = math.floor(math.log10(size))
        return f"{with_error(value / 10.0**power, error / 10.0**power)}e{power:+03d}"
    if error < 1e-9 * size:
        return f"{value:.10g}"
    exponent = math.floor(math.log10(error))
    digits = exponent if error / 10**exponent >= 2.5 else exponent - 1
    if digits >= 0:
        return f"{value:.0f}({error:.0f})"
    scaled = round(error / 10**digits)
    return f"{value:.{-digits}f}({scaled})"
