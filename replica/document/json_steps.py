"""A derivation as data: every conclusion as ``srepr``, LaTeX and text."""

from __future__ import annotations

from typing import Any

import sympy as sp

from replica.derivation.step import Derivation
from replica.document.blocks import presented
from replica.document.latex_printer import to_latex
from replica.document.prose import plain
from replica.document.text_printer import to_text


def json_document(derivation: Derivation) -> list[dict[str, Any]]:
    """Steps with each conclusion as ``srepr``, LaTeX and text."""
    steps = []
    for step in derivation:
        conclusion = {
            name: {
                "srepr": sp.srepr(value),
                "latex": to_latex(presented(step, name)),
                "text": to_text(presented(step, name)),
            }
            for name, value in step.conclusion.items()
        }
        steps.append({
            "name": step.name, "rule": plain(step.rule), "premises": list(step.premises),
            "assumption": plain(step.assumption), "derived": step.derived,
            "text": plain(step.text),
            "conclusion": conclusion,
        })
    return steps
