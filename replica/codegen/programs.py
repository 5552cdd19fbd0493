"""The programs that a solver needs, lowered from the derived equations of a model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp
from sympy.core.function import AppliedUndef

from replica.derivation.chain import SaddlePointEquations
from replica.derivation.reduction import (
    RESIDUAL,
    STIFFNESS,
    proximal_objective,
    with_activation,
)
from replica.derivation.saddle_point import replace_field, score_of
from replica.ir.lower import lower
from replica.ir.program import Program, Shape
from replica.model import LABEL, NOISE, RATIO, Model, Sector
from replica.symbolic.averages import Expectation
from replica.symbolic.tokens import index, outermost


@dataclass(frozen=True)
class Programs:
    """Generated pieces by role; ``None`` where a model has no such piece.

    label
        Label from the teacher's fields and noise; ``None`` where ``cavity`` makes it.
    cavity
        Cavity fields from teacher, noise and overlaps; the label too where its law given the
        cavity field is enough.
    proximal
        Objective, gradient and Gauss-Newton direction in the attention displacement.
    readout
        Displacement of the eliminated readout field.
    loss, hessian
        Loss, its gradient and its Hessian by the local fields.
    curvature
        Hessian of the loss at the minimiser as diagonal plus low rank.
    averages
        Integrands of the conjugates at the minimiser.
    observables
        Integrands of the loss, the envelope and the test error.
    conjugates, overlaps, free_energy, risk
        Scalar maps between averages, conjugates, overlaps and results.
    """

    label: Program | None
    cavity: Program
    proximal: Program | None
    readout: Program | None
    loss: Program
    hessian: Program
    curvature: Program | None
    averages: Program
    observables: Program
    conjugates: Program
    overlaps: Program
    free_energy: Program
    risk: Program


_AXIS: dict[Any, Shape] = {index("l"): "token", index("j"): "token", index("i"): "token"}


def build_programs(
    equations: SaddlePointEquations, *, stein: bool, without: Collection[str] = ()
) -> Programs:
    """Lower everything.

    ``stein`` chooses the estimators of smaller error where they exist; ``without`` names
    conjugates that keep their reparametrised form all the same.
    """
    model = equations.model
    base = input_shapes(model)
    steps = equations.derivation
    j, i = index("j"), index("i")

    conjugates = dict(equations.conjugates)
    if stein:
        conjugates |= {n: e for n, e in equations.stein.items() if n not in without}
    names: dict[sp.Symbol, Any] = {}
    displacement = None
    if equations.eliminated:
        found = steps["readout eliminated"].conclusion
        names = {
            RESIDUAL: _displaced(found["residual"], model),
            STIFFNESS: _displaced(found["stiffness"], model),
        }
        displacement = _displaced(found[f"f_{model.readout.name}"], model)

    def at_minimiser(expr: Any) -> Any:
        return _at_minimiser(with_activation(expr, model), model, displacement)

    means, integrands = split_averages(conjugates)
    integrands = {n: at_minimiser(e) for n, e in integrands.items()}
    envelope = proximal_objective(steps["manifold"])
    observables = {"loss": at_minimiser(model.loss), "envelope": at_minimiser(envelope)}
    scalar: dict[str, Shape] = {n: s for n, s in base.items() if s == "uniform"}
    with_means: dict[str, Shape] = {**scalar, **_uniform(integrands), **_uniform(observables)}

    f = equations.free_energy
    (data,) = outermost(f, (Expectation,))
    free_energy = f.xreplace({data: sp.Symbol("envelope")})

    risk_value = {"test_error": equations.test_error, "noise_floor": equations.noise_floor}
    risk_means, risk_integrands = split_averages(risk_value, prefix="risk")
    observables |= {k: _fresh(e, model) for k, e in risk_integrands.items()}

    cavity = _cavity(equations, [*integrands.values(), *observables.values()], stein)

    proximal = readout = None
    if displacement is not None:
        readout = lower(
            "readout", {model.readout.residual.__name__: displacement}, base, _AXIS, names
        )
        if model.activation is not None:
            c = steps["attention field"].conclusion
            proximal = lower(
                "proximal",
                {n: _displaced(c[n], model) for n in ("objective", "gradient", "direction")},
                base, _AXIS, names,
            )
    curvature = equations.curvature
    d = steps["loss derivatives"].conclusion
    gradients = {n: e for n, e in d.items() if not n.startswith("hessian")}
    hessians = {n: e for n, e in d.items() if n.startswith("hessian")}
    return Programs(
        label=None if LABEL.name in cavity else lower(
            "label", {LABEL.name: model.channel}, base, _AXIS
        ),
        cavity=lower("cavity", cavity, base, _AXIS),
        proximal=proximal,
        readout=readout,
        loss=lower("loss", gradients, base, _AXIS),
        hessian=lower("hessian", hessians, base, {j: "row", i: "col"}),
        curvature=None if curvature is None or displacement is None else lower(
            "curvature", {n: at_minimiser(e) for n, e in curvature.items()}, base, _AXIS, names
        ),
        averages=lower("averages", integrands, base, _AXIS, names),
        observables=lower("observables", observables, base, _AXIS, names),
        conjugates=lower(
            "conjugates", means, {**with_means, **_uniform(conjugates)}
        ),
        overlaps=lower("overlaps", equations.overlaps, with_means),
        free_energy=lower("free_energy", {"free_energy": free_energy}, with_means),
        risk=lower("risk", risk_means, {**scalar, **_uniform(risk_integrands)}),
    )


def _cavity(equations: SaddlePointEquations, averaged: list[Any], stein: bool) -> dict[str, Any]:
    """Each sector's cavity field: its marginal law if nothing averaged needs its teacher or noise.

    The readout's marginal law makes the label as well.
    """
    cavity = dict(equations.cavity)
    used = {a.func.__name__ for e in averaged for a in sp.sympify(e).atoms(AppliedUndef)}
    for s in equations.model.sectors:
        name = s.cavity.__name__
        held = {s.teacher.__name__, s.noise.__name__} & used
        if not stein or held or name not in equations.marginal:
            continue
        cavity[name] = equations.marginal[name]
        if s == equations.model.readout:
            omega = equations.marginal[name]
            label = equations.marginal[LABEL.name]
            cavity[LABEL.name] = replace_field(
                label, s.cavity, lambda p, e=omega: e.xreplace({index("l"): p})
            )
    return cavity


def _uniform(names: Iterable[str]) -> dict[str, Shape]:
    return {n: "uniform" for n in names}


def parameter_symbols(model: Model) -> set[sp.Symbol]:
    """The symbols of the loss, the channel and the weight that stand for parameters."""
    names = parameter_names(model)
    found: set[sp.Symbol] = set()
    for e in (model.loss, model.channel, model.log_weight):
        found |= {x for x in sp.sympify(e).free_symbols if x.name in names}
    return found


def parameter_names(model: Model) -> set[str]:
    """Names of the parameters a user gives: everything uniform that the equations do not solve."""
    solved = {RATIO.name}
    for s in model.sectors:
        solved |= {x.name for x in (s.m, s.q, s.V, s.m_hat, s.q_hat, s.V_hat)}
    return {n for n, shape in input_shapes(model).items() if shape == "uniform"} - solved


def input_shapes(model: Model) -> dict[str, Shape]:
    """Shapes of everything an expression may hold."""
    shapes: dict[str, Shape] = {LABEL.name: "node", NOISE.name: "node", RATIO.name: "uniform"}
    for s in model.sectors:
        for f in (s.field, s.teacher, s.cavity, s.noise, s.residual):
            shapes[f.__name__] = "token"
        for x in (s.m, s.q, s.V, s.m_hat, s.q_hat, s.V_hat, s.ridge):
            shapes[x.name] = "uniform"
        for x in sp.sympify(s.rho).free_symbols:
            shapes[x.name] = "uniform"
    parameters: set[Any] = set()
    for e in (model.loss, model.channel, model.log_weight):
        parameters |= {x for x in sp.sympify(e).free_symbols if isinstance(x, sp.Symbol)}
    if model.activation is not None:
        a = model.activation
        expr = a.expression if a.log_weight is None else a.log_weight
        assert expr is not None
        parameters |= expr.free_symbols - {a.x}
    for x in parameters:
        if not x.is_integer:
            shapes.setdefault(x.name, "uniform")
    return shapes


def score_program(model: Model) -> Program:
    """The score ``d log g/d h*`` of the first sector's teacher field, per token."""
    return lower("score", {"score": score_of(model)}, input_shapes(model), {index("j"): "token"})


def split_averages(
    values: Mapping[str, Any], prefix: str = "mean"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Expressions with each average replaced by a symbol, and the averages' integrands."""
    symbols: dict[Any, sp.Symbol] = {}
    integrands: dict[str, Any] = {}
    replaced = {}
    for name, expr in values.items():
        for e in outermost(sp.sympify(expr), (Expectation,)):
            if e not in symbols:
                symbols[e] = sp.Symbol(f"{prefix}{len(symbols)}")
                integrands[symbols[e].name] = e.body
        replaced[name] = sp.sympify(expr).xreplace(symbols)
    return replaced, integrands


def _displace(expr: Any, sectors: tuple[Sector, ...]) -> Any:
    """Fields written as ``omega + V f``."""
    for s in sectors:
        def value(p: Any, s: Sector = s) -> Any:
            return s.cavity(p) + s.V * s.residual(p)

        expr = replace_field(expr, s.field, value)
    return expr


def _displaced(expr: Any, model: Model) -> Any:
    attention = model.attention
    activated = with_activation(expr, model)
    return activated if attention is None else _displace(activated, (attention,))


def _at_minimiser(expr: Any, model: Model, displacement: Any) -> Any:
    """Fields at the minimiser; the readout's displacement by its closed form where there is one."""
    expr = _displace(expr, model.sectors)
    if displacement is None:
        return expr
    return replace_field(
        expr, model.readout.residual, lambda p: displacement.xreplace({index("j"): p})
    )


def _fresh(expr: Any, model: Model) -> Any:
    """Fields of a fresh sample are the cavity fields."""
    expr = with_activation(expr, model)
    for s in model.sectors:
        expr = replace_field(expr, s.field, s.cavity)
    return expr
