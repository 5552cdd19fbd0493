"""replica: from a model's loss and data to replica equations, numbers with errors, and a check.

The public functions load their heavy imports when they are first used.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

__all__ = [
    "__version__", "activation", "bayes", "bayes_thresholds", "derive", "derive_model",
    "flow", "population", "simulate", "solve", "solve_model", "validate",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from replica import api

        return getattr(api, name)
    raise AttributeError(f"module 'replica' has no attribute {name!r}")
