"""Infinite data: the risk as a function of the seven overlaps, its manifold, and what is optimal.

``f(X) = sum_l sigma_l z_l`` is compared with a label that is linear in the value field of the
relevant token. Given the key fields ``(chi, chi*)`` the value fields ``(z, z*)`` are Gaussian,
whatever the weight ``g`` does to ``chi*``.
"""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np
import sympy as sp

from replica.derivation.free_energy import Blocks
from replica.derivation.numeric import compare, evaluate, random_point
from replica.derivation.replicon_checks import gaussian_mean
from replica.derivation.saddle_point import linear_channel
from replica.derivation.step import CheckResult, Conclusion, Step
from replica.errors import DerivationError
from replica.model import SIGMA, Model
from replica.symbolic.averages import Expectation
from replica.symbolic.primitives import owens_t
from replica.symbolic.tokens import (
    LENGTH,
    RELEVANT,
    LocationProbability,
    TokenSum,
    TokenWeights,
    expand_sums,
    index,
    outermost,
    write_out,
)

SIMPLIFIED = 60
"""Operations up to which SymPy's ``simplify`` is tried: beyond, its time has no bound."""
S1, S2 = sp.symbols("s_1 s_2", positive=True)
"""``E sigma_eps`` and ``E sum_l sigma_l^2``."""


def _label(model: Model) -> tuple[Any, Any]:
    """Slope of the label in the relevant value field, and amplitude of its noise."""
    found = linear_channel(model)
    l = index("l")  # noqa: E741
    wanted = TokenSum(SIGMA(l) * model.readout.field(l), l)
    if len(model.sectors) != 2 or found is None or model.prediction != wanted:
        raise DerivationError(
            f"model {model.name}: the population chain needs the predictor sum_l sigma_l z_l and a "
            "label that is linear in the relevant value field"
        )
    return found


def conditional_fields(model: Model) -> Step:
    """Mean matrix and covariance of ``(z, z*)`` given ``(chi, chi*)``, one token."""
    k, v = model.sectors
    b = Blocks(model.sectors)
    M, Q = b.M, b.Q  # M[i, j] = w_i . w*_j / D
    first = sp.Matrix([[Q[0, 0], M[0, 0]], [M[0, 0], k.rho]])
    mixed = sp.Matrix([[Q[0, 1], M[1, 0]], [M[0, 1], 0]])
    last = sp.Matrix([[Q[1, 1], M[1, 1]], [M[1, 1], v.rho]])
    determinant = first.det()  # not factored: SymPy would turn its sign around
    regression = (mixed * first.adjugate()).applyfunc(sp.expand)
    rest = (last * determinant - regression * mixed.T).applyfunc(sp.expand)
    conclusion = {
        "mean": sp.ImmutableMatrix(regression / determinant),
        "covariance": sp.ImmutableMatrix(rest.applyfunc(
            lambda e: sp.cancel(e / determinant) if sp.rem(e, determinant) == 0 else e / determinant
        )),
    }

    def check(c: Conclusion) -> CheckResult:
        point = random_point(
            first.free_symbols | mixed.free_symbols | last.free_symbols
            | c["mean"].free_symbols | c["covariance"].free_symbols, 2
        )
        joint = sp.Matrix(sp.BlockMatrix([[first, mixed.T], [mixed, last]])).xreplace(point)
        left = sp.Matrix.hstack(-sp.Matrix(c["mean"]).xreplace(point), sp.eye(2))
        rest = left * joint * left.T
        leak = left * joint[:, :2]
        mine = sp.Matrix(c["covariance"]).xreplace(point)
        pairs = [(evaluate(x, {}), evaluate(y, {})) for x, y in zip(mine, rest, strict=True)]
        pairs += [(evaluate(x, {}), mp.mpf(0)) for x in leak]
        return compare(pairs, "what is left is uncorrelated with the key fields")

    return Step(
        name="value fields given key fields",
        rule="Gaussian conditioning; given the weights the four fields of a token are jointly "
        "Gaussian with the overlaps as covariance",
        premises=(),
        conclusion=conclusion,
        check=check,
        text=r"Rows $(z, z^\ast)$, columns $(\chi, \chi^\ast)$. $m_{kv}$ is the overlap of $k$ "
        r"with $v^\ast$, $m_{vk}$ that of $v$ with $k^\ast$. $g$ acts on $\chi^\ast$ alone and "
        "changes none of this.",
    )


def risk(model: Model, fields: Step) -> Step:
    """The risk off the manifold: an average over the key fields alone."""
    slope, noise = _label(model)
    k = model.sectors[0]
    l = index("l")  # noqa: E741
    B, C = fields.conclusion["mean"], fields.conclusion["covariance"]

    def mean(row: int, position: Any) -> Any:
        return B[row, 0] * k.field(position) + B[row, 1] * k.teacher(position)

    gap = slope * mean(1, RELEVANT) - TokenSum(SIGMA(l) * mean(0, l), l)
    body = gap**2 - 2 * slope * C[0, 1] * SIGMA(RELEVANT) + C[0, 0] * TokenSum(SIGMA(l) ** 2, l)
    conclusion = {"risk": noise**2 + slope**2 * C[1, 1] + Expectation(body, model.random_symbols)}

    def check(c: Conclusion) -> CheckResult:
        reference = _ExactRisk(model, slope, noise)
        return compare(
            [(reference.formula(c["risk"], s), reference.direct(s)) for s in (0, 1)],
            "exact Gaussian moments of eight fields, two tokens, linear attention", 1e-25,
        )

    return Step(
        name="population risk",
        rule=r"$E(y - \sigma \cdot z)^2$, the value fields averaged at given key fields",
        premises=("value fields given key fields",),
        conclusion=conclusion,
        check=check,
        text="The average runs over the key fields of a sample.",
    )


class _ExactRisk:
    """Two tokens, ``sigma_l = 1/2 + chi_l/3``, plain Gaussian data: every moment is exact."""

    def __init__(self, model: Model, slope: Any, noise: Any) -> None:
        self.model, self.slope, self.noise = model, slope, noise
        k, v = model.sectors
        self.fields = [
            f(sp.Integer(p)) for p in (1, 2) for f in (k.field, k.teacher, v.field, v.teacher)
        ]
        self.flat = sp.symbols("h0:8")
        self.rule = dict(zip(self.fields, self.flat, strict=True))
        self.sigma = {
            SIGMA(sp.Integer(p)): sp.Rational(1, 2) + k.field(sp.Integer(p)) / 3 for p in (1, 2)
        }

    def point(self, seed: int) -> dict[Any, Any]:
        b = Blocks(self.model.sectors)
        symbols = {*b.M, *b.Q, *self.noise.free_symbols, *sp.sympify(self.slope).free_symbols}
        for s in self.model.sectors:
            symbols |= sp.sympify(s.rho).free_symbols
        found = random_point(symbols, seed + 11)
        return {
            s: (x / 5 if s in b.cross() else 2 + x if s.name.startswith("q_") else x)
            for s, x in found.items()
        }

    def mean(self, expr: Any, point: dict[Any, Any]) -> Any:
        k, v = self.model.sectors
        b = Blocks(self.model.sectors)
        M, Q = b.M, b.Q
        token = sp.Matrix([
            [Q[0, 0], M[0, 0], Q[0, 1], M[0, 1]], [M[0, 0], k.rho, M[1, 0], 0],
            [Q[0, 1], M[1, 0], Q[1, 1], M[1, 1]], [M[0, 1], 0, M[1, 1], v.rho],
        ]).xreplace(point)
        covariance = sp.Matrix(sp.kronecker_product(sp.eye(2), token))
        written = sp.expand(expr.xreplace(self.sigma).xreplace(self.rule).xreplace(point))
        return gaussian_mean(sp.Poly(written, *self.flat), covariance)

    def direct(self, seed: int, change: dict[Any, Any] | None = None) -> Any:
        v = self.model.readout
        prediction = write_out(self.model.prediction, 2)
        point = {**self.point(seed), **(change or {})}
        gap = self.slope * v.teacher(sp.Integer(1)) - prediction
        value = self.mean(gap**2, point) + (self.noise**2).xreplace(point)
        return evaluate(value, {})

    def formula(self, expr: Any, seed: int, change: dict[Any, Any] | None = None) -> Any:
        point = {**self.point(seed), **(change or {})}
        held = sp.sympify(expr).atoms(Expectation)
        numbers = {e: self.mean(write_out(e.body, 2), point) for e in held}
        return evaluate(sp.sympify(expr).xreplace(numbers), point)


def manifold(model: Model, full: Step) -> Step:
    """Cross overlaps at zero: the risk there, and its gradient in them, which vanishes."""
    slope, noise = _label(model)
    cross = [x for x in Blocks(model.sectors).cross() if x.name[0] in "mq" and "hat" not in x.name]
    zero = {x: sp.S.Zero for x in cross}
    expr = full.conclusion["risk"]

    def tidy(e: Any) -> Any:
        known: Any = sp.S.Zero
        averages: dict[Any, Any] = {}
        for term in sp.Add.make_args(sp.expand(e)):
            held = term.atoms(Expectation)
            if not held:
                known += term
                continue
            (average,) = held
            for part in sp.Add.make_args(sp.expand(expand_sums(average.body))):
                whole = Expectation(part, model.random_symbols)
                inner = next(iter(whole.atoms(Expectation)), sp.S.One)
                averages[inner] = averages.get(inner, 0) + term / average * whole / inner
        return sp.cancel(known) + sp.Add(*(sp.cancel(c) * a for a, c in averages.items()))

    conclusion = {"risk": tidy(expr.xreplace(zero))}
    for x in cross:
        conclusion[f"gradient_{x.name}"] = tidy(sp.diff(expr, x).xreplace(zero))

    def check(c: Conclusion) -> CheckResult:
        reference = _ExactRisk(model, slope, noise)
        pairs = [(reference.formula(c["risk"], 0, zero), reference.direct(0, zero))]
        for x in cross:
            h = sp.Rational(1, 10**6)
            ends = [reference.direct(0, {**zero, x: sign * h}) for sign in (1, -1)]
            mine = evaluate(sp.sympify(c[f"gradient_{x.name}"]), {})
            pairs.append((mine, (ends[0] - ends[1]) / mp.mpf("2e-6")))
        return compare(pairs, "exact risk at and next to the manifold", 1e-18)

    return Step(
        name="manifold",
        rule="the mean of the value fields is linear in the cross overlaps and enters squared, so "
        "that the gradient in them vanishes where they do",
        premises=("population risk",),
        conclusion=conclusion,
        check=check,
        text=r"Gradient flow that starts with zero cross overlaps keeps them zero: the flip "
        r"$(v, v^\ast) \to (-v, -v^\ast)$ leaves the risk unchanged and flips exactly them.",
    )


def best_value(model: Model, on_manifold: Step) -> Step:
    """The best value vector at given key overlaps."""
    _, noise = _label(model)
    v = model.readout
    held = sorted(on_manifold.conclusion["risk"].atoms(Expectation), key=sp.default_sort_key)
    names = {}
    for e in held:
        names[e] = S1 if e.body == SIGMA(RELEVANT) else S2
    form = on_manifold.conclusion["risk"].xreplace(names)
    # v = (m/rho) v* + rest; the rest only adds to q
    aligned = form.xreplace({v.q: v.m**2 / v.rho})
    (m,) = sp.solve(sp.diff(aligned, v.m), v.m)
    conclusion = {
        v.m.name: sp.factor(m),
        v.q.name: sp.factor(m**2 / v.rho),
        "excess_risk": sp.expand(sp.cancel(aligned.xreplace({v.m: m}) - noise**2)),
    }

    def check(c: Conclusion) -> CheckResult:
        point = random_point(
            {S1, S2} | set().union(*(sp.sympify(e).free_symbols for e in c.values()))
            | form.free_symbols, 3
        )
        at = {**point, v.m: c[v.m.name].xreplace(point), v.q: c[v.q.name].xreplace(point)}
        base = evaluate(form, at)
        pairs = [(evaluate(c["excess_risk"], point), base - evaluate(noise**2, point))]
        rho = evaluate(v.rho, point)
        pairs.append((evaluate(at[v.q], {}) * rho, evaluate(at[v.m], {}) ** 2))
        h = sp.Rational(1, 10**8)
        ends = [
            evaluate(form, {**at, v.m: at[v.m] + s * h, v.q: (at[v.m] + s * h) ** 2 / (
                sp.sympify(v.rho).xreplace(point))}) for s in (1, -1)
        ]
        pairs.append(((ends[0] - ends[1]) / mp.mpf("2e-8"), mp.mpf(0)))
        return compare(pairs, "stationarity and the value there", 1e-12)

    return Step(
        name="best value vector",
        rule="a quadratic form in the value vector; a part orthogonal to the teacher only adds to "
        "the risk",
        premises=("manifold",),
        conclusion=conclusion,
        check=check,
        text=r"$s_1 = E \sigma_\varepsilon$, $s_2 = E \sum_l \sigma_l^2$.",
    )


def score_exponent(model: Model) -> Any:
    """``u(l)`` with ``g(l, chi*) / g(m, chi*) = exp(u(l) - u(m))``; ``None`` if there is none."""
    k = model.sectors[0]
    if model.sampling_only:
        return None
    l = index("l")  # noqa: E741
    expr = sp.sympify(model.log_weight)
    weights = [w for w in outermost(expr, (TokenWeights,)) if w.position == RELEVANT]
    if weights:
        expr = expr.xreplace({sp.log(LENGTH * weights[0]): weights[0].at(RELEVANT)})
    expr = sp.expand(expr.xreplace({RELEVANT: l})).as_independent(l, as_Add=True)[1]
    if outermost(expr, (TokenWeights, TokenSum)) or not expr.has(k.teacher(l)):
        return None
    return expr


def posterior_step(model: Model) -> Step:
    """The posterior of the location given the fields, and the Bayes risk."""
    slope, _ = _label(model)
    v, k = model.readout, model.sectors[0]
    l = index("l")  # noqa: E741
    exponent = score_exponent(model)
    if exponent is None:
        p = sp.Function("p", positive=True)(l)
    else:
        p = LocationProbability(exponent, l, l)
    squares = Expectation(TokenSum(p**2, l), (*model.random_symbols, sp.Symbol("p")))
    conclusion = {"posterior": p, "bayes_excess": slope**2 * v.rho * (1 - squares)}

    def check(c: Conclusion) -> CheckResult:
        pairs: list[tuple[Any, Any]] = []
        places = [sp.Integer(q) for q in (1, 2, 3)]
        at = {k.teacher(q): sp.Rational(2 * int(q) - 3, 4) for q in places}
        at |= {sp.Function("p", positive=True)(q): sp.Rational(int(q), 6) for q in places}
        point = random_point(
            set().union(*(sp.sympify(e).free_symbols for e in c.values())) - {l}
            | sp.sympify(model.log_weight).free_symbols | sp.sympify(v.rho).free_symbols
            | sp.sympify(slope).free_symbols, 5
        )
        with mp.workdps(40):
            if exponent is None:
                weights = [evaluate(at[sp.Function("p", positive=True)(q)], {}) for q in places]
            else:
                logs = sp.sympify(model.log_weight)
                weights = [
                    evaluate(sp.exp(written_at(logs, q, 3)).xreplace(at), point) for q in places
                ]
            total = mp.fsum(weights)
            for q, w in zip(places, weights, strict=True):
                written = write_out(c["posterior"].xreplace({l: q}), 3).xreplace(at)
                pairs.append((evaluate(written, point), w / total))
            # E (z*_eps - sum p z*)^2 with z* independent of variance rho
            rest = 1 - mp.fsum((w / total) ** 2 for w in weights)
            held = c["bayes_excess"].atoms(Expectation)
            mine = c["bayes_excess"].xreplace({e: write_out(e.body, 3).xreplace(at) for e in held})
            scale = evaluate(sp.sympify(slope) ** 2 * v.rho, point)
            pairs.append((evaluate(mine, point), scale * rest))
            return compare(pairs, "three tokens written out")

    return Step(
        name="Bayes risk",
        rule=r"the location has posterior $p_l = g(l, \chi^\ast)/\sum_m g(m, \chi^\ast)$; the best "
        r"prediction is $\sum_l p_l z^\ast_l$",
        premises=(),
        conclusion=conclusion,
        check=check,
        text=r"$E (z^\ast_\varepsilon - \sum_l p_l z^\ast_l)^2 = \rho (1 - E \sum_l p_l^2)$, as "
        r"$\varepsilon$ has law $p$ given the fields. By Cauchy-Schwarz no $\sigma$ does better: "
        r"$s_1 = E \sum_l p_l \sigma_l$, so $s_1^2 \leq s_2 \, E \sum_l p_l^2$, with equality for "
        r"$\sigma \propto p$ alone.",
    )


def written_at(log_weight: Any, position: Any, length: int) -> Any:
    """``log g`` with the relevant token at a position, tokens written out."""
    stand_in = sp.Symbol("here", integer=True)
    moved = sp.sympify(log_weight).xreplace({RELEVANT: stand_in})
    return write_out(moved.xreplace({stand_in: position}), length)


def nishimori(model: Model, posterior: Step) -> Step | None:
    """Whether some key makes the activation the posterior; ``None`` without a density."""
    activation, k = model.activation, model.sectors[0]
    exponent = score_exponent(model)
    if activation is None or exponent is None:
        return None
    l = index("l")  # noqa: E741
    x, c = sp.Symbol("x", real=True), sp.Symbol("c", positive=True)
    wanted = exponent.xreplace({k.teacher(l): x})
    mine = sp.sympify(
        activation.log_weight if activation.normalised else sp.log(activation.expression)
    )
    scaled = mine.xreplace({activation.x: c * x})
    bend = sp.diff(mine, activation.x, 2)
    if sp.count_ops(bend) <= SIMPLIFIED:
        bend = sp.simplify(bend)
    conclusion: dict[str, Any] = {"bend": bend}
    if bend == 0 and sp.diff(wanted, x, 2) == 0:
        (scale,) = sp.solve(sp.diff(scaled - wanted, x), c)
        conclusion |= {
            "key_scale": scale,
            "attention": TokenWeights(scaled.xreplace({c: scale, x: k.teacher(l)}), l, l),
        }

    def check(found: Conclusion) -> CheckResult:
        point = random_point(
            (mine.free_symbols | wanted.free_symbols) - {activation.x, x}, 6
        )
        h = sp.Rational(1, 10**10)
        pairs = []
        for place in (sp.Rational(1, 3), sp.Rational(-4, 5)):
            values = [
                evaluate(mine, {**point, activation.x: place + s * h}, 60) for s in (1, 0, -1)
            ]
            with mp.workdps(60):
                second = (values[0] - 2 * values[1] + values[2]) / mp.mpf(10) ** -20
            pairs.append((
                evaluate(sp.sympify(found["bend"]), {**point, activation.x: place}), second
            ))
        if "attention" in found:
            p = posterior.conclusion["posterior"]
            at = {k.teacher(sp.Integer(q)): sp.Rational(5 - 3 * q, 4) for q in (1, 2, 3)}
            here = random_point(
                found["attention"].free_symbols | p.free_symbols
                | sp.sympify(found["key_scale"]).free_symbols, 6
            )
            for q in (1, 2, 3):
                first, second = (
                    evaluate(write_out(e.xreplace({l: sp.Integer(q)}), 3).xreplace(at), here)
                    for e in (found["attention"], p)
                )
                pairs.append((first, second))
            at_scale = sp.diff(scaled, x).xreplace({c: found["key_scale"]})
            pairs.append((evaluate(at_scale, {**here, x: sp.Rational(1, 7)}),
                          evaluate(sp.diff(wanted, x), {**here, x: sp.Rational(1, 7)})))
        return compare(pairs, "log-ratios of tokens, three tokens written out", 1e-12)

    return Step(
        name="Nishimori condition",
        rule=r"$\sigma \propto p$ needs $\log \sigma(c \chi_l) - \log \sigma(c \chi_m)$ equal to "
        r"the log-ratio of $g$, which is linear in the scores: the second derivative of "
        r"$\log \sigma$ must vanish",
        premises=("Bayes risk", "best value vector"),
        conclusion=conclusion,
        check=check,
        text=r"It does: the key $k = c\, k^\ast$ with $v = v^\ast$ is Bayes-optimal." if
        "key_scale" in conclusion else
        "It does not vanish: no key makes the activation the posterior, and the Bayes risk is not "
        "reached.",
    )


def _gaussian_moments(sigma: Any, x: Any) -> Any:
    """``E sigma(x)^n`` at ``x ~ N(mean, q)``, ``n = 1, 2``, as a function; ``None`` if not closed.

    Polynomials, and ``a + b erf(s + p x)`` with Owen's function for the second moment.
    """
    if sigma.is_polynomial(x):
        t = sp.Symbol("t", real=True)

        def polynomial(power: int, mean: Any, q: Any) -> Any:
            shifted = sp.expand((sigma**power).xreplace({x: mean + sp.sqrt(q) * t}))
            return sum(
                c * (sp.factorial2(n - 1) if n else 1) for (n,), c in sp.Poly(shifted, t).terms()
                if n % 2 == 0
            )

        return polynomial
    held = list(sigma.atoms(sp.erf))
    if len(held) != 1:
        return None
    inside, e = sp.expand(held[0].args[0]), sp.Dummy("e")
    flat = sigma.xreplace({held[0]: e})
    a, b, p = flat.xreplace({e: sp.S.Zero}), sp.diff(flat, e), sp.diff(inside, x)
    if e in b.free_symbols:
        return None
    if x in a.free_symbols | b.free_symbols | p.free_symbols:
        return None

    def error_function(power: int, mean: Any, q: Any) -> Any:
        centre = inside.xreplace({x: mean})
        first = sp.erf(centre / sp.sqrt(1 + 2 * p**2 * q))
        if power == 1:
            return a + b * first
        h = sp.sqrt(2) * centre / sp.sqrt(1 + 2 * p**2 * q)
        second = 1 - 8 * owens_t(h, 1 / sp.sqrt(1 + 4 * p**2 * q))
        return a**2 + 2 * a * b * first + b**2 * second

    return error_function


def closed_moments(model: Model) -> Step | None:
    """``s_1, s_2`` and the best risk where ``sigma`` is a polynomial and the weight a tilt."""
    from replica.derivation.bayes import smoothed_log_weight

    activation = model.activation
    k, v = model.sectors
    if activation is None or activation.expression is None or smoothed_log_weight(model) is None:
        return None
    x, sigma_at = activation.x, sp.sympify(activation.expression)
    moments = _gaussian_moments(sigma_at, x)
    if moments is None:
        return None
    slope, _ = _label(model)
    tilt = sp.diff(sp.sympify(model.log_weight), k.teacher(RELEVANT))

    def mean(power: int, shift: Any) -> Any:
        """``E sigma^power`` at a normal score of variance ``q``."""
        return moments(power, shift, k.q)

    shift = k.m * tilt  # tilting N(0, rho) by exp(a x) moves its mean by a rho
    s1 = sp.factor(mean(1, shift))
    s2 = mean(2, shift) + (LENGTH - 1) * mean(2, sp.S.Zero)
    s2 = sp.expand(s2) if sigma_at.is_polynomial(x) else s2
    conclusion = {"s_1": s1, "s_2": s2}
    aligned = {k.q: k.m**2 / k.rho}
    gain = (s1**2 / s2).xreplace(aligned)
    roots: list[Any] = []
    if gain.is_rational_function(k.m):
        stationary = sp.numer(sp.together(sp.diff(gain, k.m)))
        roots = [r for r in sp.solve(stationary, k.m) if sp.simplify(gain.xreplace({k.m: r})) != 0]
    if len(roots) == 1:
        conclusion["m_k"] = sp.factor(roots[0])
        excess = slope**2 * v.rho * (1 - gain.xreplace({k.m: roots[0]}))
        conclusion["excess_risk"] = sp.factor(sp.simplify(excess))

    def check(c: Conclusion) -> CheckResult:
        nodes, weights = np.polynomial.hermite_e.hermegauss(80)
        weights = weights / weights.sum()
        point = random_point(
            {s for e in c.values() for s in sp.sympify(e).free_symbols} - {LENGTH}
            | {k.m, k.q} | s2.free_symbols - {LENGTH}, 2
        )
        point[k.q] = 1 + point[k.m] ** 2
        numbers = {s: float(z) for s, z in point.items()}
        sigma = sp.lambdify(x, sigma_at.xreplace(
            {s: sp.Float(z) for s, z in numbers.items()}), ["scipy", "numpy"])
        # two tokens by quadrature over (chi*, noise), tilted by the model's weight
        rho = float(sp.sympify(k.rho).xreplace(point))
        star, noise = np.meshgrid(np.sqrt(rho) * nodes, nodes, indexing="ij")
        mass = np.outer(weights, weights)
        score = k.teacher(RELEVANT)
        log_g = sp.lambdify(
            sp.Symbol("score"), sp.sympify(model.log_weight).xreplace({score: sp.Symbol("score")})
            .xreplace({s: sp.Float(z) for s, z in numbers.items()}), "numpy"
        )
        tilted = mass * np.exp(log_g(star))
        m, q = numbers[k.m], numbers[k.q]
        chi = m / rho * star + np.sqrt(q - m * m / rho) * noise
        values = [
            float(np.sum(tilted * sigma(chi))),
            float(np.sum(tilted * sigma(chi) ** 2) + np.sum(mass * sigma(chi) ** 2)),
        ]
        at = {**point, LENGTH: sp.Integer(2)}
        pairs: list[tuple[Any, Any]] = [
            (float(sp.N(c[n].xreplace(at))), value)
            for n, value in zip(("s_1", "s_2"), values, strict=True)
        ]
        if "m_k" in c:
            best = {**at, k.m: c["m_k"].xreplace(at)}

            def risk_at(m_k: Any) -> float:
                here = {**best, k.m: m_k}
                here[k.q] = m_k**2 / sp.sympify(k.rho).xreplace(at)
                first, second = (c[n].xreplace(here) for n in ("s_1", "s_2"))
                return float((slope**2 * v.rho).xreplace(at) * (1 - first**2 / second))

            lowest = risk_at(best[k.m])
            pairs.append((float(c["excess_risk"].xreplace(at)), lowest))
            h = sp.Rational(1, 10**4)
            pairs.append((risk_at(best[k.m] + h) - risk_at(best[k.m] - h), 0.0))
        return compare(pairs, "quadrature over two tokens, and stationarity", 1e-9)

    return Step(
        name="closed moments",
        rule="Gaussian moments of the activation; exponential tilting shifts the mean of the "
        "relevant score",
        premises=("best value vector",),
        conclusion=conclusion,
        check=check,
        text=r"$s_1, s_2$ for any overlaps of the key; the best key is aligned with the teacher.",
    )
