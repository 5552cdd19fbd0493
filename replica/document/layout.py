"""Break long equations so that no display is wider than the page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import sympy as sp

from replica.document.latex_printer import to_latex
from replica.symbolic.averages import Expectation, LogPartition, Minimum
from replica.symbolic.tokens import Centred, TokenSum, TokenWeights

PAGE = 62
"""Widest line, in the rough character count of :func:`width`."""


@dataclass(frozen=True)
class Equation:
    """A left side and the lines of the right side."""

    left: str
    lines: tuple[str, ...]

    @property
    def rows(self) -> list[str]:
        """Rows of an ``align`` or ``aligned`` environment."""
        first, *others = self.lines
        return [rf"{self.left} &= {first}", *(rf"&\quad {line}" for line in others)]


def width(latex: str) -> int:
    """A rough count of the characters that show; a fraction is as wide as its wider part."""
    text = _flatten_fractions(latex)
    text = re.sub(r"\\(left|right|mathcal|mathrm|operatorname|mathbb|hat|tilde)\b", "", text)
    text = re.sub(r"[_^]\{([^{}]*)\}", lambda m: "x" * ((len(m.group(1)) + 1) // 2), text)
    text = re.sub(r"\\[A-Za-z]+|\\.", "x", text)
    operators = sum(text.count(ch) for ch in "+-=")
    return len(re.sub(r"[{}\s_^&]", "", text)) + operators


def _flatten_fractions(latex: str) -> str:
    while (start := latex.rfind(r"\frac{")) >= 0:
        top, after = _group(latex, start + 5)
        bottom, after = _group(latex, after)
        wider = max(top, bottom, key=lambda s: len(re.sub(r"\\[A-Za-z]+", "x", s)))
        latex = latex[:start] + wider + latex[after:]
    return latex


def _group(text: str, start: int) -> tuple[str, int]:
    depth = 0
    for i in range(start, len(text)):
        if text[i] == "{":
            depth += 1
        elif text[i] == "}":
            depth -= 1
            if depth == 0:
                return text[start + 1 : i], i + 1
    return text[start:], len(text)


def lay_out(left: str, expr: Any) -> list[Equation]:
    """Equations that state ``left = expr``, each line narrow enough.

    Sums are broken at their terms. A part that is too wide inside a product, fraction or logarithm
    gets a name of its own, ``a_1, a_2, ...``, stated below.
    """
    names: dict[Any, str] = {}
    equations = [Equation(left, _lines(_shorten(expr, names, PAGE - width(left) - 6), left))]
    done: set[str] = set()
    while len(done) < len(names):
        for part, name in list(names.items()):
            if name in done:
                continue
            done.add(name)
            short = _shorten_inside(part, names, PAGE - 10)
            equations.append(Equation(name, _lines(short, name)))
    return equations


def _lines(expr: Any, left: str) -> tuple[str, ...]:
    room = PAGE - width(left) - 4
    if isinstance(expr, sp.MatrixBase) or not isinstance(expr, sp.Add):
        return (to_latex(expr),)
    lines: list[str] = []
    current = ""
    for term in expr.as_ordered_terms():
        text = to_latex(term)
        signed = text if text.startswith("-") else (f"+ {text}" if current or lines else text)
        if current and width(current) + width(signed) > room:
            lines.append(current)
            current = signed
        else:
            current = f"{current} {signed}".strip()
    lines.append(current)
    return tuple(lines)


def _shorten(expr: Any, names: dict[Any, str], room: int) -> Any:
    """Shorten each term of a sum, or the expression itself, until it fits."""
    if isinstance(expr, sp.MatrixBase):
        return expr
    if isinstance(expr, sp.Add):
        return expr.func(*(_shorten(t, names, room) for t in expr.args))
    if width(to_latex(expr)) <= room:
        return expr
    return _shorten_inside(expr, names, room)


def _shorten_inside(expr: Any, names: dict[Any, str], room: int) -> Any:
    """Name the widest sums below the top of an expression."""
    if isinstance(expr, sp.Add):
        return expr.func(*(_shorten(t, names, room) for t in expr.args))
    result = expr
    for _ in range(12):
        if width(to_latex(result)) <= room:
            return result
        parts = _namable(result, top=True)
        if not parts:
            return result
        widest = max(parts, key=lambda p: width(to_latex(p)))
        if width(to_latex(widest)) < 8:
            return result
        name = names.setdefault(widest, f"a_{{{len(names) + 1}}}")
        result = _named(result, widest, sp.Symbol(name.replace("{", "").replace("}", "")))
    return result


def _named(expr: Any, part: Any, name: sp.Symbol) -> Any:
    """``part`` replaced by its name; an average over a named part stays an average."""
    if expr == part:
        return name
    if not expr.has(part):
        return expr
    if isinstance(expr, Expectation):
        return sp.Expr.__new__(Expectation, _named(expr.body, part, name), expr.random)
    if isinstance(expr, TokenSum | TokenWeights | Minimum):
        return expr.xreplace({part: name})
    return expr.func(*(_named(a, part, name) for a in expr.args))


def _namable(expr: Any, top: bool = False) -> list[Any]:
    """Sums inside an expression that hold no bound index of an enclosing sum."""
    found: list[Any] = []
    if not top and isinstance(expr, sp.Add):
        found.append(expr)
        return found
    bound = expr.bound if isinstance(expr, TokenSum | TokenWeights) else None
    if isinstance(expr, LogPartition | Centred):
        return found
    parts = [expr.body] if isinstance(expr, Expectation) else (
        [expr.objective] if isinstance(expr, Minimum) else list(expr.args)
    )
    for a in parts:
        found += [p for p in _namable(a) if bound is None or bound not in p.free_symbols]
    return found
