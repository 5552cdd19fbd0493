"""``replica bayes``."""

from __future__ import annotations

from typing import Any

import click

from replica.cli.options import run_options
from replica.cli.output import FIGURES, check_writable, document, progress, warn
from replica.document.numbers import with_error
from replica.errors import UsageError


@click.command("bayes")
@click.option("--task", default="spiked", show_default=True, help="spiked or max.")
@click.option("--nu", required=True, help="Signal strength; inf for max only.")
@click.option("--length", required=True, help="3, or a distribution 1:0.25,2:0.5,3:0.25.")
@click.option("--alpha", default=None, help="A value, a grid a:b:n, or a list a,b,c.")
@click.option("--noise", default="0.1", show_default=True,
              help="Standard deviation of the label noise, > 0.")
@click.option("--nodes", type=int, default=2**14, show_default=True,
              help="Total number of nodes, rounded up to 8 scrambles of 2^m.")
@click.option("--thresholds", is_flag=True,
              help="Find the spinodals and the information-theoretic transition in alpha.")
@click.option("--plot", default=None, help="Draw all fixed points into FILE.svg, .pdf or .png.")
@run_options
def command(
    as_json: bool, alpha: str | None, thresholds: bool, plot: str | None, **words: Any
) -> int:
    """Fixed points of the Bayes-optimal learner's state evolution, and the hard phase."""
    from replica.api import bayes_problem
    from replica.state_evolution.branch import Branch
    from replica.state_evolution.phases import phases

    if alpha is None and not thresholds:
        raise UsageError("alpha", "nothing", "a value, grid or list, unless --thresholds is given")
    figure = check_writable("plot", plot, FIGURES)
    if figure is not None and alpha is None:
        raise UsageError("plot", plot, "nothing without --alpha")
    threads = words.pop("threads")
    problem = bayes_problem(**words)
    alphas, many = _alphas(alpha)
    found: list[Any] = []
    interrupted = False
    transitions = None
    from threadpoolctl import threadpool_limits

    with threadpool_limits(threads), progress("state evolution", len(alphas)) as report:
        try:
            for phase in phases(problem.evolution, alphas, report):
                found.append(phase)
            if thresholds:
                transitions = Branch(problem.evolution).thresholds()
        except KeyboardInterrupt:
            interrupted = True
    warnings = [f"alpha {p.alpha:g}: {m}" for p in found for m in p.messages]
    points = [{"alpha": p.alpha, **p.document()} for p in found]
    body: dict[str, Any] = {"points": points} if many else (points[0] if points else {})
    if transitions is not None:
        body["thresholds"] = transitions.document()
    if interrupted:
        body["interrupted"] = True
    if figure is not None and found:
        from replica.document.figure import draw_phases

        draw_phases(figure, found, f"Bayes-optimal, {words['task']}")
    inputs = {**problem.inputs(), "alpha": list(alphas) if many else next(iter(alphas), None)}
    if as_json:
        click.echo(document(inputs, warnings, body))
    else:
        warn(warnings)
        _print(inputs, found, transitions)
    if interrupted:
        return 130
    return 0 if all(p.converged for p in found) else 1


def _alphas(text: str | None) -> tuple[tuple[float, ...], bool]:
    from derivations.setting import parse_alphas

    return parse_alphas(text) if text is not None else ((), False)


def _print(inputs: dict[str, Any], found: list[Any], transitions: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(
        title=f"Bayes-optimal, {inputs['task']}-SLR, nu = {inputs['nu']:g}, "
              f"noise {inputs['noise']:g}", title_justify="left", padding=(0, 0), pad_edge=False,
    )
    for name in ("alpha", "start", "q_k", "q_v", "test error", ""):
        table.add_column(name, justify="left" if name in ("start", "") else "right", no_wrap=True)
    for phase in found:
        for i, p in enumerate(phase.fixed_points):
            marks = []
            if len(phase.fixed_points) > 1:
                marks += ["algorithmic"] * (i == phase.algorithmic)
                marks += ["hard"] * (i == phase.algorithmic and phase.hard)
                marks += ["optimal"] * (i == phase.information_theoretic)
                marks += ["unstable"] * (not p.stable)
            table.add_row(
                f"{phase.alpha:g}" if i == 0 else "", p.start,
                *(with_error(getattr(p, n), p.standard_errors[n])
                  for n in ("q_k", "q_v", "test_error")),
                ", ".join(marks),
            )
    if found:
        console.print(table)
    if transitions is not None:
        for name, t in transitions.document().items():
            text = "none" if t is None else with_error(t["alpha"], t["standard_error"])
            console.print(f"{name.replace('_', ' ')}: {text}", highlight=False)
    console.print("brackets: one standard error", highlight=False)
