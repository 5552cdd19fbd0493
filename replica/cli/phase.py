"""``replica phase``."""

from __future__ import annotations

from typing import Any

import click

from replica.cli.options import SETTING_WORDS, model_options, run_options
from replica.cli.output import FIGURES, check_writable, document, progress, warn
from replica.document.numbers import with_error
from replica.errors import UsageError


@click.command("phase")
@click.option("--x", "x", default="alpha", show_default=True,
              help="Horizontal axis: alpha, nu, noise, reg, reg-k or reg-v.")
@click.option("--y", "y", default="reg", show_default=True, help="Vertical axis, one of the same.")
@model_options()
@click.option("--nodes", type=int, default=2**13, show_default=True,
              help="Total number of nodes, rounded up to 8 scrambles of 2^m.")
@click.option("--tolerance", type=float, default=1e-6, show_default=True)
@click.option("--backend", default="auto", show_default=True, help="auto, c or numpy.")
@click.option("--dimension", type=int, default=None,
              help="Train on sampled data of this dimension at every point too.")
@click.option("--seeds", type=int, default=8, show_default=True,
              help="Data sets per point with --dimension.")
@click.option("--plot", default=None, help="Draw the map into FILE.svg, .pdf or .png.")
@run_options
def command(as_json: bool, plot: str | None, **words: Any) -> int:
    """Map the replicon over two parameters and find the line where it is 1.

    The options of the two axes take a grid: --x alpha --y reg --alpha 0.5:6:8 --reg 0.02:1:7:log.
    """
    from validation.stability_map import stability_map

    plane = _plane(words)
    figure = check_writable("plot", plot, FIGURES)
    with progress("columns", len(plane.xs)) as report:
        found, interrupted = stability_map(plane, lambda done, _: report(done))
    inputs = {
        **plane.setting.inputs(), "alpha": plane.alpha, "x": plane.x, "y": plane.y,
        "nodes": plane.options.nodes, "tolerance": plane.options.tolerance,
        "seed": plane.options.seed, "backend": plane.options.backend,
        "dimension": plane.dimension, "seeds": plane.seeds if plane.dimension else None,
    }
    for axis, values in ((plane.x, plane.xs), (plane.y, plane.ys)):
        for name in ("reg_k", "reg_v") if axis == "reg" else (axis,):
            inputs[name] = list(values)
    left = sum(not p.converged for p in found.points)
    warnings = [f"{left} of {len(found.points)} points did not converge"] if left else []
    if figure is not None and found.points:
        from replica.document.figure import draw_stability

        s = plane.setting
        draw_stability(figure, found, f"{s.activation.name}, {s.task}")
    if as_json:
        body: dict[str, Any] = found.document()
        if interrupted:
            body["interrupted"] = True
        click.echo(document(inputs, warnings, body))
    else:
        warn(warnings)
        _print(found)
    return 130 if interrupted else 0


def _plane(words: dict[str, Any]) -> Any:
    from derivations.setting import make_setting, parse_alphas, parse_grid
    from replica.saddle_point.solve import SolverOptions
    from validation.stability_map import AXES, Plane, axis_words

    axes = tuple(words[n].replace("-", "_") for n in ("x", "y"))
    for name, axis in zip(("x", "y"), axes, strict=True):
        if axis not in AXES:
            raise UsageError(name, words[name], ", ".join(a.replace("_", "-") for a in AXES))
    grids = []
    for axis in axes:
        if words[axis] is None:
            raise UsageError(axis, "nothing", "a grid first:last:count or a list, for an axis")
        grids.append(parse_grid(axis, words[axis], "a grid first:last:count or a list a,b,c")[0])
    setting = make_setting(**axis_words({n: words[n] for n in SETTING_WORDS}, axes))
    alpha = 1.0
    if "alpha" not in axes:
        alphas, many = parse_alphas(words["alpha"])
        if many:
            raise UsageError("alpha", words["alpha"], "one number, unless it is an axis")
        alpha = alphas[0]
    options = SolverOptions(
        nodes=words["nodes"], tolerance=words["tolerance"], backend=words["backend"],
        seed=words["seed"], threads=1,
    )
    return Plane(setting, alpha, axes[0], grids[0], axes[1], grids[1], options, words["threads"],
                 words["dimension"], words["seeds"])


def _print(found: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    console, plane = Console(), found.plane
    table = Table(title="replicon", title_justify="left", padding=(0, 0), pad_edge=False)
    table.add_column(f"{plane.y} \\ {plane.x}", justify="right", no_wrap=True)
    for x in plane.xs:
        table.add_column(f"{x:.3g}", justify="right", no_wrap=True)
    at = {(p.x, p.y): p for p in found.points}
    for y in sorted(plane.ys, reverse=True):
        table.add_row(f"{y:.3g}", *(_cell(at.get((x, y))) for x in plane.xs))
    console.print(table)
    for c in found.line:
        console.print(f"replicon 1 at {plane.x} = {c.x:g}: {plane.y} = "
                      f"{with_error(c.y, c.standard_error)}", highlight=False)
    if not found.line:
        console.print("the replicon does not pass 1 on this grid", highlight=False)
    console.print("above 1 replica symmetry is unstable; *: not converged"
                  + ("; !: theory and simulation part" if plane.dimension else ""),
                  highlight=False)
    if plane.dimension:
        for kind, points in (("stable", [p for p in found.points if p.stable]),
                             ("unstable or not converged",
                              [p for p in found.points if not p.stable])):
            apart = sum(p.parts for p in points)
            console.print(f"{kind}: theory and simulation part at {apart} of {len(points)} points",
                          highlight=False)


def _cell(point: Any) -> str:
    if point is None or point.replicon is None:
        return "-"
    marks = ("" if point.converged else "*") + ("!" if point.parts else "")
    return f"{point.replicon:.2f}{marks}"
