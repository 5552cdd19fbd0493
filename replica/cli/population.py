"""``replica population``."""

from __future__ import annotations

from typing import Any

import click

from replica.cli.options import run_options
from replica.cli.output import FIGURES, check_writable, document, progress, warn
from replica.document.numbers import with_error
from replica.errors import UsageError


@click.command("population")
@click.option("--task", default="spiked", show_default=True, help="spiked or max.")
@click.option("--activation", required=True,
              help="softmax, linear, erf, softplus, or your own: FILE.toml.")
@click.option("--nu", required=True,
              help="Signal strength, a grid a:b:n or a list a,b,c; inf for max only.")
@click.option("--length", required=True,
              help="3, a distribution 1:0.25,2:0.5,3:0.25, or a list of lengths 2,4,8.")
@click.option("--shift", default=None, help="Shift c of erf, or optimal.  [default: -1]")
@click.option("--parameter", multiple=True, metavar="NAME=VALUE",
              help="A parameter of your activation; may be repeated.")
@click.option("--precision", type=int, default=None, metavar="DIGITS",
              help="Certified digits by mpmath; numbers are then decimal strings.")
@click.option("--plot", default=None, help="Draw the risk of a curve into FILE.svg, .pdf or .png.")
@run_options
def command(as_json: bool, precision: int | None, plot: str | None, **words: Any) -> int:
    """Excess risk at infinite data with the best weights, and the Bayes risk below it."""
    from replica.api import population_points, population_risk

    figure = check_writable("plot", plot, FIGURES)
    threads = words.pop("threads")
    points, many = population_points(words.pop("nu"), words.pop("length"))
    if figure is not None and not many:
        raise UsageError("plot", plot, "a curve: several values of nu or several lengths")
    found: list[tuple[Any, Any, Any]] = []
    inputs: dict[str, Any] = {}
    interrupted = False
    from threadpoolctl import threadpool_limits

    with threadpool_limits(threads), progress("population", len(points)) as report:
        try:
            for i, (nu, length) in enumerate(points):
                result, setting, warning = population_risk(
                    nu=nu, length=length, precision=precision, **words
                )
                if not inputs:
                    inputs = {n: v for n, v in setting.inputs().items()
                              if n not in ("reg_k", "reg_v", "noise")}
                    inputs |= {"precision": precision, "seed": words["seed"]}
                found.append((setting, result, warning))
                report(i + 1)
        except KeyboardInterrupt:
            interrupted = True
            if not found:
                raise
    warnings = [f"nu {s.nu:g}: {w}" if many else w for s, _, w in found if w]
    if many:
        inputs["nu"] = sorted({s.nu for s, _, _ in found})
        inputs["length"] = [p[1] for i, p in enumerate(points) if p[1] not in
                            [q[1] for q in points[:i]]]
        body: dict[str, Any] = {"points": [
            {"nu": s.nu, "length": s.inputs()["length"], **r.document()} for s, r, _ in found
        ]}
    else:
        body = dict(found[0][1].document())
    if words["shift"] == "optimal":
        inputs["shift"] = "optimal"
    if interrupted:
        body["interrupted"] = True
    if figure is not None:
        from replica.document.figure import draw_population

        draw_population(figure, found, f"{words['activation']}, {words['task']}")
    if as_json:
        click.echo(document(inputs, warnings, body))
    else:
        warn(warnings)
        _print(inputs, found)
    return 130 if interrupted else 0


def _print(inputs: dict[str, Any], found: list[Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if len(found) == 1:
        _, result, _ = found[0]
        body = result.document()
        for name, value in body.items():
            if name in ("standard_errors", "minima", "digits"):
                continue
            error = body["standard_errors"].get(name) if isinstance(value, float) else None
            if isinstance(value, dict):
                value = ", ".join(f"{n} = {x:.6g}" for n, x in value.items())
            text = with_error(value, error) if isinstance(value, float) else str(value)
            console.print(f"{name.replace('_', ' '):>22}  {text}", highlight=False)
        for scale in body.get("minima", [])[1:]:
            console.print(f"another minimum: scale k {scale['scale_k']:.6g}, "
                          f"excess risk {scale['excess_risk']:.6g}", highlight=False)
        return
    table = Table(title=f"{inputs['activation']} on {inputs['task']}-SLR, infinite data",
                  title_justify="left", padding=(0, 0), pad_edge=False)
    for name in ("nu", "length", "excess risk", "Bayes", "log excess", "scale k", "scale v"):
        table.add_column(name, justify="right", no_wrap=True)
    for setting, result, _ in found:
        body = result.document()
        errors = body["standard_errors"]
        length = ",".join(
            k if len(setting.lengths) == 1 else f"{k}:{p:g}"
            for k, p in setting.inputs()["length"].items()
        )

        def shown(name: str, body: Any = body, errors: Any = errors) -> str:
            x = body[name]
            return x if isinstance(x, str) else with_error(x, errors.get(name))

        table.add_row(f"{setting.nu:g}", length, shown("excess_risk"), shown("bayes_excess_risk"),
                      shown("log_excess_risk"), shown("scale_k"), shown("scale_v"))
    console.print(table)
