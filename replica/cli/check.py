"""``replica check``."""

from __future__ import annotations

from typing import Any

import click

from replica.cli.output import document


@click.command("check")
@click.argument("file")
@click.option("--nodes", type=click.IntRange(2**9, 2**22), default=2**16, show_default=True,
              help="Nodes of the numerical comparison.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(file: str, nodes: int, as_json: bool) -> int:
    """Compare the equations in FILE (TOML) with the derived ones; exit 1 unless all are equal.

    Tables: [model] with activation and task; [symbols], your name = our name; [equations], one per
    order parameter: sum(...) runs over tokens, rel(...) is the relevant one, E(...) the average.
    """
    from validation.equations import check_equations, read_equations

    written = read_equations(file)
    found = check_equations(written, nodes)
    if as_json:
        inputs: dict[str, Any] = {"file": file, "nodes": nodes, **written.words}
        click.echo(document(inputs, [], {"equations": [c.document() for c in found]}))
    else:
        _print(found)
    return 0 if all(c.agrees for c in found) else 1


def _print(found: Any) -> None:
    for c in found:
        click.echo(f"{c.name}: {c.verdict} ({c.how})")
        if c.verdict != "equal":
            click.echo(f"    yours      {c.yours}")
            click.echo(f"    derived    {c.derived}")
            click.echo(f"    difference {c.difference}")
        if c.example:
            values = ", ".join(f"{n} = {v:.6g}" for n, v in c.example.items())
            click.echo(f"    for example {values}")
    rest = "".join(
        f"; {verdict}: {', '.join(names)}" for verdict in ("different", "undecided")
        if (names := [c.name for c in found if c.verdict == verdict])
    )
    click.echo(f"{sum(c.agrees for c in found)} of {len(found)} equations agree{rest}")
