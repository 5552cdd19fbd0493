"""The Bayes-optimal learner: free entropy, state evolution, test error.

The posterior's replicas and the teacher are ``n + 1`` equivalent copies (Nishimori), so one
off-diagonal overlap ``q`` per sector describes them all. The engine knows the law of a sample from
the model: ``(1/L) sum_l g(l, chi) p(y | z_l)``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import mpmath as mp
import numpy as np
import sympy as sp
from sympy.core.function import AppliedUndef

from replica.derivation.bayes_checks import BayesToy
from replica.derivation.free_energy import REPLICAS, average_over, weight_symbol
from replica.derivation.numeric import compare, evaluate, random_point
from replica.derivation.saddle_point import linear_channel, replace_field
from replica.derivation.step import CheckResult, Conclusion, Step
from replica.errors import DerivationError
from replica.model import LABEL, NOISE, RATIO, Model, Sector
from replica.symbolic.averages import Expectation
from replica.symbolic.replicas import ReplicaMatrix
from replica.symbolic.tokens import (
    LENGTH,
    RELEVANT,
    Centred,
    LocationProbability,
    TokenSum,
    TokenWeights,
    index,
    outermost,
    write_out,
)

LOG_G = sp.Function("logG", real=True)
"""``log G(l)`` where the smoothed weight has no closed form."""
SCORE = sp.Function("score", real=True)
"""``score(l, m) = d log G_l / d omega_m``."""
WEIGHT = sp.Function("g", positive=True)


def _amplitude(model: Model) -> Any:
    """Amplitude of the label noise; the label is the relevant value field beside it."""
    found = linear_channel(model)
    if found is None or found[0] != 1 or found[1] == 0 or found[1].atoms(AppliedUndef):
        raise DerivationError(
            f"model {model.name}: the Bayes-optimal chain needs the relevant value field with "
            "additive Gaussian noise as the label"
        )
    return found[1]


def _normal_density(gap: Any, variance: Any) -> Any:
    return sp.exp(-(gap**2) / (2 * variance)) / sp.sqrt(2 * sp.pi * variance)


def posterior(model: Model) -> Step:
    """One sample's likelihood and one coordinate's prior."""
    if len(model.sectors) != 2:
        raise DerivationError("the Bayes-optimal chain needs a key and a value sector")
    k, v = model.sectors
    l = index("l")  # noqa: E741
    amplitude = _amplitude(model)
    if model.sampling_only:
        weight = WEIGHT(l)
    else:
        weight = replace_field(sp.exp(model.log_weight).xreplace({RELEVANT: l}), k.teacher, k.field)
    density = _normal_density(LABEL - v.field(l), amplitude**2)
    conclusion = {
        "likelihood": TokenSum(weight * density, l) / LENGTH,
        "coordinate": sum((-weight_symbol(s) ** 2 / (2 * s.rho) for s in model.sectors), sp.S.Zero),
    }

    def check(c: Conclusion) -> CheckResult:
        pairs = []
        places = [sp.Integer(1), sp.Integer(2)]
        fields = {f(p): sp.Rational(2 * int(p) + j, 5) for p in places
                  for j, f in enumerate((k.field, v.field))}
        fields |= {WEIGHT(p): sp.Rational(int(p), 3) for p in places}
        point = random_point(
            (write_out(c["likelihood"], 2).free_symbols | amplitude.free_symbols) - {LABEL}, 1
        )
        written = write_out(c["likelihood"], 2).xreplace(fields).xreplace(point)
        given = [
            evaluate(write_out(weight.xreplace({l: p}), 2).xreplace(fields), point) / 2
            for p in places
        ]
        with mp.workdps(20):
            density = sp.lambdify(LABEL, written, "mpmath")
            grid = [-30, -3, 0, 3, 30]
            total = mp.quad(density, grid)
            mean = mp.quad(lambda y: y * density(y), grid)
            square = mp.quad(lambda y: y * y * density(y), grid)
            values = [evaluate(v.field(p).xreplace(fields), {}) for p in places]
            noise = evaluate(amplitude, point) ** 2
        pairs.append((total, mp.fsum(given)))
        pairs.append((mean, mp.fsum(g * z for g, z in zip(given, values, strict=True))))
        pairs.append((square, mp.fsum(
            g * (z * z + noise) for g, z in zip(given, values, strict=True)
        )))
        for s in model.sectors:
            curvature = sp.diff(c["coordinate"], weight_symbol(s), 2)
            here = random_point(sp.sympify(s.rho).free_symbols, 1)
            pairs.append((evaluate(-1 / curvature, here), evaluate(s.rho, here)))
        rest = c["coordinate"].xreplace({weight_symbol(s): sp.S.Zero for s in model.sectors})
        pairs.append((evaluate(rest, {}), mp.mpf(0)))
        return compare(pairs, "moments of the label and variance of the prior", 1e-12)

    return Step(
        name="replicated posterior",
        rule=r"$E Z^n$ with $Z$ the evidence: the teacher and $n$ replicas of the posterior are "
        "$n + 1$ equivalent copies (Nishimori)",
        premises=(),
        conclusion=conclusion,
        check=check,
        text="Likelihood of one sample, averaged over the hidden location, and log prior of one "
        "coordinate.",
        assumption=r"the moments at integer $n$ are continued to $n \to 0$ (not rigorous)",
    )


def ansatz(model: Model) -> Step:
    """``Q_ab = q`` off the diagonal, ``rho`` on it; multipliers ``qhat`` off it, 0 on it."""
    n = REPLICAS
    conclusion: dict[str, Any] = {}
    constraint: Any = sp.S.Zero
    for s in model.sectors:
        overlap = ReplicaMatrix(sp.ImmutableMatrix([[s.rho - s.q]]), sp.ImmutableMatrix([[s.q]]))
        multiplier = ReplicaMatrix(
            sp.ImmutableMatrix([[-s.q_hat]]), sp.ImmutableMatrix([[s.q_hat]])
        )
        constraint -= multiplier.trace_product(overlap, n + 1) / 2
        conclusion[f"single_{s.name}"] = 1 / sp.sympify(s.rho) - multiplier.single[0, 0]
        conclusion[f"common_{s.name}"] = -multiplier.common[0, 0]
    conclusion["constraint"] = sp.factor(sp.expand(constraint))

    def check(c: Conclusion) -> CheckResult:
        pairs = []
        for copies in (2, 3):
            symbols = {x for s in model.sectors for x in (s.q, s.q_hat)}
            point = random_point(symbols | set().union(
                *(sp.sympify(s.rho).free_symbols for s in model.sectors)
            ), copies)
            direct: Any = sp.S.Zero
            for s in model.sectors:
                off = sp.ones(copies) - sp.eye(copies)
                Q, Qt = s.rho * sp.eye(copies) + s.q * off, s.q_hat * off
                direct -= (Q * Qt).trace() / 2
                form = sp.eye(copies) / s.rho - Qt
                mine = ReplicaMatrix(
                    sp.ImmutableMatrix([[c[f"single_{s.name}"]]]),
                    sp.ImmutableMatrix([[c[f"common_{s.name}"]]]),
                ).explicit(copies)
                pairs += [
                    (evaluate(x, point), evaluate(y, point))
                    for x, y in zip(mine, form, strict=True)
                ]
            pairs.append((
                evaluate(c["constraint"].subs(n, copies - 1), point), evaluate(direct, point)
            ))
        return compare(pairs, "explicit matrices of two and three copies")

    return Step(
        name="Nishimori ansatz",
        rule="all copies are equivalent: one overlap between any two, the prior's variance on the "
        "diagonal",
        premises=("replicated posterior",),
        conclusion=conclusion,
        check=check,
        text=r"The diagonal multipliers vanish: that of the teacher does, because the law of a "
        r"sample is normalised for every $|k|^2/D$ (the $g/c$ of the model), and all copies are "
        r"alike. The quadratic form of one coordinate is "
        r"$A_{single} I_{n+1} + A_{common} 11^T$.",
        assumption="replica symmetry, which holds for a matched posterior in equilibrium; saddle "
        "point at large $D$",
    )


def weight_integral(model: Model, symmetric: Step) -> Step:
    """Gaussian integral over ``n + 1`` copies of a coordinate."""
    total: Any = sp.S.Zero
    for s in model.sectors:
        A = ReplicaMatrix(
            sp.ImmutableMatrix([[symmetric.conclusion[f"single_{s.name}"]]]),
            sp.ImmutableMatrix([[symmetric.conclusion[f"common_{s.name}"]]]),
        )
        total -= (REPLICAS + 1) * sp.log(s.rho) / 2 + A.log_determinant(REPLICAS + 1) / 2

    def check(c: Conclusion) -> CheckResult:
        pairs = []
        for copies in (2, 3):
            point = random_point(c["log_weights"].free_symbols - {REPLICAS}, copies)
            point |= {s.q_hat: abs(point[s.q_hat]) / 20 for s in model.sectors}
            direct: Any = sp.S.Zero
            for s in model.sectors:
                off = sp.ones(copies) - sp.eye(copies)
                form = (sp.eye(copies) / s.rho - s.q_hat * off).xreplace(point)
                rho = sp.sympify(s.rho).xreplace(point)
                direct -= (copies * sp.log(rho) + sp.log(form.det())) / 2
            pairs.append((
                evaluate(c["log_weights"].subs(REPLICAS, copies - 1), point), evaluate(direct, {})
            ))
        return compare(pairs, "explicit determinants of two and three copies")

    return Step(
        name="weight integral",
        rule="Gaussian integral with the prior; the eigenvalues of $11^T$ give the determinant for "
        "any $n$",
        premises=("Nishimori ansatz",),
        conclusion={"log_weights": total},
        check=check,
    )


def no_replicas(model: Model, symmetric: Step, integral: Step) -> Step:
    """Derivatives at ``n = 0``."""
    def slope(expr: Any) -> Any:
        return sp.simplify(sp.diff(expr, REPLICAS).subs(REPLICAS, 0))

    logs = sp.diff(integral.conclusion["log_weights"], REPLICAS).subs(REPLICAS, 0)
    tidy: Any = sp.S.Zero
    for s in model.sectors:
        others = {t.q_hat: sp.S.Zero for t in model.sectors if t != s}
        part = logs.xreplace(others) - logs.xreplace({**others, s.q_hat: sp.S.Zero})
        joined = sp.logcombine(sp.simplify(part), force=True)
        tidy += joined.replace(
            lambda e: isinstance(e, sp.log), lambda e: sp.expand_log(sp.log(sp.factor(e.args[0])))
        )
    conclusion = {"constraint": slope(symmetric.conclusion["constraint"]), "weights": tidy}

    def check(c: Conclusion) -> CheckResult:
        tiny = sp.Rational(1, 10**25)
        everything = symmetric.conclusion["constraint"], integral.conclusion["log_weights"]
        point = random_point(
            set().union(*(e.free_symbols for e in everything)) - {REPLICAS}, 2
        )
        point |= {s.q_hat: abs(point[s.q_hat]) for s in model.sectors}
        pairs = [
            (evaluate(c[name], point), evaluate(e.subs(REPLICAS, tiny) / tiny, point, 60))
            for name, e in zip(("constraint", "weights"), everything, strict=True)
        ]
        return compare(pairs, "difference quotient at n = 1e-25")

    return Step(
        name="no replicas: weights",
        rule="derivative at $n = 0$",
        premises=("Nishimori ansatz", "weight integral"),
        conclusion=conclusion,
        check=check,
        assumption="continuation in $n$ to 0 and its exchange with the limit of large $D$",
    )


def smoothed_log_weight(model: Model) -> Any:
    """``log E_t g(l, omega + sqrt(rho - q) t)`` at token ``l`` where ``g`` is the exponential of a
    linear form in that token's field; ``None`` elsewhere."""
    k = model.sectors[0]
    if model.sampling_only:
        return None
    l = index("l")  # noqa: E741
    expr = sp.expand(sp.sympify(model.log_weight).xreplace({RELEVANT: l}))
    fields = expr.atoms(AppliedUndef)
    if outermost(expr, (TokenSum, TokenWeights, Centred)) or fields - {k.teacher(l)}:
        return None
    slope = sp.diff(expr, k.teacher(l))
    if slope.atoms(AppliedUndef):
        return None
    shifted = expr.xreplace({k.teacher(l): k.cavity(l)})
    return sp.expand(shifted + slope**2 * (k.rho - k.q) / 2)


def channel_step(model: Model) -> Step:
    """``Z_out``: the likelihood averaged over what one copy does not know of its fields."""
    _k, v = model.sectors
    l = index("l")  # noqa: E741
    amplitude = _amplitude(model)
    closed = smoothed_log_weight(model)
    log_G = LOG_G(l) if closed is None else closed
    variance = sp.sympify(v.rho) - v.q + amplitude**2
    density = _normal_density(LABEL - v.cavity(l), variance)
    conclusion = {
        "log_G": log_G,
        "variance": variance,
        "channel": TokenSum(sp.exp(log_G) * density, l) / LENGTH,
    }

    @cache
    def exact() -> tuple[dict[Any, Any], list[Any], Any, Any]:
        """Two tokens: the weight smoothed by quadrature, the label's density convolved."""
        toy = BayesToy(model, closed is not None)
        omega = [np.array([0.4]), np.array([-0.7])]
        q = toy.values[toy.k.q]
        G = [float(toy.smoothed(p, omega, q)[0]) for p in range(2)]
        values = {
            toy.k.cavity(sp.Integer(p + 1)): sp.Float(float(omega[p][0])) for p in range(2)
        }
        values |= {v.cavity(sp.Integer(1)): sp.Float(0.9), v.cavity(sp.Integer(2)): sp.Float(-0.3)}
        values |= {LOG_G(sp.Integer(p + 1)): sp.log(sp.Float(G[p])) for p in range(2)}
        numbers = {s: sp.Float(x) for s, x in toy.values.items()} | {LABEL: sp.Float(0.55)}
        width = toy.rho[v.name] - toy.values[v.q]
        noise = float(amplitude.xreplace(numbers))
        with mp.workdps(20):
            total = mp.mpf(0)
            for p, centre in enumerate((0.9, -0.3)):
                def inside(t: Any, centre: float = centre) -> Any:
                    gap = 0.55 - centre - t
                    return mp.exp(-t * t / (2 * width) - gap * gap / (2 * noise**2))
                total += G[p] * mp.quad(inside, [-9, -1, 0, 1, 9]) / (
                    2 * mp.pi * noise * mp.sqrt(width) * 2
                )
        return values | numbers, [mp.log(g) for g in G], total, width + noise**2

    def check(c: Conclusion) -> CheckResult:
        values, logs, total, spread = exact()
        pairs = [
            (evaluate(write_out(c["log_G"].xreplace({l: sp.Integer(p + 1)}), 2), values), number)
            for p, number in enumerate(logs)
        ]
        pairs.append((evaluate(write_out(c["channel"], 2), values), total))
        pairs.append((evaluate(c["variance"], values), mp.mpf(spread)))
        return compare(pairs, "quadrature over the unknown part of the fields", 1e-9)

    return Step(
        name="channel",
        rule=r"given the field $\omega$ that all copies share, each copy has its own Gaussian part "
        r"of variance $\rho - q$; Gaussian integrals where they close",
        premises=("replicated posterior", "Nishimori ansatz"),
        conclusion=conclusion,
        check=check,
        text=r"$G_l(\omega) = E_t \, g(l, \omega + \sqrt{\rho - q}\, t)$; the channel is "
        r"$Z_{\mathrm{out}} = (1/L) \sum_l G_l \, p(y | \omega^v_l)$.",
    )


def data_term(model: Model, channel: Step) -> Step:
    """``d/dn`` at 0 of ``alpha log int dy E Z_out^(n+1)``."""
    logarithm = sp.log(channel.conclusion["channel"])
    z = sp.Symbol("Z_out", positive=True)
    slope = sp.diff(z ** (REPLICAS + 1), REPLICAS).subs(REPLICAS, 0) / z  # under the law's Z_out
    body = slope.xreplace({sp.log(z): logarithm})
    conclusion = {"data": RATIO * Expectation(body, _random(model))}

    def check(c: Conclusion) -> CheckResult:
        # three outcomes with base weights p and Z, sum p Z = 1: the law's probabilities are p Z
        base = [sp.Rational(1, 2), sp.Rational(1, 3), sp.Rational(1, 4)]
        sums = [sp.Rational(2, 3), sp.Rational(5, 4), sp.Rational(1)]
        total = sum(p * s for p, s in zip(base, sums, strict=True))
        sums = [s / total for s in sums]
        tiny = sp.Rational(1, 10**25)
        point = random_point([RATIO])
        moment = sp.Add(*(p * s ** (1 + tiny) for p, s in zip(base, sums, strict=True)))
        direct = evaluate(RATIO * sp.log(moment) / tiny, point, digits=60)
        mine = average_over(c["data"], [
            (p * s, {logarithm: sp.log(s)}) for p, s in zip(base, sums, strict=True)
        ])
        return compare([(evaluate(mine, point), direct)], "three-outcome toy at n = 1e-25")

    return Step(
        name="no replicas: data",
        rule=r"derivative at $n = 0$ of $\int dy\, E_\omega Z_{\mathrm{out}}^{n+1}$; the copy that "
        "is left over is the law of the data",
        premises=("channel",),
        conclusion=conclusion,
        check=check,
        text=r"$E$ is the average over $\omega$ and over $y$ with density $Z_{\mathrm{out}}$; "
        r"$\alpha = N/D$.",
        assumption="continuation in $n$ to 0",
    )


def _random(model: Model) -> tuple[sp.Symbol, ...]:
    return (*model.random_symbols, sp.Symbol("logG"), sp.Symbol("score"))


def free_entropy(model: Model, weights: Step, data: Step, symmetric: Step, integral: Step) -> Step:
    """``Phi`` per dimension."""
    conclusion = {"Phi": sp.Add(
        *sp.Add.make_args(sp.expand(weights.conclusion["constraint"])),
        *sp.Add.make_args(weights.conclusion["weights"]), data.conclusion["data"],
    )}
    (term,) = data.conclusion["data"].atoms(Expectation)

    @cache
    def quadrature() -> tuple[BayesToy, float]:
        """The free entropy with its average taken from the definitions."""
        toy = BayesToy(model, not term.has(LOG_G))
        average = toy.free_entropy(toy.values[model.sectors[0].q], toy.values[model.readout.q])
        rest = symmetric.conclusion["constraint"] + integral.conclusion["log_weights"]
        slope = sp.diff(rest, REPLICAS).subs(REPLICAS, 0)
        numbers = {s: sp.Float(x) for s, x in toy.values.items()}
        return toy, float(slope.xreplace(numbers)) + toy.values[RATIO] * average

    def check(c: Conclusion) -> CheckResult:
        tiny = sp.Rational(1, 10**25)
        (average,) = c["Phi"].atoms(Expectation)
        everything = symmetric.conclusion["constraint"] + integral.conclusion["log_weights"]
        point = random_point((everything.free_symbols | {RATIO}) - {REPLICAS}, 3)
        point |= {s.q_hat: abs(point[s.q_hat]) for s in model.sectors}
        entropy = sp.Rational(7, 5)
        # a data moment whose derivative at n = 0 is the given number
        replicated = everything + RATIO * entropy * REPLICAS
        direct = evaluate(replicated.subs(REPLICAS, tiny) / tiny, point, 60)
        mine = evaluate(c["Phi"].xreplace({average: entropy}), point)
        toy, number = quadrature()
        both = toy.average(c["Phi"]), number
        result = compare([(mine, direct)], "replicated exponent at n = 1e-25")
        close = compare([both], "and the average of two tokens by quadrature", 1e-9)
        return CheckResult(result.passed and close.passed, f"{result.detail}; {close.detail}")

    return Step(
        name="free entropy",
        rule="derivative at $n = 0$ of the exponent per dimension",
        premises=("no replicas: weights", "no replicas: data"),
        conclusion=conclusion,
        check=check,
    )


def overlap_equations(model: Model, entropy: Step) -> Step:
    """Stationarity in the multipliers."""
    Phi = entropy.conclusion["Phi"]
    held = {e: sp.S.Zero for e in Phi.atoms(Expectation)}
    bare = Phi.xreplace(held)
    conclusion = {}
    for s in model.sectors:
        (value,) = sp.solve(sp.diff(bare, s.q_hat), s.q)
        conclusion[s.q.name] = sp.factor(value)

    def check(c: Conclusion) -> CheckResult:
        pairs = []
        for s in model.sectors:
            point = random_point(bare.free_symbols, 2)
            point |= {t.q_hat: abs(point[t.q_hat]) for t in model.sectors}
            point[s.q] = c[s.q.name].xreplace(point)
            h = sp.Rational(1, 10**10)
            ends = [
                evaluate(bare, {**point, s.q_hat: point[s.q_hat] + sign * h}, 40)
                for sign in (1, -1)
            ]
            pairs.append(((ends[0] - ends[1]) / mp.mpf("2e-10"), mp.mpf(0)))
        return compare(pairs, "numerical gradient in the multipliers", 1e-12)

    return Step(
        name="overlap equations",
        rule="stationarity in the multipliers",
        premises=("free entropy",),
        conclusion=conclusion,
        check=check,
    )


def heat_lemma() -> Step:
    """``d/dq E_omega[Z log Z] = E_omega[|grad Z|^2/Z]/2``, one field."""
    w, q = sp.symbols("omega q", real=True)
    Z = sp.Function("Z", positive=True)(w, q)
    # omega ~ N(0, q): d/dq E F = E F''/2 + E dF/dq
    # Z is an average over N(0, rho - q): dZ/dq = -Z''/2
    F = Z * sp.log(Z)
    total = sp.diff(F, w, 2) / 2 + sp.diff(F, q)
    total = total.subs(sp.Derivative(Z, q), -sp.Derivative(Z, (w, 2)) / 2).doit()
    slope = sp.simplify(total)
    conclusion = {"slope": slope}

    def check(c: Conclusion) -> CheckResult:
        # Z = exp(a w - a^2 q/2) + exp(-b w - b^2 q/2)/2 obeys the heat equation
        a, b = sp.Rational(3, 5), sp.Rational(2, 7)
        explicit = sp.exp(a * w - a**2 * q / 2) + sp.exp(-b * w - b**2 * q / 2) / 2
        with mp.workdps(30):
            def average(expr: Any, at: Any) -> Any:
                function = sp.lambdify((w, q), expr, "mpmath")
                scale = mp.sqrt(at)
                return mp.quad(
                    lambda t: function(scale * t, at) * mp.npdf(t), [-14, -3, 0, 3, 14]
                )
            mine = c["slope"].subs(Z, explicit).doit()
            at, h = mp.mpf("0.6"), mp.mpf("1e-8")
            entropy = explicit * sp.log(explicit)
            direct = (average(entropy, at + h) - average(entropy, at - h)) / (2 * h)
            return compare([(average(mine, at), direct)], "a mixture by quadrature", 1e-12)

    return Step(
        name="growth of the entropy",
        rule=r"$\partial_q E_{\omega} F = E F''/2 + E \partial_q F$ for "
        r"$\omega \sim N(0, q)$, and $\partial_q Z = -Z''/2$ for an average over "
        r"$N(0, \rho - q)$",
        premises=("channel",),
        conclusion=conclusion,
        check=check,
        text=r"For $F = Z \log Z$ all terms but one cancel; divided by the law's density $Z$ it is "
        r"$(\partial \log Z)^2/2$.",
    )


def conjugate_equations(model: Model, entropy: Step, channel: Step, growth: Step) -> Step:
    """``qhat = alpha E |grad log Z_out|^2``, the gradient through the posterior weights."""
    l, m = index("l"), index("m")  # noqa: E741
    Phi = entropy.conclusion["Phi"]
    k, v = model.sectors
    log_G, variance = channel.conclusion["log_G"], channel.conclusion["variance"]
    closed = not log_G.has(LOG_G)
    exponent = _varying(log_G, l) - (LABEL - v.cavity(l)) ** 2 / (2 * variance)
    p = LocationProbability(exponent, l, l)
    w = sp.Symbol("omega", real=True)
    Z = sp.Function("Z", positive=True)(w, sp.Symbol("q", real=True))
    # the lemma's slope as a multiple of Z (d log Z)^2
    ratio = sp.simplify(growth.conclusion["slope"] * Z / sp.Derivative(Z, w) ** 2)
    if ratio.free_symbols:
        raise DerivationError("the growth of the entropy is no square")
    conclusion: dict[str, Any] = {}
    held = {e: sp.S.Zero for e in Phi.atoms(Expectation)}
    for s in model.sectors:
        if s == k and not closed:
            gradient = TokenSum(p * SCORE(l, m), l)
            square = TokenSum(gradient**2, m)
        else:
            score = sp.diff(exponent, s.cavity(l))
            square = TokenSum(sp.factor(score**2) * p**2, l)
        slope = sp.diff(Phi.xreplace(held), s.q)  # -qhat/2
        coefficient = sp.diff(slope, s.q_hat)
        average = Expectation(square, _random(model))
        conclusion[s.q_hat.name] = sp.expand(-ratio / coefficient) * RATIO * average

    @cache
    def exact() -> tuple[BayesToy, dict[str, float]]:
        toy = BayesToy(model, closed)
        return toy, {s.q_hat.name: toy.slope(s.name) for s in model.sectors}

    def check(c: Conclusion) -> CheckResult:
        toy, slopes = exact()
        pairs = [(toy.average(c[n]), slopes[n]) for n in slopes]
        return compare(pairs, "free entropy of two tokens by quadrature, differentiated", 1e-5)

    return Step(
        name="conjugate equations",
        rule=r"stationarity in the overlaps with the growth of the entropy; the gradient of "
        r"$\log \sum_l e^{u_l}$ is the weight $p_l = e^{u_l}/\sum_m e^{u_m}$ times that of $u_l$",
        premises=("free entropy", "growth of the entropy", "channel"),
        conclusion=conclusion,
        check=check,
        text=r"$p_l \propto G_l\, p(y | \omega^v_l)$ is the posterior probability of the hidden "
        "location given fields and label.",
    )


def _varying(exponent: Any, l: Any) -> Any:  # noqa: E741
    """The terms that differ between tokens; the others cancel in normalised weights."""
    return exponent.as_independent(l, as_Add=True)[1]


def law_step(model: Model, channel: Step) -> Step:
    """The law of cavity fields and label, the relevant token chosen first."""
    l = index("l")  # noqa: E741
    k, v = model.sectors
    log_G, variance = channel.conclusion["log_G"], channel.conclusion["variance"]
    closed = not log_G.has(LOG_G)
    noise = sp.sqrt(k.q) * k.noise(l)
    conclusion: dict[str, Any] = {}
    if closed:
        slope = sp.diff(log_G, k.cavity(l))
        conclusion["omega_k"] = slope * k.q * sp.KroneckerDelta(RELEVANT, l) + noise
    else:
        conclusion["omega_k"] = noise
        conclusion["density"] = TokenSum(sp.exp(LOG_G(l)), l) / LENGTH
    conclusion["omega_v"] = sp.sqrt(v.q) * v.noise(l)
    conclusion["y"] = v.cavity(RELEVANT) + sp.sqrt(variance) * NOISE

    @cache
    def exact() -> tuple[BayesToy, dict[str, float]]:
        toy = BayesToy(model, closed)
        return toy, toy.moments()

    def check(c: Conclusion) -> CheckResult:
        toy, moments = exact()
        numbers = {s: sp.Float(x) for s, x in toy.values.items()}
        pairs: list[tuple[Any, Any]] = [(moments["total"], 1.0)]
        for p in range(2) if closed else ():
            here = {l: sp.Integer(p + 1), RELEVANT: sp.Integer(1)}
            expr = c["omega_k"].xreplace(here).doit()
            spread = float(sp.diff(expr, k.noise(sp.Integer(p + 1))).xreplace(numbers))
            mean = float(expr.xreplace({k.noise(sp.Integer(p + 1)): sp.S.Zero}).xreplace(numbers))
            pairs += [(mean, moments[f"mean{p}"]), (mean**2 + spread**2, moments[f"square{p}"])]
        for s, name in ((k, "omega_k"), (v, "omega_v")):
            amplitude = sp.diff(c[name], s.noise(l))
            rest = c[name].xreplace({s.noise(l): sp.S.Zero})
            rest = rest.xreplace({sp.KroneckerDelta(RELEVANT, l): sp.S.Zero})
            pairs.append((float((amplitude**2).xreplace(numbers)), toy.values[s.q]))
            pairs.append((float(rest.xreplace(numbers)), 0.0))
        gap = c["y"] - v.cavity(RELEVANT)
        amplitude = sp.diff(gap, NOISE)
        pairs.append((float((amplitude**2).xreplace(numbers)),
                      toy.rho[v.name] - toy.values[v.q] + float(noise_of(model, numbers)) ** 2))
        pairs.append((float(sp.expand(gap - amplitude * NOISE).xreplace(numbers)), 0.0))
        if not closed:
            ones = {LOG_G(sp.Integer(p)): sp.log(sp.Integer(p) + 1) for p in (1, 2)}
            pairs.append((float(write_out(c["density"], 2).xreplace(ones)), 2.5))
        return compare(pairs, "moments under the tilted law by quadrature", 1e-9)

    return Step(
        name="law of the fields",
        rule="the law's density relative to independent normals is $(1/L) \\sum_l G_l$ for the "
        "keys; the relevant token is drawn with probability $G_l/\\sum_m G_m$"
        + ("; exponential tilting shifts the mean of a normal" if closed else ""),
        premises=("channel",),
        conclusion=conclusion,
        check=check,
        text="By permutation equivariance the relevant token may be put first.",
    )


def noise_of(model: Model, numbers: dict[Any, Any]) -> Any:
    """The amplitude of the label noise as a number."""
    return _amplitude(model).xreplace(numbers)


def prediction_step(model: Model, channel: Step) -> Step:
    """The posterior mean for a fresh sample and its error."""
    l = index("l")  # noqa: E741
    v: Sector = model.readout
    log_G = channel.conclusion["log_G"]
    amplitude = _amplitude(model)
    P = LocationProbability(_varying(log_G, l), l, l)
    overlap = Expectation(TokenSum(P**2, l), _random(model))
    # E(z_eps - sum_l P_l omega_l)^2 with z = omega + noise and P(eps = l | fields) = P_l
    cross = own = v.q * overlap
    conclusion = {
        "prediction": TokenSum(P * v.cavity(l), l),
        "test_error": sp.sympify(v.rho) + amplitude**2 - 2 * cross + own,
    }

    @cache
    def exact() -> tuple[BayesToy, float]:
        toy = BayesToy(model, not log_G.has(LOG_G))
        return toy, toy.prediction_error()

    def check(c: Conclusion) -> CheckResult:
        toy, error = exact()
        pairs = [(toy.average(c["test_error"]), error)]
        at = {v.cavity(sp.Integer(p)): sp.Rational(3 * p - 4, 2) for p in (1, 2)}
        at |= {LOG_G(sp.Integer(p)): sp.log(sp.Integer(p)) for p in (1, 2)}
        k = model.sectors[0]
        at |= {k.cavity(sp.Integer(p)): sp.Rational(p, 3) for p in (1, 2)}
        point = random_point(log_G.free_symbols - {l}, 4)
        weights = [
            evaluate(sp.exp(log_G.xreplace({l: sp.Integer(p)})).xreplace(at), point) for p in (1, 2)
        ]
        values = [evaluate(at[v.cavity(sp.Integer(p))], {}) for p in (1, 2)]
        mean = mp.fsum(
            w * z for w, z in zip(weights, values, strict=True)
        ) / mp.fsum(weights)
        mine = evaluate(write_out(c["prediction"], 2).xreplace(at), point)
        pairs.append((mine, mean))
        # three tokens: with two, weights turned upside down have the same squares
        three = {LOG_G(sp.Integer(p)): sp.log(sp.Integer(p)) for p in (1, 2, 3)}
        three |= {k.cavity(sp.Integer(p)): sp.Rational(p, 3) for p in (1, 2, 3)}
        logs = [evaluate(log_G.xreplace({l: sp.Integer(p)}).xreplace(three), point)
                for p in (1, 2, 3)]
        total = mp.fsum(mp.exp(u) for u in logs)
        squares = mp.fsum((mp.exp(u) / total) ** 2 for u in logs)
        held = c["test_error"].atoms(Expectation)
        written = c["test_error"].xreplace({
            e: write_out(e.body, 3).xreplace(three) for e in held
        })
        here = random_point(written.free_symbols | {v.q}, 4)
        known = sp.sympify(v.rho) + amplitude**2
        pairs.append((
            evaluate(written, {**here, **point}),
            evaluate(known, {**here, **point}) - squares * evaluate(v.q, {**here, **point}),
        ))
        return compare(pairs, "error of the posterior mean of two tokens by quadrature", 1e-9)

    return Step(
        name="test error",
        rule=r"the posterior mean of $z_\varepsilon$ is $\sum_l P_l \omega^v_l$ with "
        r"$P_l = G_l/\sum_m G_m$; $P(\varepsilon = l | \omega) = P_l$ (Nishimori)",
        premises=("channel", "law of the fields"),
        conclusion=conclusion,
        check=check,
        text="The label of a fresh sample is not seen.",
    )
