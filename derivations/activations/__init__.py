"""Built-in activations, each one file that defines ``ACTIVATION``, and where the user's come in."""

from __future__ import annotations

from importlib import import_module

from replica.errors import UsageError
from replica.model import Activation

NAMES = ("softmax", "linear", "erf", "softplus")


def activation(name: str) -> Activation:
    """The built-in activation of that name, or the user's own from a ``.toml`` file.

    Raises ``UsageError`` for another name and for a file that defines no activation.
    """
    if name.endswith(".toml"):
        from derivations.own_activation import load_activation

        return load_activation(name)
    if name not in NAMES:
        raise UsageError("activation", name, ", ".join(NAMES) + ", or a file NAME.toml")
    found = import_module(f"derivations.activations.{name}").ACTIVATION
    assert isinstance(found, Activation)
    return found


def definition_of(name: str) -> str:
    """What the name stands for: itself if built in, else the whole text of the user's file.

    Raises ``UsageError`` for a file that cannot be read.
    """
    if not name.endswith(".toml"):
        return name
    from derivations.own_activation import activation_text

    return activation_text(name)
