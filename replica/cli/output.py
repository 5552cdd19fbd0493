"""JSON documents, tables, files and progress bars."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from replica.document.numbers import clean
from replica.errors import UsageError

SCHEMA_VERSION = 1
FIGURES = (".svg", ".pdf", ".png")


def document(inputs: Mapping[str, Any], warnings: list[str], body: Mapping[str, Any]) -> str:
    """One JSON document with the common keys first."""
    whole = {"schema_version": SCHEMA_VERSION, "inputs": inputs, "warnings": warnings, **body}
    return json.dumps(clean(whole), indent=2, allow_nan=False)


def warn(messages: list[str]) -> None:
    """Warnings on standard error."""
    for m in messages:
        click.echo(f"warning: {m}", err=True)


def check_writable(field: str, path: str | None, suffixes: tuple[str, ...] = ()) -> Path | None:
    """A file that can be written, before any computing is done."""
    if path is None:
        return None
    target = Path(path)
    if suffixes and target.suffix.lower() not in suffixes:
        raise UsageError(field, path, "a file ending in " + ", ".join(suffixes))
    folder = target.parent
    if target.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(field, path, "a file in an existing folder that can be written")
    return target


def check_folder(field: str, path: str) -> Path:
    """A folder that exists or can be made, and can be written."""
    folder = Path(path)
    existing = folder
    while not existing.exists():
        if existing.parent == existing:
            break
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise UsageError(field, path, "a folder that can be written")
    return folder


def write_atomically(target: Path, text: str) -> None:
    """Write a whole file or nothing."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def progress(title: str, total: int) -> Iterator[Any]:
    """A bar on a terminal, nothing in a pipe. Yields ``report(done)``."""
    if total < 2 or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)
