"""The user's own activation: an expression in the token score, checked before it is used."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sympy as sp
from sympy.codegen.cfunctions import log1p

from replica.errors import UsageError
from replica.ir.program import Program
from replica.model import Activation, Array, Parameter
from replica.symbolic.grammar import KINK, log_of, parse
from replica.toml_file import read_text, read_toml

SCORES = np.linspace(-20.0, 20.0, 401)
"""Where an activation and its derivatives must be finite."""
FINE = np.linspace(-20.0, 20.0, 8001)
ZOOMS, ZOOM_POINTS = 16, 21
VANISHES = 1e-12
"""A denominator this small beside its values nearby is zero."""
KINK_RANGE = (1e-6, 0.1)
MAX_FILE = 100_000
MAX_OPERATIONS = 250
"""Most operations of a second derivative."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}", re.ASCII)
_PARAMETER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,19}", re.ASCII)
_TAKEN = re.compile(
    r"(alpha|beta|nu|Delta|y|xi|x|n|L|D|R|Z|W|Q|M|A|T|epsilon|sigma|chi|z|loss|kink|delta|varrho"
    r"|l\d*|i|j|(m|q|V|mhat|qhat|Vhat|r|f|omega|zeta|rho|chi|z|w|Z|rho_|rhohat)(_.*)?)"
)
"""Names that the derivation uses; a parameter of that name gets a symbol of its own."""


def load_activation(path: str | Path) -> Activation:
    """The activation that the table ``[activation]`` of a TOML file defines.

    Keys: ``name``, ``expression`` in the score ``x``, optional ``normalised``, ``kink`` and the
    table ``parameters`` (``c = -1.0``, or ``c = {default = -1.0, min = -5, max = 5}``).

    Raises
    ------
    UsageError
        Names the field, the value and what is allowed.
    """
    document = read_toml("activation", path, MAX_FILE)
    table = document.get("activation")
    if not isinstance(table, dict) or set(document) != {"activation"}:
        raise UsageError("activation", path, "a TOML file with the one table [activation]")
    return own_activation(**_known(table))


def activation_text(path: str | Path) -> str:
    """The whole text of an activation's file. Raises ``UsageError`` if it cannot be read."""
    return read_text("activation", path, MAX_FILE)


def _known(table: Mapping[str, Any]) -> dict[str, Any]:
    allowed = ("name", "expression", "normalised", "kink", "parameters")
    for key in table:
        if key not in allowed:
            raise UsageError(f"activation.{key}", table[key], f"only the keys {', '.join(allowed)}")
    for key in ("name", "expression"):
        if key not in table:
            raise UsageError(f"activation.{key}", "nothing", "a text")
    return dict(table)


def own_activation(
    name: str, expression: str, *, normalised: bool = False, kink: float | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Activation:
    """An activation from its expression in the score ``x``.

    Parameters
    ----------
    expression
        ``sigma(chi)_l`` element by element, or with ``normalised`` the positive weight whose share
        in the sum over tokens is ``sigma(chi)_l``.
    kink
        Width over which ``relu``, ``abs``, ``max`` and ``min`` are rounded; they need it.
    parameters
        Name to a default, or to a mapping with ``default`` and optional ``min`` and ``max``.

    Raises
    ------
    UsageError
        Names the field, the value and what is allowed.
    """
    from derivations.activations import NAMES

    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in NAMES:
        raise UsageError("activation.name", name, "a letter, then up to 39 letters, digits, _ "
                         f"and -, and none of {', '.join(NAMES)}")
    if not isinstance(normalised, bool):
        raise UsageError("activation.normalised", normalised, "true or false")
    found = _parameters(parameters or {})
    x = sp.Symbol("x", real=True)
    symbols = {"x": x, **{p.name: p.symbol for p in found}}
    parsed = parse("activation.expression", expression, symbols)
    _bounded(parsed.expr, x, expression)
    if x not in parsed.expr.free_symbols:
        raise UsageError("activation.expression", expression, "an expression in the score x")
    unused = [p.name for p in found if p.symbol not in parsed.expr.free_symbols]
    if unused:
        raise UsageError(f"activation.parameters.{unused[0]}", "unused",
                         "parameters that the expression uses")
    if parsed.kinked:
        found.append(_kink(kink, normalised))
    elif kink is not None:
        raise UsageError("activation.kink", kink, "nothing: the expression has no kink")
    activation = Activation(
        name=name, x=x, parameters=tuple(found), kinked=parsed.kinked, definition=expression,
        **({"log_weight": log_of(parsed.expr)} if normalised else {"expression": parsed.expr}),
    )
    check_range(activation, activation.defaults, parsed.expr if normalised else None)
    return activation


def _bounded(expr: Any, x: sp.Symbol, text: str) -> None:
    """Refuse what would take minutes to derive."""
    slope = sp.diff(expr, x) if sp.count_ops(expr) <= MAX_OPERATIONS else None
    if slope is None or sp.count_ops(slope) > MAX_OPERATIONS or (
        sp.count_ops(sp.diff(slope, x)) > MAX_OPERATIONS
    ):
        shown = text if len(text) <= 60 else text[:57] + "..."
        raise UsageError("activation.expression", f"'{shown}'", "an expression whose second "
                         f"derivative has at most {MAX_OPERATIONS} operations")


def _kink(width: Any, normalised: bool) -> Parameter:
    low, high = KINK_RANGE
    allowed = f"a width {low:g} to {high:g} over which relu, abs, max and min are rounded"
    if normalised:
        raise UsageError("activation.normalised", "true", "false for relu, abs, max and min: a "
                         "weight that is zero on an interval leaves the normalisation undefined")
    if not low <= _float(width) <= high:
        raise UsageError("activation.kink", "nothing" if width is None else width, allowed)
    return Parameter("kink", KINK, float(width), low, high)


def _float(value: Any) -> float:
    """A number of a file as a float; NaN for what is none, infinity for one out of range."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _parameters(table: Any) -> list[Parameter]:
    if not isinstance(table, Mapping) or len(table) > 20:
        raise UsageError("activation.parameters", table, "a table of at most 20 parameters")
    found: list[Parameter] = []
    used: set[str] = set()
    for name, entry in table.items():
        field = f"activation.parameters.{name}"
        if not _PARAMETER.fullmatch(name) or name in ("x", "pi", "kink"):
            raise UsageError(field, "this name", "a letter, then up to 19 letters, digits and _, "
                             "and none of x, pi, kink")
        if not isinstance(entry, Mapping):
            entry = {"default": entry}
        unknown = sorted(set(entry) - {"default", "min", "max"})
        if unknown or "default" not in entry:
            raise UsageError(field, entry, "a number, or a table of default, min and max")
        numbers = {}
        for key, value in entry.items():
            number = _float(value)
            if math.isnan(number):
                raise UsageError(f"{field}.{key}", value, "a number")
            numbers[key] = number
        low, high = numbers.get("min", -math.inf), numbers.get("max", math.inf)
        if not low <= numbers["default"] <= high or not math.isfinite(numbers["default"]):
            raise UsageError(field, entry, "min <= default <= max, a finite default")
        symbol = f"{name}_sigma" if _TAKEN.fullmatch(name) else name
        while symbol in used:
            symbol += "_sigma"
        used.add(symbol)
        found.append(Parameter(name, sp.Symbol(symbol, real=True), numbers["default"], low, high))
    return found


def check_range(
    activation: Activation, values: Mapping[str, float], weight: Any = None
) -> None:
    """Refuse an activation that is not finite with two derivatives at every score, or a weight
    that is not positive.

    Raises
    ------
    UsageError
        Names the score.
    """
    from replica.errors import UnsupportedNodeError
    from replica.ir.lower import lower
    from replica.ir.program import Shape

    x = activation.x
    base = sp.sympify(
        activation.expression if activation.log_weight is None else activation.log_weight
    )
    text = f"'{activation.definition}'"
    jumps = base.atoms(sp.Abs, sp.sign, sp.Heaviside, sp.DiracDelta)
    if jumps:
        raise UsageError("activation.expression", text, "kinks written as abs, relu, max or min "
                         f"with their width declared, kink = 0.001 (found {min(map(str, jumps))})")
    outputs = {"square": base**2} if weight is None else {"weight": weight}
    outputs |= {"value": base, "slope": sp.diff(base, x), "curvature": sp.diff(base, x, 2)}
    inputs: dict[str, Shape] = {x.name: "node"}
    inputs |= {n: "uniform" for n in values}
    try:
        program = lower("activation", outputs, inputs)
    except UnsupportedNodeError as error:
        raise UsageError("activation.expression", activation.definition,
                         f"functions that code exists for: {error}") from None
    found = _at_scores(program, x.name, values)(SCORES)
    for name, numbers in zip(program.outputs, found, strict=True):
        if name == "weight":
            bad = ~(numbers >= 0) | ((numbers == 0) & (np.abs(SCORES) < 1))
            why = "a weight that is positive at every score"
        else:
            bad = ~np.isfinite(numbers)
            why = "a real function that is finite with two derivatives for scores from -20 to 20"
        if bad.any():
            at = SCORES[bad][np.argmin(np.abs(SCORES[bad]))]
            raise UsageError("activation.expression", f"{text} at x = {at:g}", why)
    for part, positive, why in _singular(base, weight):
        if x in part.free_symbols:
            place = _vanishes(lower("part", {"part": part}, inputs), x.name, values, positive)
            if place is not None:
                raise UsageError("activation.expression", f"{text} at x = {place:.4g}", why)


def _singular(base: Any, weight: Any) -> list[tuple[Any, bool, str]]:
    """What must not vanish between the scores that are tried, whether it must be positive too, and
    why."""
    smooth = "a real function that is finite with two derivatives: "
    found: list[tuple[Any, bool, str]] = []
    if weight is not None:
        found.append((weight, True, "a weight that is positive at every score"))
    for power in base.atoms(sp.Pow):
        if power.exp.is_Rational and power.exp.q > 1:
            found.append((power.base, True, f"{smooth}a root of what is positive"))
        elif power.exp.is_negative:
            found.append((power.base, False, f"{smooth}a denominator without zeros"))
    found += [(e.args[0], True, f"{smooth}a logarithm of what is positive")
              for e in base.atoms(sp.log)]
    found += [(1 + e.args[0], True, f"{smooth}a logarithm of what is positive")
              for e in base.atoms(log1p)]
    found += [(1 - e.args[0] ** 2, True, f"{smooth}acos of what is between -1 and 1")
              for e in base.atoms(sp.acos)]
    return found


def _at_scores(
    program: Program, name: str, values: Mapping[str, float]
) -> Callable[[Array], list[Array]]:
    """The program's outputs as a function of the scores, whose input is called ``name``."""
    from replica.codegen.numpy_printer import compile_numpy

    function = compile_numpy(program)

    def evaluate(x: Array) -> list[Array]:
        named = {name: x, **values}
        with np.errstate(all="ignore"):
            found = function(*(named[n] for n, _ in program.inputs), 1)
        return [np.broadcast_to(numbers, x.shape) for numbers in found]

    return evaluate


def _vanishes(
    program: Program, name: str, values: Mapping[str, float], positive: bool
) -> float | None:
    """A score at which the part is zero (or, of a ``positive`` one, not above it), if any."""
    evaluate = _at_scores(program, name, values)

    def part(x: Array) -> Array:
        (found,) = evaluate(x.ravel())
        return found.reshape(x.shape)

    u = part(FINE)
    if positive and (wrong := FINE[~(u > 0)]).size:
        return float(wrong[np.argmin(np.abs(wrong))])
    size = np.abs(u)
    lowest = np.flatnonzero((size[1:-1] <= size[:-2]) & (size[1:-1] <= size[2:])) + 1
    at, half = FINE[lowest], FINE[1] - FINE[0]
    beside = np.maximum(size[lowest - 1], size[lowest + 1])
    steps = np.linspace(-1.0, 1.0, ZOOM_POINTS)
    for _ in range(ZOOMS):  # towards the least absolute value between the neighbours
        there = at[:, None] + half * steps
        at = np.take_along_axis(there, np.argmin(np.abs(part(there)), axis=1)[:, None], 1)[:, 0]
        half *= 2.0 / (ZOOM_POINTS - 1)
    least = part(at)
    zero = np.abs(least) <= VANISHES * beside
    if positive:
        zero |= ~(least > 0)
    return float(at[zero][np.argmin(np.abs(at[zero]))]) if zero.any() else None
