"""``replica derive``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from replica.cli.output import document
from replica.document.files import check_folder, write_atomically
from replica.errors import UsageError

CHAINS = ("erm", "bayes")
EXTENSIONS = {"text": "txt", "latex": "tex", "json": "json"}


@click.command("derive")
@click.option("--chain", default="erm", show_default=True,
              help="erm: regularised training; bayes: the optimal learner.")
@click.option("--activation", default=None,
              help="softmax, linear, erf, softplus, or FILE.toml (erm needs it).")
@click.option("--task", default="spiked", show_default=True, help="spiked or max.")
@click.option("--length", default=None, help="A number of tokens; symbolic L if omitted.")
@click.option("--format", "form", default="text", show_default=True, help="text, latex or json.")
@click.option("--output", default=None, help="Folder to write erm-TASK-ACTIVATION.EXT into.")
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
@click.option("--check", is_flag=True, help="Run the check of every step; a failure exits 1.")
def command(
    chain: str, activation: str | None, task: str, length: str | None, form: str,
    output: str | None, as_json: bool, check: bool,
) -> int:
    """Derive the replica free energy and the saddle-point equations from the model."""
    form = "json" if as_json else form
    if form not in EXTENSIONS:
        raise UsageError("format", form, ", ".join(EXTENSIONS))
    tokens = tokens_of(length)
    if output == "":
        raise UsageError("output", "''", "a folder that can be written")
    folder = Path(output) if output is not None else None
    if folder is not None:
        check_folder("output", folder)
    if chain not in CHAINS:
        raise UsageError("chain", chain, ", ".join(CHAINS))
    if chain == "erm" and activation is None:
        raise UsageError("activation", "nothing", "softmax, linear, erf, softplus, or FILE.toml")
    from derivations.slr import single_location
    from replica.derivation.chain import derive_bayes, derive_erm

    model = single_location(task, activation or "softmax")
    equations = derive_erm(model) if chain == "erm" else derive_bayes(model)
    words = [chain, task] if activation is None else [chain, model.name]
    failed = 0
    checks: list[dict[str, Any]] = []
    if check:
        for step in equations.derivation:
            result = step.run_check()
            failed += not result.passed
            checks.append({"step": step.name, "passed": result.passed, "detail": result.detail})
            mark = "ok  " if result.passed else "FAIL"
            if step.check is None:
                mark = "--  "
            click.echo(f"{mark} {step.name}: {result.detail}", err=True)
    named = model.activation.name if activation and model.activation else None
    text = _write(equations, form, task, named, tokens, checks)
    if folder is None:
        click.echo(text)
    else:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            target = folder / f"{'-'.join(words)}.{EXTENSIONS[form]}"
            write_atomically(target, text + "\n")
        except OSError as error:
            raise UsageError("output", output, f"a folder that can be written ({error.strerror})"
                             ) from None
        click.echo(str(target))
    return 1 if failed else 0


def tokens_of(length: str | None) -> int | None:
    if length is None:
        return None
    from derivations.setting import parse_length

    lengths = parse_length(length)
    if len(lengths) > 1:
        raise UsageError("length", length, "one number of tokens for a derivation")
    return next(iter(lengths))


def _write(
    equations: Any, form: str, task: str, activation: str | None, tokens: int | None,
    checks: list[dict[str, Any]],
) -> str:
    from replica.document import write

    shown = write.with_length(equations, tokens) if tokens is not None else equations
    from replica.derivation.chain import BayesEquations

    bayes = isinstance(equations, BayesEquations)
    intro = [
        f"Single-location regression, task {task}: the Bayes-optimal learner." if bayes else
        f"Single-location regression, task {task}, activation {activation}: regularised "
        "empirical risk minimisation.",
        "X has L tokens in dimension D; chi = X k/sqrt(D), z = X v/sqrt(D); stars mark the "
        "teacher.",
    ]
    if tokens is not None:
        intro.append(f"Token sums written out for L = {tokens}; the relevant token is token 1.")
    if form == "text":
        return write.text_document(shown, intro)
    if form == "latex":
        return write.latex_document(shown, intro)
    inputs = {"chain": "bayes" if bayes else "erm", "task": task, "activation": activation,
              "length": None if tokens is None else {str(tokens): 1.0}}
    body: dict[str, Any] = {"steps": write.json_document(shown.derivation)}
    if checks:
        body["checks"] = checks
    return document(inputs, [], body)
