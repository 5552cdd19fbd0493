"""``replica validate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from replica.cli.options import SETTING_WORDS, model_options
from replica.cli.output import FIGURES, check_writable, document, progress, warn
from replica.errors import UsageError


@click.command("validate")
@click.option("--preset", default=None, help="quick.")
@model_options(required=False)
@click.option("--dimensions", default="150,300", show_default=True,
              help="Dimensions of the simulation, extrapolated in 1/D (without a preset).")
@click.option("--seeds", type=int, default=24, show_default=True,
              help="Data sets per dimension (without a preset).")
@click.option("--nodes", type=int, default=2**15, show_default=True,
              help="Nodes of the theory (without a preset).")
@click.option("--seed", type=click.IntRange(0, 2**31), default=0, show_default=True)
@click.option("--threads", type=click.IntRange(1, 1024), default=None,
              help="Worker processes.  [default: all cores]")
@click.option("--output", default=None, help="Folder of report.html and report.json.")
@click.option("--plot", default=None, help="Draw all cases into FILE.svg, .pdf or .png.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(preset: str | None, output: str | None, plot: str | None, as_json: bool,
            threads: int | None, seed: int, **words: Any) -> int:
    """Compare theory with simulation; exit 1 if they disagree."""
    from validation.report import check_destination
    from validation.study import run_study, with_workers

    if output == "":
        raise UsageError("output", "''", "a folder that can be written")
    folder = Path(output) if output is not None else None
    if folder is not None:
        check_destination(folder)
    figure = check_writable("plot", plot, FIGURES)
    study = with_workers(_study(click.get_current_context(), preset, seed, words), threads)
    with progress("validating", 1000) as report:
        result = run_study(study, lambda done, total: report(1000 * done // total))
    if figure is not None and result.cases:
        from validation.figures import study_figure

        study_figure(result, figure)
    return _present(result, folder, as_json)


def _study(ctx: click.Context, preset: str | None, seed: int, words: dict[str, Any]) -> Any:
    from validation.study import single_study, study_of

    given = {
        n: words[n] for n in (*SETTING_WORDS, "alpha", "dimensions", "seeds", "nodes")
        if ctx.get_parameter_source(n) is click.core.ParameterSource.COMMANDLINE
    }
    if preset is not None:
        return study_of(preset, seed=seed, **given)
    missing = [n for n in ("activation", "nu", "length", "alpha") if words[n] is None]
    if missing:
        raise UsageError(missing[0], "no value", "a value, or --preset quick")
    dimensions = _dimensions(words.pop("dimensions"))
    model = {n: words[n] for n in SETTING_WORDS}
    return single_study(
        alpha=words["alpha"], dimensions=dimensions, seeds=words["seeds"], nodes=words["nodes"],
        seed=seed, **model,
    )


def _dimensions(text: str) -> tuple[int, ...]:
    pieces = [p.strip() for p in text.split(",")]
    if not all(p.isdigit() and len(p) < 7 for p in pieces):
        raise UsageError("dimensions", text, "integers separated by commas")
    return tuple(int(p) for p in pieces)


def _present(result: Any, folder: Path | None, as_json: bool) -> int:
    from validation.report import (
        by_size,
        criterion,
        inputs_of,
        report_document,
        warnings_of,
        write_report,
    )

    written = write_report(result, folder) if folder is not None and result.cases else []
    if as_json:
        body = report_document(result)
        for common in ("schema_version", "inputs", "warnings"):
            body.pop(common)
        click.echo(document(inputs_of(result), warnings_of(result), body))
    else:
        warn(warnings_of(result))
        _print(result, criterion(result), by_size(result.comparisons))
        for path in written:
            click.echo(f"wrote {path}")
    if result.interrupted:
        return 130
    return 0 if result.passed else 1


def _print(result: Any, rule: dict[str, Any], comparisons: list[Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from replica.document.numbers import with_error

    table = Table(title="largest deviations", title_justify="left")
    table.add_column("case")
    table.add_column("observable")
    for name in ("theory", "simulation", "z"):
        table.add_column(name, justify="right", no_wrap=True)
    for c in comparisons[:8]:
        table.add_row(
            c.case + ("" if c.counted else " (not counted)"), c.observable,
            with_error(c.theory, c.theory_error), with_error(c.simulation, c.simulation_error),
            f"{c.z:+.2f}",
        )
    console = Console()
    console.print(table)
    from validation.report import verdict_of

    smallest = "none" if rule["smallest_p"] is None else f"{rule['smallest_p']:.2g}"
    console.print(
        f"{verdict_of(result)}: {rule['counted']} comparisons counted, smallest p "
        f"{smallest}, threshold {rule['threshold']:.2g}; {result.seconds:.0f} s", highlight=False,
    )
