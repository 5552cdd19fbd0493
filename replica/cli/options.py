"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def model_options(
    required: bool = True, alpha: bool = True, optimise: bool = False
) -> Callable[[Any], Any]:
    """The words that name one SLR setting.

    ``alpha`` says whether the sample ratio is one, ``optimise`` whether ridge strengths may be
    ``optimal``.
    """
    also = ', or "optimal" for the least test error' if optimise else ""
    options = [
        click.option("--task", default="spiked", show_default=True, help="spiked or max."),
        click.option("--activation", required=required,
                     help="softmax, linear, erf, softplus, or your own: FILE.toml."),
        click.option("--nu", required=required, help="Signal strength; inf for max only."),
        click.option("--length", required=required,
                     help="3, or a distribution 1:0.25,2:0.5,3:0.25."),
        click.option("--shift", default=None, help="Shift c of erf.  [default: -1]"),
        click.option("--parameter", multiple=True, metavar="NAME=VALUE",
                     help="A parameter of your activation; may be repeated."),
        click.option("--alpha", required=required, help="A value, a grid a:b:n, or a list a,b,c."),
        click.option("--reg", default=None,
                     help=f"Ridge strength of both weight vectors, > 0{also}."),
        click.option("--reg-k", default=None, help="Ridge strength of the keys."),
        click.option("--reg-v", default=None, help="Ridge strength of the values."),
        click.option("--noise", default="0.1", show_default=True,
                     help="Standard deviation of the label noise."),
    ]
    if not alpha:
        options = [o for i, o in enumerate(options) if i != ALPHA]
    return _apply(options)


ALPHA = 6
"""Place of ``--alpha`` among the model options."""


def run_options(function: Any) -> Any:
    """``--seed``, ``--threads``, ``--json``."""
    return _apply([
        click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True),
        click.option("--threads", type=click.IntRange(1, 1024), default=None,
                     help="Worker threads.  [default: all cores]"),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
    ])(function)


def _apply(options: list[Any]) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


SETTING_WORDS = (
    "task", "activation", "nu", "length", "shift", "parameter", "reg", "reg_k", "reg_v", "noise",
)


def setting_from(words: dict[str, Any], **allowing: Any) -> Any:
    """The checked setting of a command's options; ``allowing`` as in ``make_setting``."""
    from derivations.setting import make_setting

    return make_setting(**{n: words[n] for n in SETTING_WORDS}, **allowing)
