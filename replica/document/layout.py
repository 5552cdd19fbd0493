"""Break long equations so that no display is wider than the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy as sp
from sympy.core.function import AppliedUndef

from replica.document.latex_printer import to_latex
from replica.model import token_function
from replica.symbolic.averages import Expectation, LogPartition, Minimum
from replica.symbolic.tokens import Centred, TokenSum, TokenWeights

PAGE = 62
"""Widest line, in the rough character count of :func:`width`."""
WORTH_A_NAME = 8
TOLERABLE = 1.17
"""Beyond this many times the page's width functions and what holds an index get names too."""
MOST_NAMES = 30
"""Parts of one expression that get a name."""


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
    names: dict[Any, Any] = {}
    equations = [Equation(left, _lines(_shorten(expr, names, PAGE - width(left) - 6), left))]
    done: set[Any] = set()
    while len(done) < len(names):
        for part, name in list(names.items()):
            if name in done:
                continue
            done.add(name)
            short = _shorten_inside(part, names, PAGE - 10)
            title = to_latex(name)
            equations.append(Equation(title, _lines(short, title)))
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


def _shorten(expr: Any, names: dict[Any, Any], room: int) -> Any:
    """Shorten each term of a sum, or the expression itself, until it fits."""
    if isinstance(expr, sp.MatrixBase):
        return expr
    if isinstance(expr, sp.Add):
        return expr.func(*(_shorten(t, names, room) for t in expr.args))
    if width(to_latex(expr)) <= room:
        return expr
    return _shorten_inside(expr, names, room)


def _shorten_inside(expr: Any, names: dict[Any, Any], room: int) -> Any:
    """Name the widest parts below the top of an expression: sums first, then factors, and those
    that hold the index of an enclosing sum last."""
    if isinstance(expr, sp.Add):
        return expr.func(*(_shorten(t, names, room) for t in expr.args))
    result = expr
    for _ in range(MOST_NAMES):
        if width(to_latex(result)) <= room:
            return result
        part = _widest(result, sums_only=width(to_latex(result)) <= TOLERABLE * room)
        if part is None:
            return result
        result = _named(result, part[0], _name(part, names))
    return result


def _widest(expr: Any, sums_only: bool) -> tuple[Any, tuple[Any, ...]] | None:
    """The widest part that is worth a name, and the indices of enclosing sums that it holds."""
    parts = [p for p in _parts(expr, (), True) if len(p[1]) <= 2]
    kinds: list[Callable[[Any], Any]] = [
        lambda p: not p[1] and p[0].is_Add, lambda p: p[0].is_Add, lambda p: True,
    ]
    for kind in kinds[:1] if sums_only else kinds:
        wide = [p for p in parts if kind(p) and width(to_latex(p[0])) >= WORTH_A_NAME]
        if wide:
            return max(wide, key=lambda p: width(to_latex(p[0])))
    return None


def _name(part: tuple[Any, tuple[Any, ...]], names: dict[Any, Any]) -> Any:
    """``a_1``, or ``a^(1)_l`` where the part depends on the index of an enclosing sum."""
    expr, indices = part
    if expr not in names:
        n = len(names) + 1
        names[expr] = token_function(f"a_({n})")(*indices) if indices else sp.Symbol(f"a_{n}")
    return names[expr]


def _named(expr: Any, part: Any, name: Any) -> Any:
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


def _parts(
    expr: Any, bound: tuple[Any, ...], top: bool = False
) -> list[tuple[Any, tuple[Any, ...]]]:
    """Sums, powers and functions inside an expression, with the bound indices that they hold."""
    found: list[tuple[Any, tuple[Any, ...]]] = []
    if isinstance(expr, LogPartition | Centred) or not expr.args:
        return found
    held = tuple(b for b in bound if b in expr.free_symbols)
    if not top and isinstance(expr, sp.Add):
        return [(expr, held)]
    if not top and isinstance(expr, sp.Pow | sp.Function) and not isinstance(expr, AppliedUndef):
        found.append((expr, held))
    if isinstance(expr, TokenSum | TokenWeights):
        bound = (*bound, expr.bound)
    parts = [expr.body] if isinstance(expr, Expectation) else (
        [expr.objective] if isinstance(expr, Minimum) else list(expr.args)
    )
    for a in parts:
        found += _parts(a, bound)
    return found
