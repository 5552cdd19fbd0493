"""``replica compare``."""

from __future__ import annotations

from typing import Any

import click

from replica.cli.options import run_options
from replica.cli.output import check_figure_and_table, csv_text, document, progress, warn
from replica.document.numbers import with_error
from replica.errors import UsageError


@click.command("compare")
@click.option("--preset", default=None,
              help="paper: spiked nu = 1 and 2, max nu = inf, three tokens, alpha up to 20.")
@click.option("--task", default=None, help="spiked or max.  [default: spiked]")
@click.option("--nu", default=None, help="Signal strength, or several: 1,2 or a grid a:b:n.")
@click.option("--length", default=None, help="3, or a distribution 1:0.25,2:0.5,3:0.25.")
@click.option("--alpha", default=None, help="A value, a grid a:b:n, or a list a,b,c.")
@click.option("--activation", multiple=True,
              help="May be repeated; the first is compared with the others.  "
                   "[default: softmax, linear, erf, softplus]")
@click.option("--shift", default=None, help="Shift c of erf.  [default: -1]")
@click.option("--reg", default="optimal", show_default=True,
              help='Ridge strength, or "optimal" for the least test error of each learner.')
@click.option("--reg-k", default=None, help="Ridge strength of the keys.")
@click.option("--reg-v", default=None, help="Ridge strength of the values.")
@click.option("--noise", default="0.1", show_default=True,
              help="Standard deviation of the label noise, > 0.")
@click.option("--nodes", type=int, default=2**14, show_default=True,
              help="Total number of nodes, rounded up to 8 scrambles of 2^m.")
@click.option("--plot", default=None, help="Draw all curves into FILE.svg, .pdf or .png.")
@click.option("--csv", default=None, help="Write all points to a CSV file.")
@run_options
def command(as_json: bool, plot: str | None, csv: str | None, **words: Any) -> int:
    """Test errors of activations and of the Bayes-optimal learner, side by side."""
    from replica.document.files import write_atomically
    from validation.learners import compare_learners, warnings

    request = _request(words)
    figure, table = check_figure_and_table(plot, csv)
    jobs = len(request.panels) * (len(request.activations) + 1)
    with progress("curves", jobs) as report:
        panels, interrupted = compare_learners(request, lambda done, _: report(done))
    if figure is not None and any(p.curves for p in panels):
        from replica.document.figure import draw_learners

        draw_learners(figure, panels)
    if table is not None:
        write_atomically(table, _csv(panels))
    notes = warnings(panels)
    body: dict[str, Any] = {"panels": [p.document() for p in panels]}
    if interrupted:
        body["interrupted"] = True
    if as_json:
        click.echo(document(_inputs(request), notes, body))
    else:
        warn(notes)
        _print(request, panels)
    if interrupted:
        return 130
    return 0 if all(q.converged for p in panels for c in p.curves.values() for q in c) else 1


def _request(words: dict[str, Any]) -> Any:
    from derivations.activations import NAMES
    from derivations.setting import parse_alphas, parse_grid
    from validation.learners import PAPER, Request

    if words["preset"] is None:
        for name in ("nu", "length", "alpha"):
            if words[name] is None:
                raise UsageError(name, "nothing", "a value, unless --preset is given")
        signals, _ = parse_grid("nu", words["nu"], "a number, a grid first:last:count, or a list")
        panels: tuple[tuple[str, float], ...] = tuple(
            (words["task"] or "spiked", nu) for nu in signals
        )
    elif words["preset"] == "paper":
        for name in ("task", "nu", "length"):
            if words[name] is not None:
                raise UsageError(name, words[name], "nothing beside a preset")
        panels = PAPER
    else:
        raise UsageError("preset", words["preset"], "paper")
    alphas, _ = parse_alphas(words["alpha"] or "0.5,1,2,4,10,20")
    return Request(
        panels, tuple(words["activation"]) or NAMES, tuple(sorted(alphas)),
        {"length": words["length"] or "3",
         **{n: words[n] for n in ("shift", "reg", "reg_k", "reg_v", "noise")}},
        words["nodes"], words["seed"], words["threads"],
    )


def _inputs(request: Any) -> dict[str, Any]:
    settings = [request.setting(*request.panels[0], a) for a in request.activations]
    first = settings[0].inputs()
    found = {n: first[n] for n in ("length", "reg_k", "reg_v", "noise")}
    return {
        "panels": [{"task": t, "nu": nu} for t, nu in request.panels],
        "activations": [{n: v for n, v in s.inputs().items()
                         if n not in ("task", "nu", *found)} for s in settings],
        **found, "alpha": list(request.alphas), "nodes": request.nodes, "seed": request.seed,
    }


def _csv(panels: Any) -> str:
    rows: list[list[Any]] = [["task", "nu", "learner", "alpha", "test_error", "test_error_se",
                              "r_k", "r_v", "replicon", "stable", "converged"]]
    for panel in panels:
        for name, curve in panel.curves.items():
            for p in curve:
                rows.append([
                    panel.task, panel.nu, name, p.alpha, p.test_error, p.standard_error,
                    p.ridge.get("r_k"), p.ridge.get("r_v"), p.replicon, p.stable, p.converged,
                ])
    return csv_text(rows)


def _print(request: Any, panels: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for panel in panels:
        if not panel.curves:
            continue
        table = Table(title=f"test error, {panel.task}-SLR, nu = {panel.nu:g}",
                      title_justify="left", padding=(0, 0), pad_edge=False)
        table.add_column("alpha", justify="right", no_wrap=True)
        for name in panel.curves:
            table.add_column(name, justify="right")
        for i, alpha in enumerate(request.alphas):
            points = [curve[i] for curve in panel.curves.values()]
            table.add_row(f"{alpha:g}", *(
                with_error(p.test_error, p.standard_error) + ("" if p.sound else "*")
                for p in points
            ))
        console.print(table)
        for sentence in panel.statements():
            console.print(sentence, highlight=False)
        console.print()
    note = "brackets: one standard error; within errors: less than three of them"
    if any(not q.sound for p in panels for c in p.curves.values() for q in c):
        note += "; *: not converged, or outside replica symmetry"
    console.print(note, highlight=False)
