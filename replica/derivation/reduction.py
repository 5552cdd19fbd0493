"""The proximal problem of an activation: the readout field eliminated, gradient, Gauss-Newton form.

The minimised variable is the displacement ``f = (h - omega)/V``: for small ``V`` the difference
``h - omega`` would cancel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import mpmath as mp
import sympy as sp
from sympy.core.function import AppliedUndef

from replica.derivation.free_energy import loss_of
from replica.derivation.numeric import compare, evaluate, random_point
from replica.derivation.saddle_point import replace_field
from replica.derivation.step import CheckResult, Conclusion, Step
from replica.errors import DerivationError
from replica.model import LABEL, SIGMA, Model
from replica.symbolic.averages import Expectation, Minimum
from replica.symbolic.tokens import (
    TokenSum,
    expand_sums,
    index,
    outermost,
    token_derivative,
    write_out,
)

RESIDUAL = sp.Symbol("varrho", real=True)
"""The label's residual at the cavity field, ``y - sigma . omega^v`` for squared loss."""
STIFFNESS = sp.Symbol("D", positive=True)
"""``1 + V_v |sigma|^2`` for squared loss."""


@dataclass(frozen=True)
class LinearElimination:
    """The readout field as an affine function of its cavity field."""

    residual: Any  # varrho in y, sigma, omega
    stiffness: Any  # D in V, sigma
    reduced: Any  # the reduced loss in varrho and D
    displacement: Any  # f_v(l) in varrho, D, sigma(l)


def proximal_objective(on_manifold: Step) -> Any:
    """The objective whose minimum is averaged in the free energy."""
    (average,) = outermost(on_manifold.conclusion["f"], (Expectation,))
    (minimum,) = outermost(average.body, (Minimum,))
    return minimum.objective


def split_penalty(model: Model, objective: Any) -> tuple[Any, Any]:
    """The objective without the attention field's own penalty, and that penalty."""
    attention = model.attention
    if attention is None:
        return objective, sp.S.Zero
    own = sp.Add(*(
        t for t in sp.Add.make_args(objective)
        if _holds(t, attention.field) and not _holds(t, model.readout.field)
    ))
    return objective - own, own


def eliminate_readout(model: Model, on_manifold: Step) -> LinearElimination | None:
    """Solve the readout's stationarity condition if it is linear, else return ``None``."""
    s = model.readout
    j = index("j")
    objective, _ = split_penalty(model, proximal_objective(on_manifold))
    slope = token_derivative(objective, s.field, j)
    sums = [t for t in outermost(slope, (TokenSum,)) if _holds(t, s.field)]
    unknown = {t: sp.Dummy(f"S{k}", real=True) for k, t in enumerate(sums)}
    h = sp.Dummy("h", real=True)
    flat = sp.expand(slope.xreplace(unknown)).xreplace({s.field(j): h})
    if _holds(flat, s.field) or not flat.is_polynomial(h, *unknown.values()):
        return None
    if sp.Poly(flat, h, *unknown.values()).total_degree() > 1:
        return None
    (value,) = sp.solve(flat, h)
    closure = []
    for t, dummy in unknown.items():
        body = replace_field(t, s.field, lambda p: value.xreplace({j: p}))
        closure.append(sp.expand(expand_sums(body)) - dummy)
    solution: dict[Any, Any] = {}
    if unknown:
        solution = sp.solve(closure, list(unknown.values()), dict=True)[0]
    value = value.xreplace(solution)
    held, back = _hold_sums(value)
    displacement = sp.factor(sp.cancel((value.xreplace(held) - s.cavity(j)) / s.V)).xreplace(back)
    at = replace_field(objective, s.field, lambda p: value.xreplace({j: p}))
    at = _expand_all(at)
    held, back = _hold_sums(at)
    reduced = sp.factor(sp.cancel(at.xreplace(held)))
    residual, stiffness = _as_square(reduced)
    residual, stiffness = residual.xreplace(back), stiffness.xreplace(back)
    named = sp.cancel(displacement.xreplace(_hold_sums(displacement)[0]) * _held(stiffness)
                      / _held(residual))
    back_named = _hold_sums(displacement)[1]
    return LinearElimination(
        residual=residual,
        stiffness=stiffness,
        reduced=RESIDUAL**2 / (2 * STIFFNESS),
        displacement=named.xreplace(back_named) * RESIDUAL / STIFFNESS,
    )


def _holds(expr: Any, field: Any) -> bool:
    return any(a.func == field for a in expr.atoms(AppliedUndef))


def _expand_all(expr: Any) -> Any:
    return expr.xreplace({t: expand_sums(t) for t in outermost(expr, (TokenSum,))})


def _hold_sums(expr: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Token sums to symbols named by their content, and back; the same sum, the same symbol."""
    sums = outermost(expr, (TokenSum,))
    held = {t: sp.Symbol("sum " + str(t), real=True) for t in sums}
    return held, {d: t for t, d in held.items()}


def _held(expr: Any) -> Any:
    return expr.xreplace(_hold_sums(expr)[0])


def _as_square(reduced: Any) -> tuple[Any, Any]:
    """Write ``reduced`` as ``residual^2/(2 stiffness)``."""
    numerator, denominator = sp.fraction(sp.together(2 * reduced))
    constant, factors = sp.factor_list(numerator)
    if any(power % 2 for _, power in factors):
        raise DerivationError(f"the reduced loss {reduced} is not a square over a stiffness")
    root = sp.Mul(*(f ** (power // 2) for f, power in factors))
    scale, denominator = _split_constant(denominator)
    root *= sp.sqrt(constant / scale)
    if sp.diff(root, LABEL).could_extract_minus_sign():
        root = -root
    return sp.expand(root), denominator


def _split_constant(expr: Any) -> tuple[Any, Any]:
    """``constant * rest`` with rest equal to 1 where all sums vanish, if that is possible."""
    content, primitive = expr.primitive() if expr.is_Add else expr.as_coeff_Mul()
    return content, primitive


def readout_step(model: Model, on_manifold: Step) -> tuple[Step, LinearElimination] | None:
    """The elimination as a step."""
    found = eliminate_readout(model, on_manifold)
    if found is None:
        return None
    s = model.readout
    conclusion = {
        "residual": found.residual,
        "stiffness": found.stiffness,
        "reduced": found.reduced,
        f"f_{s.name}": found.displacement,
    }

    def check(c: Conclusion) -> CheckResult:
        length = 3
        pairs = []
        for seed in (1, 2):
            values = _random_tokens([SIGMA, s.cavity], length, seed)
            point = random_point({s.V, LABEL, *model.loss.free_symbols}, seed)

            def number(expr: Any, values: Any = values, point: Any = point) -> Any:
                return write_out(expr, length).xreplace(values).xreplace(point)

            rho, D = number(c["residual"]), number(c["stiffness"])
            names = {RESIDUAL: rho, STIFFNESS: D}
            minimiser = {
                s.field(sp.Integer(p)): number(s.cavity(sp.Integer(p))) + number(
                    s.V * c[f"f_{s.name}"].xreplace(names).xreplace({index("j"): sp.Integer(p)})
                )
                for p in range(1, length + 1)
            }
            i = index("i")
            objective = model.loss + TokenSum((s.field(i) - s.cavity(i)) ** 2, i) / (2 * s.V)
            explicit = write_out(objective, length).xreplace(values).xreplace(point)
            for h in minimiser:
                pairs.append((evaluate(sp.diff(explicit, h), minimiser), mp.mpf(0)))
            pairs.append((
                evaluate(number(c["reduced"].xreplace(names)), {}), evaluate(explicit, minimiser)
            ))
        return compare(pairs, "gradient at the eliminated field, three tokens written out")

    step = Step(
        name="readout eliminated",
        rule=f"the stationarity condition is linear in ${s.field_name}$: solve it and its closure",
        premises=("manifold",),
        conclusion=conclusion,
        check=check,
    )
    return step, found


def _random_tokens(functions: list[Any], length: int, seed: int) -> dict[Any, Any]:
    """Random rational values for token functions at positions 1..length."""
    values = {}
    for f in functions:
        for p in range(1, length + 1):
            name = sp.Symbol(f"{f.__name__}{p}", real=True)
            values[f(sp.Integer(p))] = random_point([name], seed)[name]
    return values


def attention_step(model: Model, found: LinearElimination, on_manifold: Step) -> Step:
    """Objective in the attention field alone, its gradient, and the Gauss-Newton direction."""
    k, v = model.sectors[0], model.readout
    activation = model.activation
    assert activation is not None
    j = index("j")
    _, own = split_penalty(model, proximal_objective(on_manifold))
    penalty = expand_sums(replace_field(own, k.field, lambda p: k.cavity(p) + k.V * k.residual(p)))
    penalty = sp.Mul(*(expand_sums(a) for a in sp.Mul.make_args(penalty)))

    def put(expr: Any) -> Any:
        return replace_field(expr, SIGMA, lambda p: activation.at(k.field, p))

    residual, stiffness = put(found.residual), put(found.stiffness)
    by_residual = token_derivative(residual, k.field, j)
    by_stiffness = token_derivative(stiffness, k.field, j)
    slope = (
        sp.diff(found.reduced, RESIDUAL) * by_residual
        + sp.diff(found.reduced, STIFFNESS) * by_stiffness
    )
    root = RESIDUAL / sp.sqrt(STIFFNESS)
    direction = sp.diff(root, RESIDUAL) * by_residual + sp.diff(root, STIFFNESS) * by_stiffness
    conclusion = {
        "sigma": activation.at(k.field, j),
        "objective": found.reduced + penalty,
        "gradient": sp.factor_terms(slope) + token_derivative(penalty, k.residual, j) / k.V,
        "direction": sp.factor_terms(direction),
    }

    length = 3
    positions = [sp.Integer(p) for p in range(1, length + 1)]
    names = {RESIDUAL: residual, STIFFNESS: stiffness}

    @cache
    def reference(seed: int) -> tuple[dict[Any, Any], dict[Any, Any], dict[str, list[Any]]]:
        """The definition, with the activation written out and no derivative rule of ours."""
        values = _random_tokens([k.field, k.cavity, v.cavity], length, seed)
        symbols = {k.V, v.V, LABEL} | residual.free_symbols | stiffness.free_symbols
        point = random_point({x for x in symbols if x != j}, seed)
        direct_r = put_explicit(found.residual, model, length)
        direct_d = put_explicit(found.stiffness, model, length)
        full = direct_r**2 / (2 * direct_d) + sp.Add(*(
            (k.field(p) - k.cavity(p)) ** 2 for p in positions
        )) / (2 * k.V)

        def slopes(expr: Any) -> list[Any]:
            numbers = []
            for p in positions:
                here = sp.Symbol("x_here", real=True)
                slope = sp.diff(expr.xreplace({k.field(p): here}), here)
                slope = slope.xreplace({here: values[k.field(p)]}).xreplace(values)
                numbers.append(evaluate(slope, point))
            return numbers

        exact = {
            "objective": [evaluate(full.xreplace(values), point)],
            "gradient": slopes(full),
            "direction": slopes(direct_r / sp.sqrt(direct_d)),
            "sigma": [
                evaluate(activation_value(model, p, length).xreplace(values), point)
                for p in positions
            ],
        }
        return values, point, exact

    def check(c: Conclusion) -> CheckResult:
        pairs = []
        displaced = {k.residual(p): (k.field(p) - k.cavity(p)) / k.V for p in positions}
        for seed in (1, 2):
            values, point, exact = reference(seed)
            for name, numbers in exact.items():
                expr = c[name].xreplace(names)
                for p, number in zip(positions, numbers, strict=False):
                    written = write_out(expr.xreplace({j: p}), length).xreplace(displaced)
                    pairs.append((evaluate(written.xreplace(values), point), number))
        return compare(pairs, "three tokens written out and differentiated by SymPy")

    return Step(
        name="attention field",
        rule="chain rule through the activation; the reduced loss is half a square, whose "
        "gradient gives the Gauss-Newton direction",
        premises=("manifold", "readout eliminated"),
        conclusion=conclusion,
        check=check,
    )


def activation_value(model: Model, position: Any, length: int) -> Any:
    """``sigma(chi)_position`` from the activation's definition, tokens written out."""
    a = model.activation
    assert a is not None
    field = model.sectors[0].field
    if a.log_weight is None:
        assert a.expression is not None
        return a.expression.xreplace({a.x: field(position)})
    weights = [
        sp.exp(a.log_weight.xreplace({a.x: field(sp.Integer(p))})) for p in range(1, length + 1)
    ]
    return weights[int(position) - 1] / sp.Add(*weights)


def put_explicit(expr: Any, model: Model, length: int) -> Any:
    """Write tokens out, then put the activation's definition for ``sigma(1), sigma(2), ...``."""
    written = write_out(expr, length)
    if model.activation is None:
        return written
    return written.xreplace({
        SIGMA(sp.Integer(p)): activation_value(model, sp.Integer(p), length)
        for p in range(1, length + 1)
    })


def loss_step(model: Model, replicated: Step) -> Step:
    """Gradient and Hessian of the loss by the local fields of all sectors.

    The gradient drives the simulated training and, where the readout is not eliminated, the
    proximal solver; the Hessian gives the stability operator.
    """
    i, j = index("i"), index("j")
    loss = with_activation(loss_of(replicated), model)
    conclusion: dict[str, Any] = {"loss": loss}
    for a in model.sectors:
        slope = token_derivative(loss, a.field, j)
        conclusion[f"gradient_{a.name}"] = slope
        for b in model.sectors:
            conclusion[f"hessian_{a.name}{b.name}"] = token_derivative(slope, b.field, i)

    length = 2
    positions = [sp.Integer(p) for p in range(1, length + 1)]
    fields = [s.field for s in model.sectors]
    values = _random_tokens(fields, length, 3)
    point = random_point(loss.free_symbols | {LABEL}, 3)

    def places(name: str) -> list[dict[Any, Any]]:
        """Index values of the entries of a conclusion."""
        if name == "loss":
            return [{}]
        if name.startswith("gradient"):
            return [{j: p} for p in positions]
        return [{j: p, i: q} for p in positions for q in positions]

    @cache
    def reference() -> dict[str, list[Any]]:
        """The loss with the activation written out, differentiated by SymPy."""
        direct = put_explicit(model.loss, model, length)
        stand_in = {
            f(p): sp.Symbol(f"{f.__name__}_at_{p}", real=True) for f in fields for p in positions
        }
        at = {stand_in[key]: value for key, value in values.items()}
        flat = direct.xreplace(stand_in)
        exact = {"loss": [evaluate(flat.xreplace(at), point)]}
        for a in model.sectors:
            first = [sp.diff(flat, stand_in[a.field(p)]) for p in positions]
            exact[f"gradient_{a.name}"] = [evaluate(e.xreplace(at), point) for e in first]
            for b in model.sectors:
                exact[f"hessian_{a.name}{b.name}"] = [
                    evaluate(sp.diff(e, stand_in[b.field(q)]).xreplace(at), point)
                    for e in first for q in positions
                ]
        return exact

    def check(c: Conclusion) -> CheckResult:
        pairs = []
        for name, numbers in reference().items():
            for place, number in zip(places(name), numbers, strict=True):
                written = write_out(c[name].xreplace(place), length).xreplace(values)
                pairs.append((evaluate(written, point), number))
        return compare(pairs, "two tokens written out and differentiated by SymPy")

    return Step(
        name="loss derivatives",
        rule="chain rule through the activation, tokens kept symbolic",
        premises=("replicated partition function",),
        conclusion=conclusion,
        check=check,
    )


def with_activation(expr: Any, model: Model) -> Any:
    """``sigma(l)`` replaced by the activation of the attention field."""
    activation, attention = model.activation, model.attention
    if activation is None or attention is None:
        return expr
    field = attention.field
    return replace_field(expr, SIGMA, lambda p: activation.at(field, p))
