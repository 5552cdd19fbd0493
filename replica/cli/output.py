"""JSON documents, tables, files and progress bars."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from replica.document.files import check_file
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
    if suffixes and Path(path).suffix.lower() not in suffixes:
        raise UsageError(field, path, "a file ending in " + ", ".join(suffixes))
    return check_file(field, path)


def check_figure_and_table(plot: str | None, csv: str | None) -> tuple[Path | None, Path | None]:
    """Where ``--plot`` and ``--csv`` write: two files that can be written."""
    figure = check_writable("plot", plot, FIGURES)
    table = check_writable("csv", csv)
    if table is not None and table == figure:
        raise UsageError("csv", csv, "another file than the plot")
    return figure, table


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Rows as the text of a CSV file."""
    import csv
    import io

    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()


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
