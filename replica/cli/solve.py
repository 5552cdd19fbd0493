"""``replica solve``."""

from __future__ import annotations

from typing import Any

import click

from replica.cli.options import model_options, run_options, setting_from
from replica.cli.output import (
    check_figure_and_table,
    csv_text,
    document,
    progress,
    warn,
)
from replica.document.files import write_atomically
from replica.document.numbers import with_error
from replica.errors import UsageError


@click.command("solve")
@model_options(optimise=True)
@click.option("--nodes", type=int, default=2**15, show_default=True,
              help="Total number of nodes, rounded up to 8 scrambles of 2^m.")
@click.option("--tolerance", type=float, default=1e-8, show_default=True)
@click.option("--start", default="informed", show_default=True,
              help="informed, uninformed, or all: every saddle point that can be found.")
@click.option("--backend", default="auto", show_default=True,
              help="auto, c, numpy, cuda or mpmath.")
@click.option("--plot", default=None, help="Draw the curve into FILE.svg, .pdf or .png.")
@click.option("--csv", default=None, help="Write the points to a CSV file.")
@run_options
def command(as_json: bool, plot: str | None, csv: str | None, **words: Any) -> int:
    """Solve for the order parameters at one alpha or along a curve."""
    from derivations.setting import parse_alphas
    from replica.saddle_point import branches, ridge
    from replica.saddle_point.solve import SaddlePointProblem, SolverOptions

    setting = setting_from(words, optimise=True)
    every = words["start"] == "all"
    if every and setting.optimal:
        raise UsageError("start", "all", "informed, uninformed where a ridge strength is optimal")
    alphas, many = parse_alphas(words["alpha"])
    options = SolverOptions(
        nodes=words["nodes"], tolerance=words["tolerance"],
        start="informed" if every else words["start"],
        backend=words["backend"], seed=words["seed"], threads=words["threads"],
    )
    figure, table = check_figure_and_table(plot, csv)
    from replica.api import derive_model

    problem = SaddlePointProblem(
        derive_model(setting.model()), setting.values(), setting.lengths, options
    )
    solutions: list[Any] = []
    found: list[Any] = []
    asked = alphas
    interrupted = False
    with progress("solving", len(alphas)) as report:
        try:
            if every:
                for known in branches.branch_curve(problem, asked, report):
                    found, solutions = known, [f.lowest for f in known]
                    alphas = tuple(f.alpha for f in known)
            else:
                rivals = branches.Rivals(problem)
                walk = ridge.solutions(problem, setting.optimal, alphas, report)
                for a, s in zip(alphas, walk, strict=True):
                    solutions.append(s if setting.optimal else rivals.beside(a, s))
        except KeyboardInterrupt:
            interrupted = True
    warnings = [problem.backend.note] if problem.backend.note else []
    warnings += _warnings(alphas, solutions)
    warnings += [f"alpha {f.alpha:g}: {m}" for f in found for m in f.messages()]
    others = [(f.alpha, b.solution) for f in found for b in f.branches[1:]]
    inputs = {
        **setting.inputs(), "alpha": list(asked) if many else asked[0],
        "nodes": options.nodes, "tolerance": options.tolerance, "start": words["start"],
        "backend": options.backend, "seed": options.seed,
    }
    if figure is not None and solutions:
        from replica.document.figure import draw_curve

        draw_curve(figure, alphas[: len(solutions)], solutions,
                   f"{setting.activation.name}, {setting.task}", others)
    if table is not None and solutions:
        rows = [(a, s, 0) for a, s in zip(alphas, solutions, strict=False)]
        if found:
            rows = [(f.alpha, b.solution, i) for f in found for i, b in enumerate(f.branches)]
        write_atomically(table, _csv(rows))
    if as_json:
        points = [{"alpha": a, **s.document()} for a, s in zip(alphas, solutions, strict=False)]
        for point, f in zip(points, found, strict=False):
            point |= f.document()
        body: dict[str, Any] = {"points": points} if many else (points[0] if points else {})
        if interrupted:
            body["interrupted"] = True
        click.echo(document(inputs, warnings, body))
    else:
        warn(warnings)
        _print(setting, alphas, solutions, found)
    if interrupted:
        return 130
    return 0 if all(s.converged for s in solutions) else 1


def _warnings(alphas: tuple[float, ...], solutions: list[Any]) -> list[str]:
    found = []
    for a, s in zip(alphas, solutions, strict=False):
        found += [f"alpha {a:g}: {m}" for m in s.messages]
        if not s.feasible:
            found.append(f"alpha {a:g}: infeasible overlaps")
        if s.stable is False:
            found.append(
                f"alpha {a:g}: replicon {s.replicon:.3g} > 1, replica symmetry is unstable"
            )
    return found


COLUMNS = ("m_k", "q_k", "V_k", "m_v", "q_v", "V_v")


def _csv(points: list[tuple[float, Any, int]]) -> str:
    """A row per point: its ratio, solution, and place among the saddle points there."""
    scalars = ("test_error", "train_loss", "free_energy")
    header = ["alpha"]
    for name in (*COLUMNS, *scalars):
        header += [name, f"{name}_se"]
    rows: list[list[Any]] = [[*header, "excess_risk", "replicon", "stable", "converged", "residual",
                              "r_k", "r_v", "branch"]]
    for a, s, branch in points:
        row: list[Any] = [a]
        for n in COLUMNS:
            row += [s.order_parameters[n], s.standard_errors["order_parameters"][n]]
        for n in scalars:
            row += [getattr(s, n), s.standard_errors[n]]
        rows.append([*row, s.excess_risk, s.replicon, s.stable, s.converged, s.residual,
                     s.ridge["r_k"], s.ridge["r_v"], branch])
    return csv_text(rows)


def _print(
    setting: Any, alphas: tuple[float, ...], solutions: list[Any], found: list[Any]
) -> None:
    from rich.console import Console

    console = Console()
    length = ", ".join(f"{k}: {v:g}" if v < 1 else str(k) for k, v in setting.lengths.items())
    console.print(
        f"{setting.activation.name} on {setting.task}-SLR, nu = {setting.nu:g}, L = {length}, "
        + ", ".join(
            f"{n} {'optimal' if n in setting.optimal else f'= {value:g}'}"
            for n, value in (("r_k", setting.reg_k), ("r_v", setting.reg_v))
        ) + f", noise {setting.noise:g}",
        highlight=False,
    )
    if len(solutions) == 1:
        console.print(_single_table(alphas[0], solutions[0], setting.optimal))
    elif solutions:
        console.print(_curve_table(alphas, solutions, setting.optimal))
    if found:
        console.print(_branch_table(found))
    last = solutions[-1] if solutions else None
    if last is not None:
        console.print(
            f"{last.nodes} nodes, {last.backend}, residual {last.residual:.1e}, "
            f"{sum(s.seconds for s in solutions):.1f} s; brackets: one standard error",
            highlight=False,
        )


def _state(s: Any) -> str:
    state = "" if s.converged else "not converged"
    return f"{state} unstable".strip() if s.stable is False else state


def _replicon(s: Any) -> str:
    if s.replicon is None:
        return "-"
    return with_error(s.replicon, s.standard_errors["replicon"])


def _single_table(alpha: float, s: Any, optimal: tuple[str, ...]) -> Any:
    """One saddle point: a row per quantity."""
    from rich.table import Table

    table = Table("quantity", "k", "v", title=f"alpha = {alpha:g}", title_justify="left")
    errors = s.standard_errors
    for kind, suffix in (("order_parameters", ""), ("conjugates", " conjugate")):
        values = getattr(s, kind)
        for letter in ("m", "q", "V"):
            table.add_row(letter + suffix, *(
                with_error(values[f"{letter}_{w}"], errors[kind][f"{letter}_{w}"])
                for w in ("k", "v")
            ))
    table.add_section()
    for name in ("test_error", "train_loss", "free_energy"):
        table.add_row(name.replace("_", " "), with_error(getattr(s, name), errors[name]), "")
    table.add_row("replicon", _replicon(s), _state(s))
    if optimal:
        table.add_row("optimal ridge", *(
            f"{s.ridge[n]:.3g}" if n in optimal else "" for n in ("r_k", "r_v")
        ))
    return table


def _branch_table(found: list[Any]) -> Any:
    """All saddle points, the lowest free energy first at every ratio."""
    from rich.table import Table

    table = Table(title="saddle points, lowest free energy first", title_justify="left",
                  padding=(0, 0), pad_edge=False)
    for name in ("alpha", "free energy", "test error", "m_k", "m_v", "replicon", "starts"):
        table.add_column(name, justify="left" if name == "starts" else "right",
                         no_wrap=name != "starts")
    for f in found:
        for i, b in enumerate(f.branches):
            s, e = b.solution, b.solution.standard_errors
            table.add_row(
                f"{f.alpha:g}" if i == 0 else "",
                *(with_error(getattr(s, n), e[n]) for n in ("free_energy", "test_error")),
                *(with_error(s.order_parameters[n], e["order_parameters"][n])
                  for n in ("m_k", "m_v")),
                _replicon(s), ", ".join(b.starts),
            )
    return table


def _curve_table(
    alphas: tuple[float, ...], solutions: list[Any], optimal: tuple[str, ...]
) -> Any:
    from rich.table import Table

    table = Table(title_justify="left", padding=(0, 0), pad_edge=False)
    table.add_column("alpha", justify="right", no_wrap=True, min_width=6)
    shown = ("m_k", "m_v") if optimal else ("m_k", "q_k", "m_v", "q_v")  # 80 columns are few
    for name in (*optimal, *shown, "test error", "replicon"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for a, s in zip(alphas, solutions, strict=False):
        e, p = s.standard_errors["order_parameters"], s.order_parameters
        table.add_row(
            f"{a:g}", *(f"{s.ridge[n]:.3g}" for n in optimal),
            *(with_error(p[n], e[n]) for n in shown),
            with_error(s.test_error, s.standard_errors["test_error"]), _replicon(s), _state(s),
        )
    return table
