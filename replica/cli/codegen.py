"""``replica codegen``."""

from __future__ import annotations

import click

from replica.cli.output import check_writable
from replica.document.files import write_atomically
from replica.errors import UsageError


@click.command("codegen")
@click.option("--activation", required=True, help="softmax, linear, erf or softplus.")
@click.option("--task", default="spiked", show_default=True, help="spiked or max.")
@click.option("--length", default=None, help="Tokens to compile in; a run-time value if omitted.")
@click.option("--target", default="c", show_default=True, help="c, cuda, numpy or mpmath.")
@click.option("--output", default=None, help="Write to this file.")
def command(
    activation: str, task: str, length: str | None, target: str, output: str | None
) -> int:
    """Print readable source of the kernels, with the equation each part comes from."""
    from replica.cli.derive import tokens_of
    from replica.codegen.listing import TARGETS, listing

    if target not in TARGETS:
        raise UsageError("target", target, ", ".join(TARGETS))
    tokens = tokens_of(length)
    path = check_writable("output", output)
    from derivations.slr import single_location
    from replica.derivation.chain import derive_erm
    from replica.document.text_printer import to_text

    text = listing(derive_erm(single_location(task, activation)), target, tokens, to_text)
    if path is None:
        click.echo(text)
    else:
        write_atomically(path, text)
        click.echo(str(path))
    return 0
