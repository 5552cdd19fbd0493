"""``replica simulate``."""

from __future__ import annotations

from typing import Any

import click

from replica.cli.options import model_options, run_options, setting_from
from replica.cli.output import document, progress, warn
from replica.document.numbers import with_error
from replica.errors import UsageError


@click.command("simulate")
@model_options(required=False)
@click.option("--dimension", type=int, default=400, show_default=True)
@click.option("--seeds", type=int, default=8, show_default=True, help="How many data sets.")
@click.option("--start", default=None, help="informed or random.  [default: random]")
@click.option("--method", default="lbfgs", show_default=True,
              help="lbfgs: regularised training; sgd: one pass, alpha D fresh samples, --reg is "
              "the weight decay; amp: Bayes-optimal message passing.")
@click.option("--step", default="0.5", show_default=True, help="Step size of SGD.")
@click.option("--backend", default="auto", show_default=True, help="auto, numpy or cuda.")
@run_options
def command(as_json: bool, seeds: int, seed: int, **words: Any) -> int:
    """Train on sampled data sets and average the overlaps, losses and errors.

    --activation and --reg are not read by amp, which needs neither.
    """
    from derivations.setting import parse_alphas
    from validation.results import summarise
    from validation.simulate import METHODS, make_learner, simulate_setting

    method = words["method"]
    for name in ("nu", "length", "alpha", *(("activation",) if method != "amp" else ())):
        if words[name] is None:
            raise UsageError(name, "nothing", "a value: it is required")
    words["activation"] = words["activation"] or "softmax"
    words["start"] = words["start"] or METHODS.get(method)
    setting = setting_from(words, decay=method != "lbfgs")
    alphas, many = parse_alphas(words["alpha"])
    if many:
        raise UsageError("alpha", words["alpha"], "a single number for a simulation")
    done: list[Any] = []
    interrupted = False
    common = {"start": words["start"], "method": method}
    simulator = make_learner(setting, method, words["backend"], words["step"])
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
                setting, alphas[0], words["dimension"], done, words["start"], method,
                float("nan"),
            )
    warnings = []
    if result.converged_fraction < 1:
        warnings.append(f"only a fraction {result.converged_fraction:.2f} of the seeds converged")
    inputs = {
        **setting.inputs(), "alpha": alphas[0], "dimension": words["dimension"], "seeds": seeds,
        "seed": seed, "backend": words["backend"], **common,
    }
    if method == "sgd":
        inputs["step"] = simulator.step  # type: ignore[attr-defined]
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

    name = "message passing" if result.method == "amp" else setting.activation.name
    table = Table(
        title=f"{name} on {setting.task}-SLR, D = {result.dimension}, "
              f"N = {result.samples}, {len(result.per_seed)} seeds",
        title_justify="left",
    )
    table.add_column("quantity")
    table.add_column("mean", justify="right")
    for name, value in result.overlaps.items():
        table.add_row(name, with_error(value, result.standard_errors["overlaps"][name]))
    for name in ("test_error", "test_error_sampled", "train_loss"):
        if getattr(result, name) is None:
            continue
        table.add_row(
            name.replace("_", " "),
            with_error(getattr(result, name), result.standard_errors[name]),
        )
    Console().print(table)
