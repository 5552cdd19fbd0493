"""Stationarity of the zero-temperature free energy, and estimators of its conjugates."""

from __future__ import annotations

from functools import cache
from typing import Any

import mpmath as mp
import sympy as sp
from sympy.core.function import AppliedUndef

from replica.derivation.free_energy import Blocks, average_over
from replica.derivation.numeric import compare, evaluate, random_point
from replica.derivation.step import CheckResult, Conclusion, Step
from replica.errors import DerivationError
from replica.model import LABEL, NOISE, RATIO, SIGMA, Model, Sector
from replica.symbolic.averages import Expectation, Minimum, Proximal
from replica.symbolic.primitives import plain
from replica.symbolic.tokens import (
    LENGTH,
    RELEVANT,
    TokenSum,
    expand_sums,
    index,
    outermost,
    token_derivative,
    write_out,
)


def replace_field(expr: Any, field: Any, value: Any) -> Any:
    """Replace ``field(i)`` by ``value(i)`` at every index, bound ones too."""
    return expr.xreplace({
        a: value(a.args[0]) for a in expr.atoms(AppliedUndef) if a.func == field
    })


def cavity_fields(model: Model, fields: Step) -> Step:
    """``omega = m/rho h* + sqrt(q - m^2/rho) zeta`` on the manifold, zeta standard normal."""
    cross = {s: sp.S.Zero for s in Blocks(model.sectors).cross()}
    i = index("l")
    conclusion = {}
    for k, s in enumerate(model.sectors):
        mean = fields.conclusion["mean"].xreplace(cross)[k, k]
        spread = sp.sqrt(fields.conclusion["common_covariance"].xreplace(cross)[k, k])
        conclusion[f"omega_{s.name}"] = mean * s.teacher(i) + spread * s.noise(i)

    def check(c: Conclusion) -> CheckResult:
        pairs = []
        for s in model.sectors:
            expr = c[f"omega_{s.name}"]
            point = random_point(
                {x for x in expr.free_symbols if x != i} | {s.m, s.q} | s.rho.free_symbols, 1
            )
            point[s.q] = abs(point[s.q]) + 2 * point[s.m] ** 2 / sp.sympify(s.rho).xreplace(point)
            mean, spread = sp.diff(expr, s.teacher(i)), sp.diff(expr, s.noise(i))
            rest = expr.xreplace({s.teacher(i): sp.S.Zero, s.noise(i): sp.S.Zero})
            rho = sp.sympify(s.rho)
            pairs += [
                (evaluate(mean * rho, point), evaluate(s.m, point)),
                (evaluate(mean**2 * rho + spread**2, point), evaluate(s.q, point)),
                (evaluate(rest, point), mp.mpf(0)),
            ]
        return compare(pairs, "overlap with the teacher and second moment")

    return Step(
        name="cavity fields",
        rule="reparametrised noise: one standard normal per token and sector",
        premises=("local fields", "manifold"),
        conclusion=conclusion,
        check=check,
    )


def cavity_value(step: Step, sector: Sector) -> Any:
    """The cavity field as a function of the index."""
    expr = step.conclusion[f"omega_{sector.name}"]
    return lambda position: expr.xreplace({index("l"): position})


def overlap_equations(model: Model, on_manifold: Step) -> Step:
    """Stationarity in the multipliers: rational functions for ``m, q, V``."""
    f = on_manifold.conclusion["f"]
    conclusion: dict[str, Any] = {}
    for s in model.sectors:
        equations = [sp.diff(f, x) for x in (s.m_hat, s.q_hat, s.V_hat)]
        solutions = sp.solve(equations, [s.m, s.V, s.q], dict=True)
        if len(solutions) != 1:
            raise DerivationError(f"sector {s.name}: the overlaps are not determined")
        for x in (s.m, s.q, s.V):
            conclusion[x.name] = sp.factor(solutions[0][x])

    def check(c: Conclusion) -> CheckResult:
        step = sp.Rational(1, 10**10)
        held = {e: sp.S.Zero for e in f.atoms(Expectation)}
        bare = f.xreplace(held)
        names = {x.name: x for s in model.sectors for x in (s.m, s.q, s.V)}
        point = random_point(bare.free_symbols | set().union(
            *(e.free_symbols for e in c.values())
        ), 2)
        point |= {s.V_hat: abs(point[s.V_hat]) for s in model.sectors}
        point |= {names[n]: e.xreplace(point) for n, e in c.items()}
        pairs = []
        for s in model.sectors:
            for x in (s.m_hat, s.q_hat, s.V_hat):
                up, down = dict(point), dict(point)
                up[x] += step
                down[x] -= step
                slope = (evaluate(bare, up, 40) - evaluate(bare, down, 40)) / mp.mpf(2e-10)
                pairs.append((slope, mp.mpf(0)))
        return compare(pairs, "numerical gradient of f in the multipliers", 1e-12)

    return Step(
        name="overlap equations",
        rule="stationarity in the multipliers",
        premises=("manifold",),
        conclusion=conclusion,
        check=check,
    )


def conjugate_equations(model: Model, on_manifold: Step, cavity: Step) -> Step:
    """Stationarity in the overlaps: envelope theorem along the reparametrised noise."""
    f = on_manifold.conclusion["f"]
    for s in model.sectors:
        f = replace_field(f, s.cavity, cavity_value(cavity, s))
    conclusion: dict[str, Any] = {}
    for s in model.sectors:
        slopes = [sp.diff(f, x) for x in (s.m, s.q, s.V)]
        hats = (s.m_hat, s.V_hat, s.q_hat)
        for slope, hat in zip(slopes, hats, strict=True):
            coefficient = sp.diff(slope, hat)
            data = _residual_form(slope - coefficient * hat, model, cavity)
            conclusion[hat.name] = _tidy_average(-data / coefficient)

    reference = cache(lambda: _ConjugateReference(model, f, cavity))

    def check(c: Conclusion) -> CheckResult:
        return reference().compare(c)

    return Step(
        name="conjugate equations",
        rule="stationarity in the overlaps; derivatives pass through the minimum (envelope "
        "theorem) and the average (reparametrised noise)",
        premises=("manifold", "cavity fields"),
        conclusion=conclusion,
        check=check,
        text=r"$f^w = (h^w - \omega^w)/V_w$ at the proximal minimiser. Jumps of the proximal map "
        "are counted, since no derivative of the map is taken.",
    )


def _residual_form(expr: Any, model: Model, cavity: Step) -> Any:
    """Write the minimiser as ``omega + V f``."""
    rule = {}
    for p in expr.atoms(Proximal):
        s = next(s for s in model.sectors if s.field_name == p.field.name)
        rule[p] = cavity_value(cavity, s)(p.position) + s.V * s.residual(p.position)
    return expr.xreplace(rule)


def _tidy_average(expr: Any) -> Any:
    """Write a data term as ``alpha E[one sum per residual]``, its constants pulled out."""
    (held,) = outermost(expr, (Expectation,))
    factor = sp.cancel(expr.xreplace({held: sp.S.One}) / RATIO)
    merged: dict[Any, Any] = {}
    for term in sp.Add.make_args(expand_sums(held.body)):
        (total,) = (a for a in sp.Mul.make_args(term) if isinstance(a, TokenSum))
        body = total.body
        powers = [a for a in sp.Mul.make_args(body) if _is_residual(a)]
        key = (sp.Mul(*powers), total.bound)
        outside = sp.cancel(term / total * factor)
        merged[key] = merged.get(key, sp.S.Zero) + outside * sp.expand(body / key[0])
    result: Any = sp.S.Zero
    for (residual, bound), body in merged.items():
        constant, body = sp.expand(body).as_independent(bound, as_Add=False)
        result += constant * TokenSum(residual * body, bound)
    return RATIO * Expectation(result, held.random)


def _is_residual(expr: Any) -> bool:
    base = expr.as_base_exp()[0]
    return isinstance(base, AppliedUndef) and base.func.__name__.startswith("f_")


class _ConjugateReference:
    """Finite differences of the data term on three random nodes at ``L = 2``.

    A toy attention ``sigma_l = 1/2 + chi_l/3`` makes the loss explicit; the minimum is found by
    Newton's method at 40 digits.
    """

    digits, length = 40, 2

    def __init__(self, model: Model, f: Any, cavity: Step) -> None:
        self.model, self.cavity = model, cavity
        self.bare = f.xreplace({e: sp.S.Zero for e in f.atoms(Expectation)})
        data = sp.Add(*f.atoms(Expectation))
        minimum = next(iter(data.atoms(Minimum)))
        positions = [sp.Integer(p) for p in range(1, self.length + 1)]
        self.positions = positions
        attention = model.sectors[0]
        self.objective = write_out(minimum.objective, self.length).xreplace({
            SIGMA(p): sp.Rational(1, 2) + attention.field(p) / 3 for p in positions
        })
        self.fields = [s.field(p) for s in model.sectors for p in positions]
        self.point = random_point([x for x in f.free_symbols if isinstance(x, sp.Symbol)], 3)
        for s in model.sectors:
            self.point[s.V] = sp.Rational(1, 5) + self.point[s.V] / 50
            self.point[s.q] = 1 + self.point[s.m] ** 2 / sp.sympify(s.rho).xreplace(self.point)
        self.nodes = [self._node(n) for n in range(3)]
        with mp.workdps(self.digits):
            self.cases = [(sp.Rational(1, 3), self._with_residuals(v)) for v in self.nodes]
            self.slopes = {
                x: self._slope(x) for s in model.sectors for x in (s.m, s.q, s.V)
            }

    def _node(self, node: int) -> dict[Any, Any]:
        values: dict[Any, Any] = {LABEL: sp.Rational(node - 1, 2) + sp.Rational(1, 3)}
        for s in self.model.sectors:
            for p in self.positions:
                draws = random_point(sp.symbols(f"t{s.name}{p} u{s.name}{p}", real=True), node)
                values[s.teacher(p)], values[s.noise(p)] = (
                    draws[k] for k in sorted(draws, key=str)
                )
        return values

    def _omega(self, s: Sector, p: Any, values: dict[Any, Any], at: dict[Any, Any]) -> Any:
        omega = cavity_value(self.cavity, s)(p).xreplace(values).xreplace(at)
        return evaluate(omega, {}, self.digits)

    def _solve(self, values: dict[Any, Any], at: dict[Any, Any]) -> tuple[Any, list[Any]]:
        stand_in = [sp.Symbol(f"x{k}", real=True) for k in range(len(self.fields))]
        objective = self.objective.xreplace(values).xreplace(at)
        objective = objective.xreplace(dict(zip(self.fields, stand_in, strict=True)))
        # our primitives have a plain form that mpmath can evaluate
        objective = plain(objective)
        gradient = [sp.diff(objective, x) for x in stand_in]
        start = [self._omega(s, p, values, at) for s in self.model.sectors for p in self.positions]
        function = sp.lambdify(stand_in, gradient, "mpmath")
        tolerance = mp.mpf(10) ** (10 - 2 * self.digits)
        root = mp.findroot(lambda *x: function(*x), start, tol=tolerance)
        found = [root[k] for k in range(len(stand_in))]
        return sp.lambdify(stand_in, objective, "mpmath")(*found), found

    def _with_residuals(self, values: dict[Any, Any]) -> dict[Any, Any]:
        found = dict(zip(self.fields, self._solve(values, self.point)[1], strict=True))
        residuals = {}
        for s in self.model.sectors:
            V = evaluate(s.V, self.point, self.digits)
            for p in self.positions:
                gap = found[s.field(p)] - self._omega(s, p, values, self.point)
                residuals[s.residual(p)] = sp.Float(gap / V, self.digits)
        return {**values, **residuals}

    def _slope(self, x: Any) -> Any:
        """``d(alpha E min)/dx`` by central differences."""
        h = sp.Rational(1, 10**10)
        ends = []
        for sign in (1, -1):
            at = dict(self.point)
            at[x] += sign * h
            ends.append(mp.fsum(self._solve(v, at)[0] for v in self.nodes) / len(self.nodes))
        alpha = evaluate(RATIO, self.point, self.digits)
        return alpha * (ends[0] - ends[1]) / (2 * mp.mpf(10) ** -10)

    def compare(self, c: Conclusion) -> CheckResult:
        hats = {x.name: x for s in self.model.sectors for x in (s.m_hat, s.q_hat, s.V_hat)}
        with mp.workdps(self.digits):
            conjugates = {}
            for name, expr in c.items():
                written = average_over(_write_out_averages(expr, self.length), self.cases)
                value = evaluate(written, self.point, self.digits)
                conjugates[hats[name]] = sp.Float(value, self.digits)
            pairs = [
                (evaluate(sp.diff(self.bare, x).xreplace(conjugates), self.point, self.digits),
                 -slope)
                for x, slope in self.slopes.items()
            ]
            return compare(pairs, "finite differences of the data term on three nodes", 1e-14)


def _write_out_averages(expr: Any, length: int) -> Any:
    held = outermost(expr, (Expectation,))
    return expr.xreplace({e: _Written(write_out(e.body, length), e.random) for e in held})


class _Written(Expectation):
    """An expectation whose body is already written out; nothing is pulled in or out."""

    def __new__(cls, body: Any, random: Any) -> Any:
        return sp.Expr.__new__(cls, body, random)


# -- estimators -----------------------------------------------------------------------------------


def response_identity(model: Model, conjugates: Step, cavity: Step) -> Step:
    """``Vhat`` without ``1/sqrt(q - m^2)``: eliminate ``E f.zeta`` for ``E f.omega``."""
    i = index("l")
    conclusion = {}
    for s in model.sectors:
        with_teacher, with_noise, with_omega = sp.symbols("X Y W", real=True)
        m_hat, V_hat = (conjugates.conclusion[x.name] for x in (s.m_hat, s.V_hat))
        omega = cavity_value(cavity, s)(i)
        equations = [
            _as_moments(m_hat, s, with_teacher, with_noise) - s.m_hat,
            _as_moments(V_hat, s, with_teacher, with_noise) - s.V_hat,
            sp.diff(omega, s.teacher(i)) * with_teacher
            + sp.diff(omega, s.noise(i)) * with_noise - with_omega,
        ]
        solution = sp.solve(equations, [with_teacher, with_noise, s.V_hat], dict=True)
        if len(solution) != 1:
            raise DerivationError(f"sector {s.name}: the response identity does not close")
        product = Expectation(TokenSum(s.residual(i) * s.cavity(i), i), model.random_symbols)
        value = sp.cancel(solution[0][s.V_hat])
        conclusion[s.V_hat.name] = sp.collect(
            sp.expand(value * s.q), RATIO
        ).xreplace({with_omega: product}) / s.q

    def check(c: Conclusion) -> CheckResult:
        # node by node: put random residuals into both forms
        pairs = []
        for s in model.sectors:
            point = random_point(
                {s.m, s.q, RATIO} | sp.sympify(s.rho).free_symbols | {s.m_hat}, 4
            )
            point[s.q] = point[s.q] + point[s.m] ** 2 / sp.sympify(s.rho).xreplace(point) * 2
            values: dict[Any, Any] = {}
            for p in (1, 2):
                position = sp.Integer(p)
                draws = random_point(sp.symbols("a b c", real=True), p)
                a, b, d = (draws[k] for k in sorted(draws, key=str))
                values |= {s.teacher(position): a, s.noise(position): b, s.residual(position): d}
                values[s.cavity(position)] = cavity_value(cavity, s)(position).xreplace(values)
            cases = [(sp.S.One, values)]

            def at(expr: Any, point: Any = point, cases: Any = cases) -> Any:
                written = average_over(_write_out_averages(expr, 2), cases)
                return written.xreplace(point)

            m_hat = at(conjugates.conclusion[s.m_hat.name])
            mine = at(c[s.V_hat.name].xreplace({s.m_hat: sp.Symbol("held")}))
            mine = mine.xreplace({sp.Symbol("held"): m_hat})
            pairs.append((
                evaluate(mine.xreplace(point), {}),
                evaluate(at(conjugates.conclusion[s.V_hat.name]), {}),
            ))
        return compare(pairs, "both forms of Vhat on a random node")

    return Step(
        name="response identity",
        rule=r"elimination of $E[f \cdot \zeta]$ between the equations for $\hat{m}$, $\hat{V}$ "
        r"and $E[f \cdot \omega]$",
        premises=("conjugate equations", "cavity fields"),
        conclusion=conclusion,
        check=check,
        text=r"Exact sample by sample, with no division by $\sqrt{q - m^2/\rho}$.",
    )


def _as_moments(expr: Any, s: Sector, with_teacher: Any, with_noise: Any) -> Any:
    """Replace ``E sum f h*`` and ``E sum f zeta`` by two symbols."""
    def go(e: Expectation) -> Any:
        total: Any = sp.S.Zero
        for t in sp.Add.make_args(expand_sums(e.body)):
            sums = [a for a in sp.Mul.make_args(t) if isinstance(a, TokenSum)]
            (only,) = sums
            outside = t / only
            b = only.bound
            rule = {
                s.residual(b) * s.teacher(b): with_teacher,
                s.residual(b) * s.noise(b): with_noise,
            }
            if only.body not in rule:
                raise DerivationError(f"unexpected average {only}")
            total += outside * rule[only.body]
        return total

    return expr.xreplace({e: go(e) for e in outermost(expr, (Expectation,))})


def stein_attention(model: Model, conjugates: Step, cavity: Step) -> Step | None:
    """``mhat`` of the sector that ``g`` weights, by Gaussian integration by parts."""
    s = model.sectors[0]
    if model.sampling_only or model.log_weight == 0:
        return None
    l, j = index("l"), index("j")  # noqa: E741
    score = score_of(model)
    omega = cavity_value(cavity, s)(l)
    mean, spread = sp.diff(omega, s.teacher(l)), sp.diff(omega, s.noise(l))
    # E[zeta f] = spread E f';  E[h* f] = rho (mean E f' + E[f d log g])
    response, drift = sp.symbols("T G", real=True)
    with_teacher, with_noise = sp.symbols("X Y", real=True)
    m_hat = _as_moments(conjugates.conclusion[s.m_hat.name], s, with_teacher, with_noise)
    m_hat = m_hat.xreplace({
        with_noise: spread * response,
        with_teacher: s.rho * (mean * response + drift),
    })
    m_hat = sp.cancel(sp.expand(m_hat))
    if sp.diff(m_hat, response) != 0:
        raise DerivationError("the response does not cancel in Stein's form")
    average = Expectation(
        TokenSum(s.residual(l) * score.xreplace({j: l}), l), model.random_symbols
    )
    conclusion = {s.m_hat.name: tidy_delta(m_hat.xreplace({drift: average}))}

    def check(c: Conclusion) -> CheckResult:
        return _check_stein(model, s, cavity, conjugates, c)

    return Step(
        name="Stein form of the key's conjugate",
        rule=r"Gaussian integration by parts in $h^\ast$ (weighted by $g$) and in $\zeta$",
        premises=("conjugate equations", "cavity fields"),
        conclusion=conclusion,
        check=check,
    )


def score_of(model: Model) -> Any:
    """``d log g/d h*(j)`` as a function of the index ``j``."""
    return token_derivative(model.log_weight, model.sectors[0].teacher, index("j"))


def tidy_delta(expr: Any) -> Any:
    """:func:`collapse_deltas` inside every average."""
    def average(e: Expectation) -> Any:
        return Expectation(sp.expand(collapse_deltas(e.body)), e.random)

    return expr.xreplace({e: average(e) for e in outermost(expr, (Expectation,))})


def collapse_deltas(body: Any) -> Any:
    """``sum_l delta(l, eps) F(l)`` becomes ``F(eps)``."""
    def go(node: TokenSum) -> Any:
        total: Any = sp.S.Zero
        for t in sp.Add.make_args(sp.expand(node.body)):
            deltas = [
                a for a in sp.Mul.make_args(t)
                if isinstance(a, sp.KroneckerDelta) and node.bound in a.free_symbols
            ]
            if deltas:
                d = deltas[0]
                other = d.args[0] if d.args[1] == node.bound else d.args[1]
                total += (t / d).xreplace({node.bound: other})
            else:
                outside, inside = t.as_independent(node.bound, as_Add=False)
                total += outside * TokenSum(inside, node.bound)
        return total

    return body.xreplace({n: go(n) for n in outermost(body, (TokenSum,))})


def _check_stein(model: Model, s: Sector, cavity: Step, conjugates: Step, c: Conclusion
                 ) -> CheckResult:
    """Both forms for a polynomial residual, averaged by Gauss-Hermite quadrature at L = 2."""
    import numpy as np

    x, w = np.polynomial.hermite_e.hermegauss(28)
    w = w / w.sum()
    grid = np.meshgrid(x, x, x, x, indexing="ij")
    weight = np.einsum("i,j,k,l->ijkl", w, w, w, w)
    point = {
        k: v / 2 for k, v in random_point(
            {s.m, s.q, RATIO} | model.log_weight.free_symbols | sp.sympify(s.rho).free_symbols, 5
        ).items()
    }
    # a parameter that the model fixes may have a range: a weak weight lies inside it
    point |= {k: sp.Rational(str(model.constants[k.name])) / 3 for k in point
              if k.name in model.constants}
    point[s.q] = point[s.q] + 2 * point[s.m] ** 2 / sp.sympify(s.rho).xreplace(point)
    one, two = sp.Integer(1), sp.Integer(2)
    rho = sp.sympify(s.rho).xreplace(point)
    names = sp.symbols("a b c d", real=True)
    values = {
        s.teacher(one): sp.sqrt(rho) * names[0], s.teacher(two): sp.sqrt(rho) * names[1],
        s.noise(one): names[2], s.noise(two): names[3],
    }
    omega = [cavity_value(cavity, s)(p).xreplace(values).xreplace(point) for p in (one, two)]
    residual = {
        s.residual(one): omega[0] ** 2 - omega[0] * omega[1] + omega[1] / 3,
        s.residual(two): omega[1] + omega[0] ** 3 / 5,
    }
    law = sp.exp(write_out(model.log_weight, 2)).xreplace(values).xreplace(point)
    density = sp.lambdify(names, law, "numpy")(*grid) * weight

    def average(expr: Any) -> float:
        def go(e: Any) -> Any:
            body = write_out(e.body, 2).xreplace(residual).xreplace(values).xreplace(point)
            numbers = sp.lambdify(names, body, "numpy")(*grid)
            return sp.Float(float((numbers * density).sum()))

        return float(expr.xreplace({e: go(e) for e in outermost(expr, (Expectation,))}
                                   ).xreplace(point))

    total = float(density.sum())
    pairs = [
        (mp.mpf(average(c[s.m_hat.name])),
         mp.mpf(average(conjugates.conclusion[s.m_hat.name]))),
        (mp.mpf(total), mp.mpf(1)),
    ]
    return compare(pairs, "quadrature of both forms with a polynomial residual; E g = 1", 1e-7)


def conditioned_readout(model: Model, conjugates: Step, cavity: Step) -> Step | None:
    """``mhat`` of the readout: Gaussian conditioning on ``(omega, y)`` removes the noise."""
    s = model.readout
    linear = linear_channel(model)
    if linear is None:
        return None
    slope, noise = linear
    l = index("l")  # noqa: E741
    omega = cavity_value(cavity, s)(l)
    mean, spread = sp.diff(omega, s.teacher(l)), sp.diff(omega, s.noise(l))
    with_teacher, with_noise = sp.symbols("X Y", real=True)
    form = _as_moments(conjugates.conclusion[s.m_hat.name], s, with_teacher, with_noise)
    a, b = (sp.cancel(sp.diff(form, x) / RATIO) for x in (with_teacher, with_noise))
    # target a h* + b zeta; an irrelevant token knows omega only, the relevant one y as well
    cov_omega = a * s.rho * mean + b * spread
    cov_y = a * s.rho * slope
    if sp.cancel(cov_omega) != 0:
        raise DerivationError("the irrelevant tokens do not drop out of the readout's conjugate")
    covariance = sp.Matrix([
        [sp.cancel(s.rho * mean**2 + spread**2), s.rho * mean * slope],
        [s.rho * mean * slope, s.rho * slope**2 + noise**2],
    ])
    weights = covariance.inv(method="ADJ") * sp.Matrix([cov_omega, cov_y])
    weights = weights.applyfunc(sp.factor)
    target = weights[0] * s.cavity(RELEVANT) + weights[1] * LABEL
    conclusion = {
        s.m_hat.name: RATIO * Expectation(
            s.residual(RELEVANT) * sp.factor(target), model.random_symbols
        )
    }

    def check(c: Conclusion) -> CheckResult:
        return _check_conditioned(model, s, cavity, conjugates, c)

    return Step(
        name="conditioned form of the readout's conjugate",
        rule=r"conditional expectation of the jointly Gaussian $h^\ast, \zeta$ given $\omega, y$",
        premises=("conjugate equations", "cavity fields"),
        conclusion=conclusion,
        check=check,
    )


def marginal_law(model: Model, cavity: Step) -> Step | None:
    """The law of ``(omega, y)`` alone: fewer random numbers per sample where no more is averaged.

    Attention: if ``log g`` is linear in ``h*`` the weighted Gaussian is a shifted one. Readout:
    with a linear channel ``(omega, y)`` is jointly Gaussian.
    """
    l, j = index("l"), index("j")  # noqa: E741
    conclusion: dict[str, Any] = {}
    first, readout = model.sectors[0], model.readout
    score = score_of(model)
    tilted = not model.sampling_only and not any(
        a.func == first.teacher for a in sp.sympify(score).atoms(AppliedUndef)
    )
    if tilted and first != readout:
        # N(0, rho) tilted by exp(score h*) has mean rho score and the same variance
        mean = sp.diff(cavity_value(cavity, first)(l), first.teacher(l)) * first.rho
        conclusion[f"omega_{first.name}"] = sp.cancel(mean) * score.xreplace({j: l}) + sp.sqrt(
            first.q
        ) * first.noise(l)
    linear = linear_channel(model)
    if linear is not None:
        slope, noise = linear
        s = readout
        original = cavity_value(cavity, s)(l)
        on_teacher, on_noise = sp.diff(original, s.teacher(l)), sp.diff(original, s.noise(l))
        variance = sp.cancel(s.rho * on_teacher**2 + on_noise**2)
        covariance = sp.cancel(slope * s.rho * on_teacher)
        left = sp.expand(slope**2 * s.rho + noise**2 - covariance**2 / variance)
        conclusion[f"omega_{s.name}"] = sp.sqrt(variance) * s.noise(l)
        conclusion[LABEL.name] = (
            covariance / variance * s.cavity(RELEVANT) + sp.sqrt(left) * NOISE
        )
    if not conclusion:
        return None

    def check(c: Conclusion) -> CheckResult:
        pairs = []
        for s in model.sectors:
            name = f"omega_{s.name}"
            if name not in c:
                continue
            symbols = c[name].free_symbols | {s.m, s.q, RATIO} | sp.sympify(s.rho).free_symbols
            point = random_point({x for x in symbols if x not in (l, RELEVANT)}, 9)
            point[s.q] = point[s.q] + 2 * point[s.m] ** 2 / sp.sympify(s.rho).xreplace(point)
            original = cavity_value(cavity, s)(l)
            spread = [sp.diff(original, s.teacher(l)), sp.diff(original, s.noise(l))]
            variance = spread[0] ** 2 * s.rho + spread[1] ** 2
            for p in (1, 2):  # the relevant token and another one, written out
                position = sp.Integer(p)
                mine = write_out(c[name].xreplace({l: position}), 2)
                noise_here, noise_there = s.noise(position), s.noise(sp.Integer(3 - p))
                still = {noise_here: sp.S.Zero, noise_there: sp.S.Zero}
                mean = _tilted_mean(model, s, spread[0], point) if p == 1 else mp.mpf(0)
                pairs += [
                    (evaluate(sp.diff(mine, noise_here) ** 2, point), evaluate(variance, point)),
                    (evaluate(sp.diff(mine, noise_there), point), mp.mpf(0)),
                    (evaluate(mine.xreplace(still), point), mean),
                ]
        if LABEL.name in c:
            s, (slope, noise) = readout, linear_channel(model) or (0, 0)
            one, two = sp.Integer(1), sp.Integer(2)
            mine = write_out(c[LABEL.name], 2)
            symbols = mine.free_symbols | {s.m, s.q}
            symbols |= sp.sympify(s.rho).free_symbols | sp.sympify(slope).free_symbols
            point = random_point({x for x in symbols if isinstance(x, sp.Symbol)} - {NOISE}, 10)
            point[s.q] = point[s.q] + 2 * point[s.m] ** 2 / sp.sympify(s.rho).xreplace(point)
            on_omega, on_noise = sp.diff(mine, s.cavity(one)), sp.diff(mine, NOISE)
            others = [s.cavity(two), *(f(p) for f in (s.noise, s.teacher) for p in (one, two))]
            still = {x: sp.S.Zero for x in (s.cavity(one), NOISE, *others)}
            pairs += [
                (evaluate(on_omega * s.q, point), evaluate(slope * s.m, point)),
                (evaluate(on_omega**2 * s.q + on_noise**2, point),
                 evaluate(slope**2 * s.rho + noise**2, point)),
                (evaluate(mine.xreplace(still), point), mp.mpf(0)),
                *((evaluate(sp.diff(mine, x), point), mp.mpf(0)) for x in others),
            ]
        return compare(pairs, "means, variances and the covariance of omega and y", 1e-12)

    return Step(
        name="marginal cavity law",
        rule=r"the Stein forms average functions of $\omega$ and $y$ alone: integrate the rest out",
        premises=("cavity fields",),
        conclusion=conclusion,
        check=check,
    )


def _tilted_mean(model: Model, s: Sector, slope: Any, point: dict[Any, Any]) -> Any:
    """``slope E_g[h*_eps]`` by quadrature over one token."""
    if s != model.sectors[0] or model.log_weight == 0:
        return mp.mpf(0)
    h = sp.Symbol("h_here", real=True)
    exponent = write_out(model.log_weight, 1).xreplace({s.teacher(sp.Integer(1)): h})
    density = sp.lambdify(
        h, (sp.exp(exponent - h**2 / (2 * s.rho))).xreplace(point), "mpmath"
    )
    with mp.workdps(25):
        grid = [-40, -10, -3, 0, 3, 10, 40]
        norm = mp.quad(density, grid)
        mean = mp.quad(lambda x: x * density(x), grid) / norm
        return mean * evaluate(slope, point)


def linear_channel(model: Model) -> tuple[Any, Any] | None:
    """Coefficients of ``h*_eps`` and ``xi`` if the label is linear in them, else ``None``."""
    star = model.readout.teacher(RELEVANT)
    h = sp.Symbol("h", real=True)
    expr = sp.expand(model.channel.xreplace({star: h}))
    slope, noise = sp.diff(expr, h), sp.diff(expr, NOISE)
    rest = sp.expand(expr - slope * h - noise * NOISE)
    if rest != 0 or slope.has(h, NOISE) or noise.has(h, NOISE) or slope.atoms(AppliedUndef):
        return None
    return slope, noise


def _check_conditioned(
    model: Model, s: Sector, cavity: Step, conjugates: Step, c: Conclusion
) -> CheckResult:
    """Both forms for a residual that is a polynomial in ``omega`` and ``y``, at two tokens.

    Gauss-Hermite quadrature over teacher, noise and label noise is exact for polynomials.
    """
    import numpy as np

    x, w = np.polynomial.hermite_e.hermegauss(7)
    w = w / w.sum()
    grid = np.meshgrid(*[x] * 5, indexing="ij")
    weight = np.einsum("a,b,c,d,e->abcde", *[w] * 5)
    point = random_point(
        {s.m, s.q, RATIO} | sp.sympify(model.channel).free_symbols
        | sp.sympify(s.rho).free_symbols, 12,
    )
    point.pop(NOISE, None)
    point[s.q] = point[s.q] + 2 * point[s.m] ** 2 / sp.sympify(s.rho).xreplace(point)
    one, two = sp.Integer(1), sp.Integer(2)
    names = sp.symbols("a b c d e", real=True)
    root = sp.sqrt(sp.sympify(s.rho))
    values = {
        s.teacher(one): root * names[0], s.teacher(two): root * names[1],
        s.noise(one): names[2], s.noise(two): names[3], NOISE: names[4],
    }
    omega = [cavity_value(cavity, s)(p).xreplace(values) for p in (one, two)]
    y = write_out(model.channel, 2).xreplace(values)
    known = {
        **values, LABEL: y, s.cavity(one): omega[0], s.cavity(two): omega[1],
        s.residual(one): y + omega[0] * omega[1] / 3 - omega[0] / 2 + y * omega[1] ** 2 / 5,
        s.residual(two): omega[1] ** 3 / 7 - y + omega[0],
    }

    def average(expr: Any) -> Any:
        def go(e: Any) -> Any:
            body = write_out(e.body, 2).xreplace(known).xreplace(point)
            numbers = sp.lambdify(names, body, "numpy")(*grid)
            return sp.Float(float((numbers * weight).sum()))

        held = {e: go(e) for e in outermost(expr, (Expectation,))}
        return mp.mpf(float(expr.xreplace(held).xreplace(point)))

    pairs = [(average(c[s.m_hat.name]), average(conjugates.conclusion[s.m_hat.name]))]
    return compare(pairs, "quadrature of both forms with a polynomial residual", 1e-10)


def _declared_risk(model: Model, cavity: Step) -> Step:
    """A closed form that the model declares, checked by averaging the test loss numerically."""
    s = model.readout

    def check(c: Conclusion) -> CheckResult:
        import numpy as np

        from replica.normals import standard_normal

        if model.test_loss is None or len(model.sectors) > 1:
            return CheckResult(False, "a declared test error needs one sector and a test loss")
        one = sp.Integer(1)
        names = sp.symbols("h z", real=True)
        point = random_point({s.m, s.q} | sp.sympify(s.rho).free_symbols, 8)
        point[s.q] = point[s.q] + 2 * point[s.m] ** 2 / sp.sympify(s.rho).xreplace(point)
        values = {s.teacher(one): sp.sqrt(s.rho) * names[0], s.noise(one): names[1]}
        label = write_out(model.channel, 1).xreplace(values)
        omega = cavity_value(cavity, s)(one).xreplace(values)
        loss = write_out(model.test_loss, 1).xreplace({LABEL: label, s.field(one): omega})
        n = 801
        axis = standard_normal((np.arange(n) + 0.5) / n)
        grid = np.meshgrid(axis, axis, indexing="ij")
        numbers = sp.lambdify(names, loss.xreplace(point), "numpy")(*grid)
        pairs = [(evaluate(c["test_error"], point), mp.mpf(float(np.mean(numbers)))),
                 (evaluate(c["noise_floor"], point), mp.mpf(0))]
        return compare(pairs, "midpoint average of the test loss", 2e-3)

    return Step(
        name="test error",
        rule="closed form declared by the model",
        premises=("cavity fields",),
        conclusion={"test_error": model.test_error, "noise_floor": sp.S.Zero},
        check=check,
    )


def _averaged_risk(model: Model) -> Step:
    """The squared error averaged over samples, where no Gaussian average closes.

    Noise that adds to the label with a constant factor is the floor; other noise has none.
    """
    s = model.readout
    body = (LABEL - replace_field(model.prediction, s.field, s.cavity)) ** 2
    factor = sp.diff(model.channel, NOISE)
    additive = not factor.has(NOISE) and not factor.atoms(AppliedUndef)
    floor = sp.expand(factor**2) if additive else sp.S.Zero

    def check(c: Conclusion) -> CheckResult:
        # one sample with numbers put in, and the label's response to its noise
        values: dict[Any, Any] = {LABEL: sp.Rational(4, 3)}
        prediction = sp.Rational(0)
        for p in (1, 2):
            position = sp.Integer(p)
            weight, field = sp.Rational(p, 3), sp.Rational(5 - 3 * p, 4)
            values |= {SIGMA(position): weight, s.cavity(position): field}
            values |= {t.field(position): field for t in model.sectors if t != s}
        explicit = write_out(model.prediction, 2)
        prediction = explicit.xreplace({
            s.field(sp.Integer(p)): values[s.cavity(sp.Integer(p))] for p in (1, 2)
        }).xreplace(values)
        written = average_over(_write_out_averages(c["test_error"], 2), [(sp.S.One, values)])
        point = random_point(
            sp.sympify(model.channel).free_symbols | sp.sympify(written).free_symbols, 11
        )
        step = sp.Rational(1, 10**8)
        star = {s.teacher(RELEVANT): sp.Rational(1, 7)}
        ends = [
            evaluate(model.channel.xreplace(star).xreplace({NOISE: x * step}), point)
            for x in (1, -1)
        ]
        response = (ends[0] - ends[1]) / (2 * evaluate(step, {}))
        pairs = [
            (evaluate(written, point), evaluate((values[LABEL] - prediction) ** 2, point)),
            (evaluate(c["noise_floor"], point), response**2 if additive else mp.mpf(0)),
        ]
        return compare(pairs, "one sample with numbers put in", 1e-12)

    return Step(
        name="test error",
        rule="average over fresh samples",
        premises=("cavity fields",),
        conclusion={"test_error": Expectation(body, model.random_symbols), "noise_floor": floor},
        check=check,
    )


def fresh_risk(model: Model, cavity: Step) -> Step:
    """Error on a fresh sample, whose fields are the cavity fields."""
    s = model.readout
    linear = linear_channel(model)
    if model.test_error is not None:
        return _declared_risk(model, cavity)
    if model.prediction is None:
        raise DerivationError(f"model {model.name}: neither a prediction nor a test error")
    j = index("j")
    fresh = replace_field(model.prediction, s.field, cavity_value(cavity, s))
    on_teacher = token_derivative(fresh, s.teacher, j)
    on_noise = token_derivative(fresh, s.noise, j)
    affine = not any(
        a.func in (s.teacher, s.noise)
        for e in (on_teacher, on_noise) for a in e.atoms(AppliedUndef)
    )
    if linear is None or not affine:
        return _averaged_risk(model)
    slope, noise = linear
    rho = s.rho
    second = TokenSum(rho * on_teacher**2 + on_noise**2, j)
    overlap = slope * rho * on_teacher.xreplace({j: RELEVANT})

    def average(e: Any) -> Any:
        total: Any = sp.S.Zero
        for t in sp.Add.make_args(sp.expand(expand_sums(e))):
            fields = list(t.atoms(AppliedUndef))
            outside, inside = t.as_independent(*fields, TokenSum, LENGTH, as_Add=False)
            total += outside * Expectation(inside, model.random_symbols)
        return sp.expand(total)

    value = rho * slope**2 + noise**2 - 2 * average(overlap) + average(second)
    conclusion = {"test_error": value, "noise_floor": noise**2}

    def check(c: Conclusion) -> CheckResult:
        # two tokens with given attention: E(y - P)^2 from the covariance of (h*, zeta, xi)
        point = random_point(c["test_error"].free_symbols | {s.m, s.q} | rho.free_symbols, 7)
        point[s.q] = point[s.q] + 2 * point[s.m] ** 2 / sp.sympify(rho).xreplace(point)
        weights = {SIGMA(sp.Integer(1)): sp.Rational(3, 7), SIGMA(sp.Integer(2)): sp.Rational(5, 4)}
        explicit = (write_out(model.channel, 2) - write_out(fresh, 2)).xreplace(weights)
        variance: Any = sp.S.Zero
        for p in (1, 2):
            variance += rho * sp.diff(explicit, s.teacher(sp.Integer(p))) ** 2
            variance += sp.diff(explicit, s.noise(sp.Integer(p))) ** 2
        variance += sp.diff(explicit, NOISE) ** 2
        written = average_over(_write_out_averages(c["test_error"], 2), [(sp.S.One, weights)])
        floor = c["noise_floor"].xreplace(point)
        return compare(
            [
                (evaluate(written, point), evaluate(variance, point)),
                (evaluate(floor, {}), evaluate(sp.diff(model.channel, NOISE) ** 2, point)),
            ],
            "variance of the residual, two tokens written out",
        )

    return Step(
        name="test error",
        rule="Gaussian average over the readout's fields of a fresh sample",
        premises=("cavity fields",),
        conclusion=conclusion,
        check=check,
    )
