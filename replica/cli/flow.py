"""``replica flow``."""

from __future__ import annotations

from typing import Any

import click

from replica.cli.options import model_options, run_options, setting_from
from replica.cli.output import FIGURES, check_writable, document, progress, warn
from replica.document.numbers import with_error
from replica.errors import UsageError


@click.command("flow")
@model_options(alpha=False)
@click.option("--step", default="0.5", show_default=True,
              help="Step size of one-pass SGD; 0 is gradient flow.")
@click.option("--time", default="20", show_default=True,
              help="Samples per dimension; times the step size for gradient flow.")
@click.option("--points", type=click.IntRange(2, 10000), default=41, show_default=True,
              help="How many times to report.")
@click.option("--start", default="both", show_default=True,
              help="random, informed, both, or overlaps m_k=0.3,q_k=0.5,...")
@click.option("--nodes", type=int, default=2**14, show_default=True,
              help="Total number of nodes over 8 scrambles.")
@click.option("--plot", default=None, help="Draw the overlaps into FILE.svg, .pdf or .png.")
@run_options
def command(as_json: bool, plot: str | None, start: str, **words: Any) -> int:
    """Overlaps under one-pass SGD or gradient flow, and what becomes of cross overlaps.

    --reg, --reg-k and --reg-v are the weight decay here, 0 if omitted.
    """
    import numpy as np
    from threadpoolctl import threadpool_limits

    from derivations.setting import as_number, positive
    from replica.api import flow_problem

    setting = setting_from(words, decay=True)
    step = as_number("step", words["step"], "a number >= 0; 0 is gradient flow")
    time = positive("time", words["time"])
    figure = check_writable("plot", plot, FIGURES)
    starts = parse_starts(start)
    problem = flow_problem(setting, step, words["nodes"], words["seed"])
    times = np.linspace(0.0, time, words["points"])
    found: list[Any] = []
    interrupted = False
    with threadpool_limits(words["threads"]), progress("flow", len(starts)) as report:
        try:
            minima = problem.minima()
            for i, (name, overlaps) in enumerate(starts.items()):
                found.append(problem.flow.run(overlaps, times, name))
                report(i + 1)
        except KeyboardInterrupt:
            interrupted = True
            if not found:
                raise
    inputs = {
        **setting.inputs(), "step": step, "time": time, "points": words["points"],
        "start": start, "nodes": words["nodes"], "seed": words["seed"],
    }
    warnings = [f"start {t.start}: overlaps diverge between time {t.times[-1]:g} and "
                f"{times[min(len(t.times), len(times) - 1)]:g}" for t in found if t.diverged]
    warnings += [f"start {t.start}: still moving at time {time:g}"
                 for t in found if not t.settled and not t.diverged]
    reached = [problem.reached(t, minima) for t in found]
    body: dict[str, Any] = {
        "trajectories": [
            {**t.document(), "reached": r} for t, r in zip(found, reached, strict=True)
        ],
        "minima": minima,
    }
    if interrupted:
        body["interrupted"] = True
    if figure is not None:
        from replica.document.figure import draw_flow

        draw_flow(figure, found, f"{setting.activation.name}, {setting.task}, {kind_of(step)}",
                  step)
    if as_json:
        click.echo(document(inputs, warnings, body))
    else:
        warn(warnings)
        _print(inputs, found, minima, reached)
    if interrupted:
        return 130
    return 1 if any(t.diverged for t in found) else 0


def parse_starts(text: str) -> dict[str, dict[str, float]]:
    """Starts by name. Raises ``UsageError`` for what is none."""
    from derivations.setting import as_number
    from replica.dynamics.starts import OVERLAPS, STARTS

    if text == "both":
        return {n: dict(x) for n, x in STARTS.items()}
    if text in STARTS:
        return {text: dict(STARTS[text])}
    allowed = "random, informed, both, or overlaps such as m_k=0.3,q_k=0.5"
    overlaps: dict[str, float] = {}
    for part in text.split(","):
        name, mark, value = part.partition("=")
        name = name.strip()
        if not mark or name not in OVERLAPS or name in overlaps:
            raise UsageError("start", text, allowed)
        overlaps[name] = as_number("start", value, allowed)
    return {"given": overlaps}


def kind_of(step: float) -> str:
    """What a step size is called."""
    return "gradient flow" if step == 0 else f"one-pass SGD, step {step:g}"


def _print(
    inputs: dict[str, Any], found: list[Any], minima: list[dict[str, float]], reached: list[Any]
) -> None:
    from rich.console import Console
    from rich.table import Table

    from replica.dynamics.starts import OVERLAPS

    console = Console()
    table = Table(title=f"{inputs['activation']} on {inputs['task']}-SLR, "
                        f"{kind_of(inputs['step'])}, "
                        f"time {inputs['time']:g}", title_justify="left")
    table.add_column("")
    for t in found:
        table.add_column(f"from {t.start}", justify="right", no_wrap=True)
    for i, name in enumerate(OVERLAPS):
        table.add_row(name, *(with_error(float(t.overlaps[-1, i]),
                                         float(t.standard_errors[-1, i])) for t in found))
    table.add_row("test error", *(with_error(float(t.test_error[-1]),
                                             float(t.test_error_errors[-1])) for t in found))
    console.print(table)
    for t, r in zip(found, reached, strict=True):
        if t.stability is not None:
            for when, s in zip(("start", "end"), t.stability, strict=True):
                fate = "decay" if s.decays else "grow"
                console.print(
                    f"{t.start}: cross overlaps {fate} at the {when}, fastest rate "
                    f"{with_error(s.growth_rates[0], s.standard_error)}", highlight=False)
        if r is not None:
            console.print(f"{t.start}: comes to rest at minimum {r + 1}", highlight=False)
    for i, m in enumerate(minima):
        console.print(
            f"minimum {i + 1} of the population risk: m_k {m['m_k']:.4f}, q_k {m['q_k']:.4f}, "
            f"m_v {m['m_v']:.4f}, excess risk {m['excess_risk']:.5f}", highlight=False)
