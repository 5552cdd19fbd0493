"""A user's TOML file, read with one line for whatever is wrong with it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from replica.errors import UsageError


def read_toml(field: str, path: str | Path, limit: int) -> dict[str, Any]:
    """The tables of a file of at most ``limit`` bytes.

    Raises
    ------
    UsageError
        If it cannot be read, is too large, no text in UTF-8, or no TOML.
    """
    text = read_text(field, path, limit)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also for integers of 5000 digits
        why = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise UsageError(field, str(path), f"a TOML file ({why})") from None


def read_text(field: str, path: str | Path, limit: int) -> str:
    """The text of a file of at most ``limit`` bytes; ``UsageError`` as in :func:`read_toml`."""
    where = str(path)
    try:
        with open(path, "rb") as stream:
            raw = stream.read(limit + 1)
        text = raw.decode("utf-8")
    except OSError as error:
        raise UsageError(field, where, f"a file that can be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise UsageError(field, where, "a text file in UTF-8") from None
    if len(raw) > limit:
        raise UsageError(field, where, f"a file of at most {limit} bytes")
    return text
