"""``replica derive``."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import click

from replica.cache import remembered
from replica.cli.output import check_writable, document
from replica.document.files import check_file, check_folder, write_atomically
from replica.errors import UsageError

GRAPHS = (".svg", ".dot", ".graphml", ".mmd")
EXTENSIONS = {
    "text": "txt", "latex": "tex", "markdown": "md", "json": "json", "html": "html",
    "ipynb": "ipynb",
}


@click.command("derive")
@click.option("--chain", default="erm", show_default=True,
              help="erm: regularised training; bayes: the optimal learner; population: infinite "
              "data; flow: one-pass SGD.")
@click.option("--activation", default=None,
              help="softmax, linear, erf, softplus, or FILE.toml (bayes needs none).")
@click.option("--task", default="spiked", show_default=True, help="spiked or max.")
@click.option("--length", default=None, help="A number of tokens; symbolic L if omitted.")
@click.option("--format", "form", default="text", show_default=True,
              help="text, latex, markdown, json, html or ipynb.")
@click.option("--output", default=None, help="Folder to write erm-TASK-ACTIVATION.EXT into.")
@click.option("--fragment", is_flag=True,
              help="With latex: the body alone, and what its preamble needs in preamble.tex.")
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
@click.option("--check", is_flag=True, help="Run the check of every step; a failure exits 1.")
@click.option("--graph", default=None, metavar="FILE",
              help="Draw the steps into FILE.svg, .dot, .graphml or .mmd.")
def command(
    chain: str, activation: str | None, task: str, length: str | None, form: str,
    output: str | None, fragment: bool, as_json: bool, check: bool, graph: str | None,
) -> int:
    """Derive the replica free energy and the saddle-point equations from the model."""
    form = "json" if as_json else form
    if form not in EXTENSIONS:
        raise UsageError("format", form, ", ".join(EXTENSIONS))
    if fragment and form != "latex":
        raise UsageError("fragment", form, "only with --format latex")
    tokens = tokens_of(length)
    if output == "":
        raise UsageError("output", "''", "a folder that can be written")
    folder = Path(output) if output is not None else None
    if folder is not None:
        check_folder("output", folder)
    picture = check_writable("graph", graph, GRAPHS)
    from replica.derivation.chain import DERIVERS

    if chain not in DERIVERS:
        raise UsageError("chain", chain, ", ".join(DERIVERS))
    if chain != "bayes" and activation is None:
        raise UsageError("activation", "nothing", "softmax, linear, erf, softplus, or FILE.toml")
    from derivations.activations import definition_of

    def derived() -> dict[str, Any]:
        from derivations.slr import single_location
        from replica.document.graph import draw

        model = single_location(task, "softmax" if activation is None else activation)
        equations = DERIVERS[chain](model)
        checks = _run_checks(equations) if check else []
        used = model.activation if activation is not None else None
        kind = picture.suffix[1:] if picture is not None else None
        return {
            "stem": "-".join([chain, task] if activation is None else [chain, model.name]),
            "text": _write(equations, form, chain, task, used, tokens, checks, fragment),
            "graph": draw(equations.derivation, kind) if kind else None,
            "failed": [c["step"] for c in checks if not c["passed"]],
        }

    words = {
        "chain": chain, "task": task, "form": form, "fragment": fragment, "length": tokens,
        "activation": None if activation is None else definition_of(activation),
        "graph": None if picture is None else picture.suffix,
    }
    made = derived() if check else remembered(words, ("replica", "derivations"), derived)
    files = [f"{made['stem']}.{EXTENSIONS[form]}"] + ["preamble.tex"] * fragment
    if folder is not None and folder.is_dir():
        for name in files:
            check_file("output", str(folder / name))
    if picture is not None:
        write_atomically(picture, made["graph"])
    text = made["text"]
    if folder is None:
        click.echo(text)
    else:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if fragment:
                from replica.document.latex import latex_preamble

                write_atomically(folder / "preamble.tex", latex_preamble())
                click.echo(str(folder / "preamble.tex"))
            target = folder / files[0]
            write_atomically(target, text + "\n")
        except OSError as error:
            raise UsageError("output", output, f"a folder that can be written ({error.strerror})"
                             ) from None
        click.echo(str(target))
    return 1 if made["failed"] else 0


def _run_checks(equations: Any) -> list[dict[str, Any]]:
    """Every step's check with its result and time, printed as it ends."""
    checks = []
    for step in equations.derivation:
        clock = time.perf_counter()
        result = step.run_check()
        seconds = time.perf_counter() - clock
        checks.append({
            "step": step.name, "passed": result.passed, "detail": result.detail,
            "seconds": seconds,
        })
        mark = "ok  " if result.passed else "FAIL"
        click.echo(f"{mark} {seconds:5.2f} s  {step.name}: {result.detail}", err=True)
    total = sum(c["seconds"] for c in checks)
    wrong = [c["step"] for c in checks if not c["passed"]]
    verdict = f"{len(checks)} steps passed" if not wrong else f"failed: {', '.join(wrong)}"
    click.echo(f"{verdict}, {total:.1f} s", err=True)
    return checks


def tokens_of(length: str | None) -> int | None:
    if length is None:
        return None
    from derivations.setting import parse_length

    lengths = parse_length(length)
    if len(lengths) > 1:
        raise UsageError("length", length, "one number of tokens for a derivation")
    return next(iter(lengths))


def _write(
    equations: Any, form: str, chain: str, task: str, used: Any, tokens: int | None,
    checks: list[dict[str, Any]], fragment: bool,
) -> str:
    from replica.document import blocks, html, json_steps, latex, markdown, text

    shown = blocks.with_length(equations, tokens) if tokens is not None else equations
    activation = None if used is None else used.name
    subject = f"Single-location regression, task {task}"
    intro = [
        {
            "erm": f"{subject}, activation {activation}: regularised empirical risk minimisation.",
            "bayes": f"{subject}: the Bayes-optimal learner.",
            "population": f"{subject}, activation {activation}: infinitely many samples.",
            "flow": f"{subject}, activation {activation}: one-pass stochastic gradient descent.",
        }[chain],
        r"$X$ has $L$ tokens in dimension $D$; $\chi = X k/\sqrt{D}$, $z = X v/\sqrt{D}$; stars "
        "mark the teacher.",
    ]
    if tokens is not None:
        intro.append(f"Token sums written out for L = {tokens}; the relevant token is token 1.")
    if form == "ipynb":
        return markdown.notebook_document(shown, intro, _code(chain, task, used))
    renderers = {
        "text": text.text_document, "markdown": markdown.markdown_document,
        "html": html.html_document,
        "latex": latex.latex_fragment if fragment else latex.latex_document,
    }
    if form in renderers:
        return renderers[form](shown, intro).rstrip("\n")
    inputs = {"chain": chain, "task": task, "activation": activation,
              "length": None if tokens is None else {str(tokens): 1.0}}
    body: dict[str, Any] = {"steps": json_steps.json_document(shown.derivation)}
    if checks:
        body["checks"] = checks
    return document(inputs, [], body)


def _code(chain: str, task: str, activation: Any) -> str:
    """Python that makes the derivation of a notebook anew."""
    words = [_activation_code(activation)] if activation and chain != "bayes" else []
    words += [f"task={task!r}"] + ([f"chain={chain!r}"] if chain != "erm" else [])
    return f"import replica\n\nreplica.derive({', '.join(words)})"


def _activation_code(activation: Any) -> str:
    """A built-in activation's name, or what defines the user's own."""
    if not activation.definition:
        return repr(activation.name)
    words = [repr(activation.name), repr(activation.definition)]
    if activation.normalised:
        words.append("normalised=True")
    own = {p.name: {"default": p.default} | {
        key: bound for key, bound in (("min", p.low), ("max", p.high)) if math.isfinite(bound)
    } for p in activation.parameters}
    kink = own.pop("kink", None)
    if kink is not None:
        words.append(f"kink={kink['default']!r}")
    if own:
        words.append(f"parameters={own!r}")
    return f"replica.activation({', '.join(words)})"
