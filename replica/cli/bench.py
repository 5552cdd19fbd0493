"""``replica bench``."""

from __future__ import annotations

from typing import Any

import click

from replica.cli.output import check_writable, document
from replica.document.files import write_atomically


@click.command("bench")
@click.option("--backend", default="auto", show_default=True, help="auto, c, numpy or cuda.")
@click.option("--nodes", type=int, default=2**17, show_default=True)
@click.option("--numpy-nodes", type=int, default=2**13, show_default=True,
              help="Nodes of the NumPy runs, scaled up linearly.")
@click.option("--repeat", type=click.IntRange(1, 1000), default=5, show_default=True)
@click.option("--quick", is_flag=True, help="Leave out the scaling in nodes, tokens and threads.")
@click.option("--threads", type=click.IntRange(1, 1024), default=None,
              help="Worker threads.  [default: all cores]")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True)
@click.option("--output", default=None, help="Write the JSON document to this file too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    backend: str, nodes: int, numpy_nodes: int, repeat: int, quick: bool, threads: int | None,
    seed: int, output: str | None, as_json: bool,
) -> int:
    """Time engine and baselines in one run: softmax, spiked, nu 2, L 3, alpha 2, r 0.5."""
    from replica.api import derive
    from replica.bench.measure import Bench, load_baselines
    from replica.saddle_point.solve import SolverOptions

    path = check_writable("output", output)
    options = SolverOptions(nodes=nodes, backend=backend, threads=threads, seed=seed)
    bench = Bench(derive("softmax"), options, repeat, lambda what: click.echo(what, err=True))
    found = bench.run(numpy_nodes, quick)
    warnings = [] if load_baselines() else [
        "the baselines live in benchmarks/ of a source checkout: none were timed"
    ]
    inputs = {"backend": backend, "nodes": nodes, "numpy_nodes": numpy_nodes, "repeat": repeat,
              "threads": threads, "seed": seed}
    text = document(inputs, warnings, found)
    if path is not None:
        write_atomically(path, text + "\n")
    if as_json:
        click.echo(text)
    else:
        for w in warnings:
            click.echo(f"warning: {w}", err=True)
        _print(found)
    return 0


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    s = found["saddle_point"]
    table = Table("", "median s", "ratio", "m_k", "q_k", "m_v", "q_v",
                  title=f"One saddle point, {s['nodes']} nodes", title_justify="left")
    for name, seconds in s["median_seconds"].items():
        x = s["order_parameters"][name]
        table.add_row(name, f"{seconds:.4g}", f"{s['ratio_to_iteration'][name]:.3g}",
                      *(f"{x[i]:.5f}" for i in (0, 1, 3, 4)))
    console.print(table)
    if "proximal" in found:
        p = found["proximal"]
        table = Table("proximal solves, one thread", "", title_justify="left")
        table.add_row("per second", f"{p['solves_per_second']:.3g}")
        table.add_row("ns each", f"{p['nanoseconds_per_solve']:.1f}")
        table.add_row("Newton steps needed / executed",
                      f"{p['steps_per_solve']:.2f} / {p['executed_steps_per_solve']:.2f}")
        table.add_row("operations bound, ns", f"{p['operations_bound_nanoseconds']:.1f}")
        table.add_row("ratio to the bound", f"{p['ratio_to_bound']:.2f}")
        for name, value in p["parts_nanoseconds"].items():
            table.add_row(f"  {name}, ns", f"{value:.1f}")
        table.add_row("share of memory bandwidth", f"{p['bandwidth_share']:.2f}")
        console.print(table)
    table = Table("nodes", "s", "relative error of the test error")
    for row in found["precision"]["rows"]:
        table.add_row(str(row["nodes"]), f"{row['seconds']:.3f}", f"{row['relative_error']:.1e}")
    console.print(table)
    c = found["curve"]
    console.print(f"curve of {c['points']} points at {c['nodes']} nodes: {c['seconds']:.2f} s",
                  highlight=False)
    for name, row in found.get("scaling", {}).items():
        console.print(f"{name}: " + ", ".join(f"{k}: {v:.3f} s" for k, v in row.items()),
                      highlight=False)
