"""Display formulas as MathML Core."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from replica.derivation.step import Step
from replica.document.blocks import conclusion_name, presented
from replica.document.layout import lay_out


@lru_cache(maxsize=1)
def _converter() -> Any:
    from math_core import LatexToMathML

    return LatexToMathML()


def mathml(latex: str) -> str:
    """A displayed formula."""
    return str(_converter().convert_with_local_state(latex, displaystyle=True))


def inline_mathml(latex: str) -> str:
    """A formula in a line of text."""
    return str(_converter().convert_with_local_state(latex, displaystyle=False))


def display_mathml(step: Step, name: str) -> str:
    """One conclusion of a step, broken into lines like the LaTeX document."""
    out = []
    for e in lay_out(conclusion_name(step, name), presented(step, name)):
        out.append(mathml(r"\begin{aligned}" + r" \\ ".join(e.rows) + r"\end{aligned}"))
    return "".join(out)
