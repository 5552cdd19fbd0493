"""Tasks: the law of the key's teacher field. Each is one file with ``build``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from replica.errors import UsageError

NAMES = ("spiked", "max")


def task(name: str) -> Any:
    """The module of the task of that name. Raises ``UsageError`` for another."""
    if name not in NAMES:
        raise UsageError("task", name, ", ".join(NAMES))
    return import_module(f"derivations.tasks.{name}_slr")
