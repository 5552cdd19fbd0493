"""Built-in activations. Each is one file that defines ``ACTIVATION``."""

from __future__ import annotations

from importlib import import_module

from replica.errors import UsageError
from replica.model import Activation

NAMES = ("softmax", "linear", "erf", "softplus")


def activation(name: str) -> Activation:
    """The built-in activation of that name. Raises ``UsageError`` for another."""
    if name not in NAMES:
        raise UsageError("activation", name, ", ".join(NAMES))
    found = import_module(f"derivations.activations.{name}").ACTIVATION
    assert isinstance(found, Activation)
    return found
