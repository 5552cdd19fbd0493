"""Prose with formulas between dollars, for LaTeX, for plain text and for HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

_SPECIAL = {"&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
            "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"$<$", ">": r"$>$",
            "|": r"$|$", "\\": r"\textbackslash{}"}
_PLAIN = (
    (r"\\hat\{(\w+)\}", r"\1hat"), (r"\\sqrt\{([^{}]*)\}", r"sqrt(\1)"), (r"\\to\b", "->"),
    (r"\\infty\b", "oo"), (r"\\otimes\b", "(x)"), (r"\^\\ast(?![A-Za-z])", "*"), (r"\\cdot\b", "."),
    (r"\\leq\b", "<="),
    (r"\\varepsilon\b", "eps"), (r"\\ell\b", "loss"), (r"\\sim\b", "~"),
    (r"\\propto\b", "~"), (r"\\partial_", "d_"),
    (r"\\partial\b", "d"), (r"\s*\\,\s*", " "), (r"\\mathrm\{(\w+)\}", r"\1"), (r"\\", ""),
    (r"[{}]", ""),
)


def _split(text: str, prose: Callable[[str], str], formula: Callable[[str], str]) -> str:
    parts = text.split("$")
    return "".join(formula(p) if k % 2 else prose(p) for k, p in enumerate(parts))


def latex_prose(text: str) -> str:
    """Prose escaped, formulas kept."""
    return _split(
        text, lambda p: "".join(_SPECIAL.get(ch, ch) for ch in p), lambda p: f"${p}$"
    )


def plain(text: str) -> str:
    """Formulas as a person types them: ``beta -> oo``, ``h*``."""
    def formula(part: str) -> str:
        for pattern, replacement in _PLAIN:
            part = re.sub(pattern, replacement, part)
        return part

    return _split(text, lambda p: p, formula)


def html_prose(text: str, convert: Callable[[str], str]) -> str:
    """Prose escaped, formulas through ``convert`` (LaTeX to MathML)."""
    return _split(text, html.escape, convert)
