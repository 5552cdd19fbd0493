"""Limits: strong signal, long sequences, many samples."""

from __future__ import annotations

from functools import cache
from typing import Any

import mpmath as mp
import sympy as sp

from replica.derivation.bayes import smoothed_log_weight
from replica.derivation.numeric import compare, evaluate, random_point
from replica.derivation.reduction import put_explicit
from replica.derivation.saddle_point import replace_field
from replica.derivation.step import CheckResult, Conclusion, Step
from replica.model import LABEL, SIGNAL, Model
from replica.symbolic.primitives import plain
from replica.symbolic.tokens import LENGTH, RELEVANT, TokenSum, index, write_out


def limits_step(model: Model, closed: Step | None) -> Step | None:
    """Limits of a closed risk; ``None`` where there is no closed form."""
    if closed is None or "excess_risk" not in closed.conclusion:
        return None
    excess = closed.conclusion["excess_risk"]
    conclusion = {
        "strong_signal": sp.limit(excess * SIGNAL, SIGNAL, sp.oo) / SIGNAL,
        "long_sequence": sp.limit(excess, LENGTH, sp.oo),
    }

    def check(c: Conclusion) -> CheckResult:
        far = sp.Integer(10) ** 30
        point = random_point(excess.free_symbols - {LENGTH, SIGNAL}, 1)
        pairs = []
        for length in (2, 7):
            at = {**point, LENGTH: sp.Integer(length), SIGNAL: far}
            pairs.append((
                evaluate(c["strong_signal"] * far, at), evaluate(excess * far, at, 60)
            ))
        at = {**point, LENGTH: far, SIGNAL: sp.Rational(3, 2)}
        pairs.append((evaluate(sp.sympify(c["long_sequence"]), at), evaluate(excess, at, 60)))
        return compare(pairs, "the closed form at 1e30")

    return Step(
        name="limits of the closed risk",
        rule=r"limits of a rational function: leading order as $\nu \to \infty$, and "
        r"$L \to \infty$",
        premises=("closed moments",),
        conclusion=conclusion,
        check=check,
    )


def strong_signal_bayes(model: Model) -> Step | None:
    """The Bayes risk as ``nu -> oo`` where the weight tilts the relevant token."""
    k, v = model.sectors
    if smoothed_log_weight(model) is None:
        return None
    tilt = sp.diff(sp.sympify(model.log_weight), k.teacher(RELEVANT))
    t = sp.Symbol("t", positive=True)
    # log-ratio u of two tokens: mean and variance under the tilted law
    mean, variance = tilt**2 * k.rho, 2 * tilt**2 * k.rho
    # density at u = log t: exp(-(u - mean)^2/(2 variance)) = exp(-mean^2/(2 variance)) sqrt(t) ...
    power = sp.simplify(mean / variance)
    integral = sp.integrate(2 * t**power / (1 + t) ** 2, (t, 0, sp.oo))
    weight = sp.exp(-sp.simplify(mean**2 / (2 * variance))) / sp.sqrt(2 * sp.pi * variance)
    slope = sp.diff(model.channel, v.teacher(RELEVANT))
    conclusion = {"bayes_excess": sp.simplify(
        slope**2 * v.rho * (LENGTH - 1) * sp.powsimp(integral * weight)
    )}

    @cache
    def exact() -> tuple[dict[Any, Any], list[tuple[Any, Any]]]:
        """Two tokens by quadrature at two strengths of the signal."""
        point = random_point(
            (sp.sympify(k.rho).free_symbols | sp.sympify(v.rho).free_symbols
             | sp.sympify(slope).free_symbols), 2
        )
        scale = evaluate(sp.sympify(slope) ** 2 * v.rho, point)
        found = []
        with mp.workdps(30):
            for strength in (400, 1600):
                at = {**point, SIGNAL: sp.Integer(strength)}
                mu, s2 = evaluate(mean, at), evaluate(variance, at)

                def integrand(u: Any, mu: Any = mu, s2: Any = s2) -> Any:
                    p = 1 / (1 + mp.exp(-u))
                    return 2 * p * (1 - p) * mp.exp(-((u - mu) ** 2) / (2 * s2))

                value = mp.quad(integrand, [-80, -20, -5, 0, 5, 20, 80]) / mp.sqrt(2 * mp.pi * s2)
                found.append((at, scale * value))
        return point, found

    def check(c: Conclusion) -> CheckResult:
        _, found = exact()
        with mp.workdps(30):
            ratios = [
                value / evaluate(c["bayes_excess"], {**at, LENGTH: sp.Integer(2)})
                for at, value in found
            ]
            # corrections are of order 1/nu: extrapolated over a factor of four
            limit = (4 * ratios[1] - ratios[0]) / 3
        return compare([(limit, mp.mpf(1))], "two tokens by quadrature, extrapolated", 1e-4)

    return Step(
        name="strong signal",
        rule=r"as $\nu \to \infty$ an error needs one other token to compete: "
        r"$1 - \sum_l p_l^2 \to 2 p (1 - p)$ for each of the $L - 1$, with the log-ratio of the "
        "two normal; its density is tilted over the narrow range where the two compete",
        premises=("Bayes risk",),
        conclusion=conclusion,
        check=check,
        text=r"Leading order; corrections are of relative order $1/\nu$.",
    )


def many_samples(model: Model, derivatives: Step) -> Step:
    """The data term as the responses vanish, which they do as ``alpha -> oo``."""
    j, l = index("j"), index("l")  # noqa: E741

    def at_cavity(expr: Any) -> Any:
        for s in model.sectors:
            expr = replace_field(expr, s.field, s.cavity)
        return expr

    # stationarity h = omega - V grad loss, put into the objective, to first order in V
    first: Any = sp.S.Zero
    for s in model.sectors:
        slope = at_cavity(derivatives.conclusion[f"gradient_{s.name}"]).xreplace({j: l})
        first -= s.V * TokenSum(slope**2, l) / 2
    conclusion = {
        "leading": at_cavity(derivatives.conclusion["loss"]),
        "correction": first,
    }

    @cache
    def exact() -> tuple[dict[Any, Any], Any, Any]:
        """Value and slope in ``V`` of the minimum at one sample, two tokens."""
        positions = [sp.Integer(p) for p in (1, 2)]
        flat = {s.field(p): sp.Symbol(f"h{s.name}{p}", real=True)
                for s in model.sectors for p in positions}
        loss = put_explicit(model.loss, model, 2).xreplace(flat)
        cavity = {
            s.cavity(p): sp.Rational(3 * int(p) - 4 + 2 * i, 7)
            for i, s in enumerate(model.sectors) for p in positions
        }
        point = random_point(
            {x for x in loss.free_symbols if x not in flat.values()}
            | {LABEL, *(s.V for s in model.sectors)}, 3
        )
        scales = {s.V: abs(point[s.V]) for s in model.sectors}
        loss = plain(loss.xreplace(point))
        start = {flat[s.field(p)]: cavity[s.cavity(p)] for s in model.sectors for p in positions}
        names = list(start)
        with mp.workdps(50):
            slopes = sp.lambdify(names, [sp.diff(loss, h) for h in names], "mpmath")
            value_at = sp.lambdify(names, loss, "mpmath")
            base = [evaluate(start[h], {}, 50) for h in names]
            tiny = mp.mpf(10) ** -20
            widths = [
                tiny * evaluate(scales[s.V], {}, 50) for s in model.sectors for _ in positions
            ]

            def system(*h: Any) -> list[Any]:
                return [
                    x - w + width * g
                    for x, w, width, g in zip(h, base, widths, slopes(*h), strict=True)
                ]

            root = mp.findroot(system, base, tol=mp.mpf(10) ** -90)
            minimum_value = value_at(*root) + mp.fsum(
                (root[i] - base[i]) ** 2 / (2 * widths[i]) for i in range(len(base))
            )
            leading = value_at(*base)
            return {**point, **scales, **cavity}, leading, (minimum_value - leading) / tiny

    def check(c: Conclusion) -> CheckResult:
        point, leading, slope = exact()
        pairs = [
            (evaluate(write_out(c[n], 2), point), number)
            for n, number in (("leading", leading), ("correction", slope))
        ]
        return compare(pairs, "a minimum at V of order 1e-20, two tokens", 1e-15)

    return Step(
        name="many samples",
        rule=r"$\alpha \to \infty$ at fixed ridge: $\hat{V}_w$ grows like $\alpha$, $V_w \to 0$; "
        r"the minimum is expanded around the cavity field, $h = \omega - V \nabla\ell + O(V^2)$",
        premises=("manifold", "loss derivatives"),
        conclusion=conclusion,
        check=check,
        text=r"The integrand of the data term: its leading order is the loss on fresh samples, so "
        r"that $f/\alpha$ tends to the population loss, to be minimised over $(m, q)$; what is "
        "first order in $V$ is the gain of a training sample over a fresh one.",
    )
