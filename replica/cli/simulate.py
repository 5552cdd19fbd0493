"""``replica simulate``."""

from __future__ import annotations

from typing import Any

import click

from replica.cli.options import model_options, run_options, setting_from
from replica.cli.output import document, progress, warn
from replica.document.numbers import with_error
from replica.errors import UsageError


@click.command("simulate")
@model_options()
@click.option("--dimension", type=int, default=400, show_default=True)
@click.option("--seeds", type=int, default=8, show_default=True, help="How many data sets.")
@click.option("--start", default="random", show_default=True, help="informed or random.")
@click.option("--method", default="lbfgs", show_default=True, help="lbfgs.")
@click.option("--backend", default="auto", show_default=True, help="auto, numpy or cuda.")
@run_options
def command(as_json: bool, seeds: int, seed: int, **words: Any) -> int:
    """Train on sampled data sets and average the overlaps, losses and errors."""
    from derivations.setting import parse_alphas
    from validation.simulate import make_simulator, simulate_setting, summarise

    setting = setting_from(words)
    alphas, many = parse_alphas(words["alpha"])
    if many:
        raise UsageError("alpha", words["alpha"], "a single number for a simulation")
    done: list[Any] = []
    interrupted = False
    common = {"start": words["start"], "method": words["method"]}
    simulator = make_simulator(setting, words["backend"])
    with progress("training", seeds) as report:
        try:
            result = simulate_setting(
                setting, alphas[0], words["dimension"], seeds, first_seed=seed,
                progress=report, keep=done, simulator=simulator, threads=words["threads"], **common
            )
        except KeyboardInterrupt:
            interrupted = True
            if not done:
                raise
            result = summarise(
                setting, alphas[0], words["dimension"], done, words["start"], words["method"],
                float("nan"),
            )
    warnings = []
    if result.converged_fraction < 1:
        warnings.append(f"only a fraction {result.converged_fraction:.2f} of the seeds converged")
    inputs = {
        **setting.inputs(), "alpha": alphas[0], "dimension": words["dimension"], "seeds": seeds,
        "seed": seed, "backend": words["backend"], **common,
    }
    body = result.document()
    if interrupted:
        body["interrupted"] = True
    if as_json:
        click.echo(document(inputs, warnings, body))
    else:
        warn(warnings)
        _print(result, setting)
    if interrupted:
        return 130
    return 0 if result.converged_fraction == 1 else 1


def _print(result: Any, setting: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"{setting.activation.name} on {setting.task}-SLR, D = {result.dimension}, "
              f"N = {result.samples}, {len(result.per_seed)} seeds",
        title_justify="left",
    )
    table.add_column("quantity")
    table.add_column("mean", justify="right")
    for name, value in result.overlaps.items():
        table.add_row(name, with_error(value, result.standard_errors["overlaps"][name]))
    for name in ("test_error", "test_error_sampled", "train_loss"):
        table.add_row(
            name.replace("_", " "),
            with_error(getattr(result, name), result.standard_errors[name]),
        )
    Console().print(table)
