"""A user's expression, parsed by a small grammar and never evaluated as code.

``sum := product (("+" | "-") product)*``, ``product := sign (("*" | "/") sign)*``,
``sign := ("+" | "-") sign | power``, ``power := atom ("**" sign)?``,
``atom := number | name | function "(" sum ("," sum)* ")" | "(" sum ")"``.

Everything else is refused with its column. Work is bounded: by the length of the text, the depth,
the number of nodes, and the size of every constant (a shadow in floating point is kept of each
constant part, so that no tower of powers is ever built).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import sympy as sp
from sympy.codegen.cfunctions import expm1, log1p

from replica.errors import UsageError
from replica.symbolic import primitives as prim

MAX_TEXT = 2000
MAX_DEPTH = 40
MAX_NODES = 400
MAX_POWER = 64
MAX_NESTED = 4
"""Functions of functions: derivatives of deeper ones grow beyond use."""
LARGEST = 1e30

KINK = sp.Symbol("kink", positive=True)
"""Width over which a declared kink is rounded."""


def _rounded_abs(u: Any) -> Any:
    return sp.sqrt(u**2 + KINK**2)


def _rounded_max(a: Any, b: Any) -> Any:
    return (a + b + _rounded_abs(a - b)) / 2


FUNCTIONS: Mapping[str, tuple[int, Callable[..., Any]]] = {
    "exp": (1, sp.exp), "expm1": (1, expm1), "log": (1, sp.log), "log1p": (1, log1p),
    "sqrt": (1, sp.sqrt), "tanh": (1, sp.tanh), "sin": (1, sp.sin), "cos": (1, sp.cos),
    "acos": (1, sp.acos), "erf": (1, sp.erf), "erfc": (1, sp.erfc), "erfcx": (1, prim.erfcx),
    "ndtr": (1, lambda u: sp.erfc(-u / sp.sqrt(2)) / 2), "log_ndtr": (1, prim.log_ndtr),
    "softplus": (1, prim.softplus), "sigmoid": (1, prim.sigmoid),
}
KINKED: Mapping[str, tuple[int, Callable[..., Any]]] = {
    "relu": (1, lambda u: _rounded_max(u, sp.S.Zero)), "abs": (1, _rounded_abs),
    "max": (2, _rounded_max), "min": (2, lambda a, b: -_rounded_max(-a, -b)),
}
"""Functions with a kink, rounded over the width :data:`KINK`."""
REFUSED: Mapping[str, str] = {
    "sign": "sign jumps, and a minimum on a jump is no stationary point",
    "step": "a step jumps, and a minimum on a jump is no stationary point",
    "sparsemax": "sparsemax projects all scores at once; rules here are a function of one score, "
                 "element-wise or normalised",
    "entmax": "entmax projects all scores at once; rules here are a function of one score, "
              "element-wise or normalised",
    "softmax": 'softmax is a rule over all tokens; write expression = "exp(x)" with '
               "normalised = true",
    "argmax": "argmax compares all scores and jumps",
    "topk": "topk compares all scores and jumps",
}
_FLOATS: Mapping[str, Callable[..., float]] = {
    "exp": math.exp, "expm1": math.expm1, "log": math.log, "log1p": math.log1p,
    "sqrt": math.sqrt, "tanh": math.tanh, "sin": math.sin, "cos": math.cos, "acos": math.acos,
    "erf": math.erf, "erfc": math.erfc, "erfcx": lambda u: math.exp(u * u) * math.erfc(u),
    "ndtr": lambda u: math.erfc(-u / math.sqrt(2)) / 2,
    "log_ndtr": lambda u: math.log(math.erfc(-u / math.sqrt(2)) / 2),
    "softplus": lambda u: math.log1p(math.exp(u)), "sigmoid": lambda u: 1 / (1 + math.exp(-u)),
    "relu": lambda u: max(u, 0.0), "abs": abs, "max": max, "min": min,
}
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<mark>\*\*|[-+*/(),]))", re.ASCII
)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    column: int


@dataclass(frozen=True)
class _Value:
    """An expression, and its value where it holds no symbol."""

    expr: Any
    number: float | None


@dataclass(frozen=True)
class Parsed:
    """A parsed expression; ``kinked`` where it uses a function of :data:`KINKED`."""

    expr: Any
    kinked: bool


def parse(
    field: str, text: Any, symbols: Mapping[str, Any],
    functions: Mapping[str, tuple[int, Callable[..., Any]]] | None = None,
) -> Parsed:
    """The expression that ``text`` writes.

    Parameters
    ----------
    field
        What the text is called in an error.
    symbols
        The names that may occur, and what they stand for.
    functions
        Functions beside the usual ones: their number of arguments and what builds them. One that
        raises ``ValueError`` refuses its arguments, with the message as the reason.

    Raises
    ------
    UsageError
        With the column and the reason, in bounded time and memory.
    """
    if not isinstance(text, str):
        raise UsageError(field, text, "an expression in quotation marks")
    parser = _Parser(field, text, symbols, functions or {})
    value = parser.whole()
    return Parsed(value.expr, parser.kinked)


class _Parser:
    def __init__(
        self, field: str, text: str, symbols: Mapping[str, Any],
        functions: Mapping[str, tuple[int, Callable[..., Any]]],
    ) -> None:
        self.field, self.text, self.symbols = field, text, symbols
        self.functions = {**FUNCTIONS, **functions}
        self.own = functions
        self.kinked = False
        self.place = self.nodes = self.depth = self.nested = 0
        if len(text) > MAX_TEXT:
            self.refuse(MAX_TEXT, f"the text has more than {MAX_TEXT} characters")
        self.tokens = self.split()

    def refuse(self, column: int, why: str) -> NoReturn:
        shown = self.text if len(self.text) <= 60 else self.text[:57] + "..."
        shown = shown.encode("unicode_escape").decode("ascii")
        raise UsageError(self.field, f"'{shown}'", f"column {column + 1}: {why}")

    def split(self) -> list[_Token]:
        found, at = [], 0
        end = len(self.text.rstrip())
        while at < end:
            match = _TOKEN.match(self.text, at)
            if match is None:
                at += len(self.text[at:]) - len(self.text[at:].lstrip())
                mark = self.text[at]
                why = {
                    "^": "write powers as **", ".": "attributes are not part of an expression",
                    "=": "comparisons and assignments are not part of an expression",
                }.get(mark, f"{mark!a} is not part of an expression")
                self.refuse(at, why)
            kind = str(match.lastgroup)
            found.append(_Token(kind, match.group(kind), match.start(kind)))
            at = match.end()
        return [*found, _Token("end", "", end)]

    @property
    def here(self) -> _Token:
        return self.tokens[self.place]

    def take(self, *marks: str) -> _Token | None:
        token = self.here
        if token.kind == "mark" and token.text in marks:
            self.place += 1
            return token
        return None

    def expect(self, mark: str) -> None:
        if self.take(mark) is None:
            what = repr(self.here.text) if self.here.text else "the end"
            self.refuse(self.here.column, f"'{mark}' expected instead of {what}")

    def whole(self) -> _Value:
        value = self.sum()
        if self.here.kind != "end":
            self.refuse(self.here.column, f"an operator expected before {self.here.text!r}")
        return value

    def count(self, column: int) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            self.refuse(column, f"more than {MAX_NODES} operations")

    def deeper(self, column: int) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.refuse(column, f"nested more than {MAX_DEPTH} deep")

    def sum(self) -> _Value:
        value = self.product()
        while token := self.take("+", "-"):
            right = self.product()
            value = self.binary(token, value, right)
        return value

    def product(self) -> _Value:
        value = self.sign()
        while token := self.take("*", "/"):
            right = self.sign()
            value = self.binary(token, value, right)
        return value

    def sign(self) -> _Value:
        token = self.take("+", "-")
        if token is None:
            return self.power()
        self.deeper(token.column)
        value = self.sign()
        self.depth -= 1
        if token.text == "+":
            return value
        self.count(token.column)
        return _Value(-value.expr, None if value.number is None else -value.number)

    def power(self) -> _Value:
        base = self.atom()
        token = self.take("**")
        if token is None:
            return base
        self.deeper(token.column)
        exponent = self.sign()
        self.depth -= 1
        self.count(token.column)
        e = exponent.expr
        if not (e.is_Rational and e.q in (1, 2) and abs(e) <= MAX_POWER):
            self.refuse(token.column, f"powers are whole or half numbers up to {MAX_POWER}")
        number = base.number
        value = self.bounded(
            token.column, None if number is None else lambda: number ** float(e),
            lambda: base.expr**e,
        )
        _, total = value.expr.as_base_exp()
        if total.is_Rational and abs(total) > MAX_POWER:
            self.refuse(token.column, f"powers of powers are at most {MAX_POWER} together")
        return value

    def binary(self, token: _Token, a: _Value, b: _Value) -> _Value:
        self.count(token.column)
        x, y = a.number, b.number
        number = None
        if x is not None and y is not None:
            number = {
                "+": lambda: x + y, "-": lambda: x - y, "*": lambda: x * y, "/": lambda: x / y
            }[token.text]
        if token.text == "/" and b.expr == 0:
            self.refuse(token.column, "division by zero")
        return self.bounded(token.column, number, {
            "+": lambda: a.expr + b.expr, "-": lambda: a.expr - b.expr,
            "*": lambda: a.expr * b.expr, "/": lambda: a.expr / b.expr,
        }[token.text])

    def bounded(
        self, column: int, number: Callable[[], Any] | None, expr: Callable[[], Any]
    ) -> _Value:
        """Build an expression unless its constant value is too large or no real number."""
        if number is None:
            return _Value(expr(), None)
        try:
            value = number()
        except (OverflowError, ZeroDivisionError, ValueError):
            value = math.nan
        if isinstance(value, complex) or not math.isfinite(value) or abs(value) > LARGEST:
            self.refuse(column, f"a constant that is no real number below {LARGEST:g}")
        built = expr()
        if built.is_Rational and max(abs(built.p), built.q).bit_length() > 400:
            self.refuse(column, "a constant with more than 120 digits")
        return _Value(built, float(value))

    def atom(self) -> _Value:
        token = self.here
        self.place += 1
        self.count(token.column)
        if token.kind == "number":
            return self.number(token)
        if token.kind == "name":
            return self.named(token)
        if token.kind == "mark" and token.text == "(":
            self.deeper(token.column)
            value = self.sum()
            self.depth -= 1
            self.expect(")")
            return value
        what = repr(token.text) if token.text else "the end"
        self.refuse(token.column, f"a number, a name or '(' expected instead of {what}")

    def number(self, token: _Token) -> _Value:
        mantissa, _, exponent = token.text.lower().partition("e")
        if len(mantissa) > 40 or len(exponent) > 4 or abs(int(exponent or 0)) > 30:
            self.refuse(token.column, "numbers have at most 40 digits and powers of ten up to 30")
        return _Value(sp.Rational(token.text), float(token.text))

    def named(self, token: _Token) -> _Value:
        name = token.text
        if self.take("(") is None:
            if name in self.symbols:
                return _Value(self.symbols[name], None)
            if name == "pi":
                return _Value(sp.pi, math.pi)
            if name in self.functions or name in KINKED:
                self.refuse(token.column, f"{name} is a function: write {name}(...)")
            self.refuse(token.column, f"unknown name {name!r}; known: "
                                      f"{', '.join([*self.symbols, 'pi'])}")
        if name in REFUSED and name not in self.own:
            self.refuse(token.column, REFUSED[name])
        table = self.functions if name in self.functions else KINKED
        if name not in table:
            self.refuse(token.column, f"unknown function {name!r}; known: "
                                      f"{', '.join([*self.functions, *KINKED])}")
        self.deeper(token.column)
        self.nested += name not in self.own
        if self.nested > MAX_NESTED:
            self.refuse(token.column, f"functions nested more than {MAX_NESTED} deep")
        arguments = [self.sum()]
        while self.take(","):
            arguments.append(self.sum())
        self.depth -= 1
        self.nested -= name not in self.own
        self.expect(")")
        arity, function = table[name]
        if len(arguments) != arity:
            self.refuse(token.column, f"{name} takes {arity} argument{'s' if arity > 1 else ''}")
        self.kinked |= name in KINKED
        if name in self.own:
            try:
                return _Value(function(*(a.expr for a in arguments)), None)
            except ValueError as error:
                self.refuse(token.column, str(error))
        numbers = [a.number for a in arguments]
        constant = None
        if all(n is not None for n in numbers):
            def constant() -> Any:
                return _FLOATS[name](*numbers)
        return self.bounded(
            token.column, constant, lambda: stable(function(*(a.expr for a in arguments)))
        )


def stable(expr: Any) -> Any:
    """Exponentials that would overflow or cancel, as the functions that do not."""
    if isinstance(expr, sp.log):
        exponent = _one_plus_exp(expr.args[0])
        if exponent is not None:
            return prim.softplus(exponent)
    if isinstance(expr, log1p) and isinstance(expr.args[0], sp.exp):
        return prim.softplus(expr.args[0].args[0])
    return expr


def log_of(weight: Any) -> Any:
    """``log(weight)`` of a positive weight, factor by factor; constant factors are dropped.

    They cancel in a normalised rule.
    """
    total: Any = sp.S.Zero
    for factor in sp.Mul.make_args(sp.sympify(weight)):
        base, exponent = factor.as_base_exp()
        if isinstance(factor, sp.exp):
            total += factor.args[0]
        elif factor.is_number:
            continue
        elif isinstance(base, prim.softplus):
            total += exponent * prim.log_softplus(base.args[0])
        elif isinstance(base, prim.sigmoid):
            total -= exponent * prim.softplus(-base.args[0])
        elif (inside := _one_plus_exp(base)) is not None:
            total += exponent * prim.softplus(inside)
        elif base.is_Add and sp.S.One in base.args and (base - 1).is_nonnegative:
            total += exponent * log1p(base - 1)
        else:
            total += exponent * sp.log(base)
    return total


def _one_plus_exp(expr: Any) -> Any:
    """``u`` where the expression is ``1 + exp(u)``."""
    if expr.is_Add and len(expr.args) == 2 and sp.S.One in expr.args:
        (rest,) = (a for a in expr.args if a is not sp.S.One)
        if isinstance(rest, sp.exp):
            return rest.args[0]
    return None
