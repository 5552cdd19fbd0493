"""Errors that a person should read as one line."""

from __future__ import annotations

from typing import Any

LONGEST = 200
"""Characters of a value that a message shows."""


def shown(value: object) -> str:
    """A value in one line of bounded length."""
    text = str(value)
    text = text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
    return "".join(ch if ch.isprintable() else ch.encode("unicode_escape").decode("ascii")
                   for ch in text)


class ReplicaError(Exception):
    """Base class of the errors that this package raises on purpose."""


class UsageError(ReplicaError):
    """An input is not allowed. The message names field, value and what is allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        self.field = field
        self.value = value
        self.allowed = allowed
        super().__init__(f"{field}: {shown(value)} is not allowed; allowed: {allowed}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes."""
        return (type(self), (self.field, self.value, self.allowed))


class DerivationError(ReplicaError):
    """A step of a derivation cannot be carried out for this model."""


class UnsupportedNodeError(ReplicaError):
    """An expression holds a node that the intermediate representation does not know."""

    def __init__(self, node: object) -> None:
        self.node = node
        kind = type(node).__name__
        super().__init__(f"no code can be generated for {kind}: {node!s}")
