"""Equations that a theorist wrote by hand, compared with the derived ones.

A TOML file names the model and gives an equation per order parameter, in the words of the derived
equations: ``sum(...)`` runs over tokens, ``rel(...)`` picks the relevant one, ``E(...)`` is the
average over the data and the cavity noise, ``softmax(u)`` the normalised weight of a token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import sympy as sp

from derivations.setting import Setting, make_setting, positive
from replica.codegen.numpy_printer import compile_numpy
from replica.derivation.chain import SaddlePointEquations, derive_erm
from replica.derivation.numeric import evaluate, random_point
from replica.derivation.saddle_point import replace_field
from replica.document.text_printer import to_text
from replica.errors import UnsupportedNodeError, UsageError
from replica.ir.lower import lower
from replica.ir.program import Shape
from replica.model import LABEL, NOISE, NOISE_STD, RATIO, SIGMA, SIGNAL, Array
from replica.saddle_point.nodes import SCRAMBLES
from replica.saddle_point.solve import SaddlePointProblem, SolverOptions
from replica.symbolic.averages import Expectation
from replica.symbolic.grammar import parse
from replica.symbolic.tokens import (
    LENGTH,
    RELEVANT,
    TokenSum,
    TokenWeights,
    expand_sums,
    index,
    outermost,
)
from replica.toml_file import read_toml

NODES = 2**16
MAX_FILE = 200_000
AGREES = 4.0
"""Standard errors within which two averages agree."""
SHARP = 5e-3
"""Largest standard error of a difference, relative to the value, that says anything."""
EXACT = 1e-6
"""Relative difference at the saddle point below which an equation without averages holds there."""
MAX_TERMS = 2000
"""Expressions that would multiply out to more terms are compared numerically alone."""
_HERE = sp.Symbol("here", integer=True)


@dataclass(frozen=True)
class EquationCheck:
    """The verdict on one equation.

    ``verdict`` is ``equal``, ``equal numerically``, ``different``, or ``undecided`` where averages
    are too noisy or no saddle point was found; ``how`` names the simplification or the comparison;
    ``difference`` is yours less the derived one, as short as it
    gets; ``example`` has a point and both values there.
    """

    name: str
    verdict: str
    how: str
    yours: str
    derived: str
    difference: str
    example: Mapping[str, float]

    @property
    def agrees(self) -> bool:
        return self.verdict in ("equal", "equal numerically")

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name, "verdict": self.verdict, "how": self.how, "yours": self.yours,
            "derived": self.derived, "difference": self.difference, "example": dict(self.example),
        }


@dataclass(frozen=True)
class HandWritten:
    """A read file: its words and setting, the derived equations, and yours by our names."""

    words: Mapping[str, Any]
    setting: Setting
    alpha: float
    derived: SaddlePointEquations
    equations: Mapping[str, Any]


def read_equations(path: str | Path) -> HandWritten:
    """Read and parse a file of equations.

    Tables: ``[model]`` with the words of ``replica solve`` (``activation``, ``task``; ``nu``,
    ``length``, ``alpha``, ``reg``, ``reg_k``, ``reg_v``, ``noise`` for the numerical comparison,
    with defaults no two of which are equal or simple multiples), optional
    ``[symbols]`` (your name = our name), ``[equations]`` (one per order parameter).

    Raises
    ------
    UsageError
        Names the table, the key and what is allowed, with the column in an expression.
    """
    document = _load(path)
    model = document.get("model", {})
    allowed = ("activation", "task", "nu", "length", "alpha", "reg", "reg_k", "reg_v", "noise",
               "parameters")
    for key in model:
        if key not in allowed:
            raise UsageError(f"model.{key}", model[key], f"only the keys {', '.join(allowed)}")
    if "activation" not in model:
        raise UsageError("model.activation", "nothing", "an activation")
    activation = str(model["activation"])
    if activation.endswith(".toml"):
        activation = str(Path(path).parent / activation)
    if not isinstance(model.get("parameters", {}), dict):
        raise UsageError("model.parameters", model["parameters"], "a table of name = value")
    alpha = positive("model.alpha", model.get("alpha", 2.3))
    both = model.get("reg")
    words = {
        "activation": activation, "task": model.get("task", "spiked"),
        "nu": model.get("nu", 1.7), "length": model.get("length", 3),
        "reg_k": model.get("reg_k", 0.61 if both is None else both),
        "reg_v": model.get("reg_v", 0.47 if both is None else both),
        "noise": model.get("noise", 0.2), "parameter": model.get("parameters", {}),
    }
    setting = make_setting(**words)
    derived = derive_erm(setting.model())
    names = _known(derived, setting)
    symbols = dict(names)
    for yours, ours in document.get("symbols", {}).items():
        if not isinstance(ours, str) or ours not in names:
            raise UsageError(f"symbols.{yours}", ours, f"one of {', '.join(names)}")
        symbols[yours] = names[ours]
    wanted = {**derived.overlaps, **derived.conjugates}
    found: dict[str, Any] = {}
    for yours, text in document.get("equations", {}).items():
        symbol = symbols.get(yours)
        name = getattr(symbol, "name", "")
        if name not in wanted or name in found:
            raise UsageError(f"equations.{yours}", "this name",
                             f"each of {', '.join(wanted)} once at most")
        parsed = parse(f"equations.{yours}", text, symbols, _functions(derived))
        if _HERE in parsed.expr.free_symbols:
            raise UsageError(f"equations.{yours}", f"'{text}'",
                             "token fields only inside sum(...) or rel(...)")
        found[name] = parsed.expr
    if not found:
        raise UsageError("equations", "nothing", "at least one equation")
    return HandWritten({**words, "alpha": alpha}, setting, alpha, derived, found)


def _load(path: str | Path) -> dict[str, Any]:
    document = read_toml("file", path, MAX_FILE)
    for key, table in document.items():
        if key not in ("model", "symbols", "equations") or not isinstance(table, dict):
            raise UsageError("file", key, "the tables [model], [symbols] and [equations]")
    return document


def _known(derived: SaddlePointEquations, setting: Any) -> dict[str, Any]:
    """Every name that an equation may hold."""
    names: dict[str, Any] = {
        RATIO.name: RATIO, SIGNAL.name: SIGNAL, NOISE_STD.name: NOISE_STD, LENGTH.name: LENGTH,
        LABEL.name: LABEL, NOISE.name: NOISE, "sigma": SIGMA(_HERE),
    }
    for s in derived.model.sectors:
        for x in (s.m, s.q, s.V, s.m_hat, s.q_hat, s.V_hat, s.ridge):
            names[x.name] = x
        for f in (s.teacher, s.noise, s.residual, s.cavity):
            names[f.__name__] = f(_HERE)
    names |= {p.name: p.symbol for p in setting.activation.parameters if p.name not in names}
    return names


def _functions(derived: SaddlePointEquations) -> dict[str, Any]:
    random = derived.model.random_symbols

    def total(u: Any) -> Any:
        if _HERE not in u.free_symbols:
            raise ValueError("sum(...) needs a token field")
        return TokenSum(u, _HERE)

    def relevant(u: Any) -> Any:
        return u.xreplace({_HERE: RELEVANT})

    def share(u: Any) -> Any:
        l = index("l")  # noqa: E741
        return TokenWeights(u.xreplace({_HERE: l}), l, _HERE)

    def average(u: Any) -> Any:
        if _HERE in u.free_symbols:
            raise ValueError("token fields inside E(...) only in sum(...) or rel(...)")
        return Expectation(u, random)

    return {"sum": (1, total), "rel": (1, relevant), "softmax": (1, share), "E": (1, average)}


def check_equations(written: HandWritten, nodes: int = NODES) -> tuple[EquationCheck, ...]:
    """Compare every equation with the derived one: symbolically, then numerically."""
    points: list[_Numeric] | None = None
    found = []
    for name, yours in written.equations.items():
        forms = _forms(written.derived, name)
        check = _symbolic(name, yours, forms, written.derived)
        if check is None:
            points = _points(written, nodes) if points is None else points
            check = _numeric(name, yours, forms, points)
        found.append(check)
    return tuple(found)


def _points(written: HandWritten, nodes: int) -> list[_Numeric]:
    """The parameters of the file and others near them, where a saddle point is found.

    One point does not do: an equation may be right where two parameters happen to be equal.
    """
    s = written.setting
    other = replace(
        s, nu=1.19 * s.nu, reg_k=0.87 * s.reg_k, reg_v=1.13 * s.reg_v, noise=s.noise + 0.07
    )
    points = [_Numeric(written.derived, setting, alpha, nodes)
              for setting, alpha in ((s, written.alpha), (other, 1.31 * written.alpha))]
    return [p for p in points if p.solution.converged]


def _forms(derived: SaddlePointEquations, name: str) -> dict[str, Any]:
    """The derived forms of an equation by what they are called."""
    if name in derived.overlaps:
        return {"the derived equation": derived.overlaps[name]}
    forms = {"the reparametrised form": derived.conjugates[name]}
    if name in derived.stein:
        forms["the form with smaller errors"] = derived.stein[name]
    return forms


def _symbolic(
    name: str, yours: Any, forms: Mapping[str, Any], derived: SaddlePointEquations
) -> EquationCheck | None:
    saddle = {
        s.V: derived.overlaps[s.V.name] for s in derived.model.sectors if s.V.name != name
    }
    tractable = _terms(yours) <= MAX_TERMS
    for title, ours in forms.items() if tractable else ():
        for how, mine in (("", yours), (" after V = 1/(r + Vhat)", yours.xreplace(saddle))):
            gap = _difference(mine, ours)
            if gap == 0:
                same = "identical to" if mine == ours else "expands to"
                return EquationCheck(name, "equal", f"{same} {title}{how}", to_text(yours),
                                     to_text(ours), "0", {})
    averaged = any(f.atoms(Expectation) for f in (yours, *forms.values()))
    if averaged or not tractable:
        return None
    ours = next(iter(forms.values()))
    gap = _difference(yours, ours)
    point = random_point(gap.free_symbols | yours.free_symbols | ours.free_symbols, 1)
    point |= {s: abs(v) for s, v in point.items() if s.name.startswith(("Vhat", "qhat"))}
    with mp.workdps(20):
        values = {s.name: float(v) for s, v in point.items()}
        values |= {"yours": float(mp.re(evaluate(yours, point))),
                   "derived": float(evaluate(ours, point))}
    return EquationCheck(name, "different", "values at a random point", to_text(yours),
                         to_text(ours), to_text(gap), values)


def _difference(yours: Any, ours: Any) -> Any:
    """Yours less ours, averages merged into one and sums written by their terms."""
    body: Any = sp.S.Zero
    rest: Any = sp.S.Zero
    random: Any = None
    for term in sp.Add.make_args(sp.expand(yours - ours)):
        held = list(term.atoms(Expectation))
        if len(held) == 1 and not (term / held[0]).atoms(Expectation):
            body += term / held[0] * held[0].body
            random = held[0].random
        else:
            rest += term
    sums = expand_sums(sp.expand(expand_sums(body)))
    held_sums = outermost(sums, (TokenSum, TokenWeights))
    stand_in = {t: sp.Dummy(f"t{k}") for k, t in enumerate(held_sums)}
    merged = _cancelled(sums.xreplace(stand_in)).xreplace({d: t for t, d in stand_in.items()})
    return _cancelled(rest) + (Expectation(merged, random) if merged != 0 else 0)


def _terms(expr: Any) -> float:
    """A bound on the number of terms once everything is multiplied out."""
    if isinstance(expr, sp.Add):
        return sum(_terms(a) for a in expr.args)
    if isinstance(expr, sp.Pow) and expr.exp.is_Integer:
        return min(_terms(expr.base) ** abs(int(expr.exp)), 1e12)
    return min(math.prod(_terms(a) for a in expr.args) if expr.args else 1.0, 1e12)


def _cancelled(expr: Any) -> Any:
    expr = sp.expand(expr)
    if expr == 0 or sp.count_ops(expr) > 2000:
        return expr
    return sp.factor_terms(sp.cancel(sp.together(expr)))


@dataclass(frozen=True)
class _Compared:
    """Both sides at one point, per scramble; ``state`` is ``agree``, ``apart`` or ``noisy``."""

    title: str
    ours: Any
    mine: Array
    theirs: Array
    z: float
    error: float
    exact: bool
    state: str


def _numeric(
    name: str, yours: Any, forms: Mapping[str, Any], points: Sequence[_Numeric]
) -> EquationCheck:
    """The verdict of all points together."""
    compared = [(p, p.compare(name, yours, forms)) for p in points]
    apart = [pair for pair in compared if pair[1].state == "apart"]
    noisy = [pair for pair in compared if pair[1].state == "noisy"]
    if not compared:
        ours = next(iter(forms.values()))
        return EquationCheck(
            name, "undecided", "no saddle point was found at the values of [model]",
            to_text(yours), to_text(ours), _gap(yours, ours), {},
        )
    point, c = (apart or noisy or compared)[0]
    gap = float((c.mine - c.theirs).mean())
    verdict, how = "equal numerically", (
        f"averages at {len(compared)} saddle point{'s' if len(compared) > 1 else ''} agree with "
        f"{c.title}: difference {gap:.2g}, standard error {c.error:.1g}"
    )
    if apart:
        verdict = "different"
        how = f"averages at the saddle point, against {c.title}: {c.z:.0f} standard errors apart"
    elif noisy:
        verdict = "undecided"
        how = (f"difference {gap:.2g} with standard error {c.error:.1g}: too noisy to tell; use "
               "more nodes")
    values = {n: float(point.at[n]) for n in (*point.known, *point.problem.names)}
    values |= {"yours": float(c.mine.mean()), "derived": float(c.theirs.mean()),
               "standard_error_of_difference": c.error}
    return EquationCheck(
        name, verdict, how, to_text(yours), to_text(c.ours), _gap(yours, c.ours), values
    )


def _gap(yours: Any, ours: Any) -> str:
    return to_text(_difference(yours, ours) if _terms(yours) <= MAX_TERMS else yours - ours)


class _Numeric:
    """Both sides averaged over the same nodes at the saddle point of one setting."""

    def __init__(
        self, derived: SaddlePointEquations, setting: Setting, alpha: float, nodes: int
    ) -> None:
        self.problem = SaddlePointProblem(
            derived, setting.values(), setting.lengths,
            SolverOptions(nodes=nodes, estimator="reparametrised"),
        )
        self.solution = self.problem.solve(alpha)
        x = self.problem.point(self.solution)
        self.at = {**self.problem.uniform(x, alpha)}
        self.known = [n for n in self.at if n not in self.problem.names]
        self.at |= self.problem.named_hats(self.solution)
        self.fields = [
            self._fields(g, state) for g, state in
            zip(self.problem.nodes.groups, self.problem.engine.state, strict=True)
        ]

    def _fields(self, group: Any, state: Array) -> dict[str, Any]:
        engine = self.problem.engine
        host = np.asarray(state)
        inputs = engine.block_inputs(group, slice(0, group.count), self.at)
        inputs |= engine.minimisers(inputs, host, group.length)
        return {n: a for n, a in inputs.items() if isinstance(a, np.ndarray) and a.ndim}

    def compare(self, name: str, yours: Any, forms: Mapping[str, Any]) -> _Compared:
        """Against the form whose difference has the smallest error.

        The forms agree on average, so the sharpest of the comparisons decides.
        """
        mine = self.value(yours, name)
        return min((self._against(title, ours, mine, self.value(ours, name), yours)
                    for title, ours in forms.items()), key=lambda c: (not c.exact, c.error))

    def _against(
        self, title: str, ours: Any, mine: Array, theirs: Array, yours: Any
    ) -> _Compared:
        gap = mine - theirs
        error = float(gap.std(ddof=1) / np.sqrt(SCRAMBLES))
        scale = max(abs(float(theirs.mean())), 1e-9)
        z = abs(float(gap.mean())) / max(error, 1e-10 * scale)
        # what follows from the other equations holds at the saddle point of these nodes
        exact = not yours.atoms(Expectation) and abs(float(gap.mean())) <= EXACT * scale
        state = "agree" if exact or (z <= AGREES and error <= SHARP * scale) else (
            "apart" if z > AGREES else "noisy"
        )
        return _Compared(title, ours, mine, theirs, z, error, exact, state)

    def value(self, expr: Any, name: str) -> Array:
        """The expression per scramble, its averages taken over the nodes."""
        expr = self._explicit(sp.sympify(expr))
        held = sorted(expr.atoms(Expectation), key=sp.default_sort_key)
        means = [self._mean(e.body, name) for e in held]
        stand_in = [sp.Dummy(f"e{k}") for k in range(len(held))]
        flat = expr.xreplace(dict(zip(held, stand_in, strict=True)))
        known = dict(self.at)
        if len(self.problem.lengths) == 1:
            known[LENGTH.name] = float(next(iter(self.problem.lengths)))
        numbers = {s: sp.Float(known[s.name]) for s in flat.free_symbols
                   if s not in stand_in and s.name in known}
        missing = [s.name for s in flat.free_symbols if s not in stand_in and s not in numbers]
        if missing:
            raise UsageError(f"equations.{name}", missing[0], "a symbol with one value for all "
                             "samples outside E(...)")
        function = sp.lambdify(stand_in, flat.xreplace(numbers), "numpy")
        found: Array = np.broadcast_to(function(*means), (SCRAMBLES,)).astype(float)
        return found

    def _explicit(self, expr: Any) -> Any:
        """``sigma`` as the activation of the minimiser."""
        model = self.problem.model
        k = model.sectors[0]
        assert model.activation is not None
        activation = model.activation

        def field(position: Any) -> Any:
            return k.cavity(position) + k.V * k.residual(position)

        return replace_field(expr, SIGMA, lambda p: activation.at(field, p))

    def _mean(self, body: Any, name: str) -> Array:
        total = np.zeros(SCRAMBLES)
        for group, fields in zip(self.problem.nodes.groups, self.fields, strict=True):
            shapes: dict[str, Shape] = {
                n: "node" if a.ndim == 1 else "token" for n, a in fields.items()
            }
            shapes |= {n: "uniform" for n in self.at if n not in shapes}
            try:
                program = lower("average", {"value": body}, shapes)
            except UnsupportedNodeError as error:
                raise UsageError(f"equations.{name}", to_text(body), f"an average that can be "
                                 f"evaluated ({error})") from None
            named = {**self.at, **fields}
            with np.errstate(all="ignore"):
                (value,) = compile_numpy(program)(
                    *(named[n] for n, _ in program.inputs), group.length
                )
            values = np.broadcast_to(value, (group.count,)).reshape(SCRAMBLES, -1)
            total += group.probability * values.mean(axis=1)
        return total
