"""One and two tokens, and the largest of two or three: where averages are elementary or single."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np
import sympy as sp

from replica.derivation.bayes import smoothed_log_weight
from replica.derivation.numeric import compare, evaluate, random_point
from replica.derivation.step import CheckResult, Conclusion, Step
from replica.model import Model
from replica.symbolic.averages import Expectation
from replica.symbolic.tokens import LENGTH, RELEVANT

DIFFERENCE = sp.Symbol("d", real=True)
"""Difference of two tokens' log weights."""


def two_tokens(model: Model) -> Step | None:
    """``s_1, s_2`` of normalised attention over one token, and over two where the difference of
    their scores alone matters; ``None`` for other models."""
    activation, k = model.activation, model.sectors[0]
    if activation is None or not activation.shift_invariant or smoothed_log_weight(model) is None:
        return None
    tilt = sp.diff(sp.sympify(model.log_weight), k.teacher(RELEVANT))
    slope = sp.diff(activation.log_weight, activation.x)
    # the tilt moves the relevant score by m tilt; both scores have variance q
    p = 1 / (1 + sp.exp(-DIFFERENCE))
    conclusion = {
        "mean_d": slope * k.m * tilt,
        "variance_d": 2 * slope**2 * k.q,
        "s_1_single": sp.S.One,
        "s_2_single": sp.S.One,
        "s_1_pair": Expectation(p, (DIFFERENCE,)),
        "s_2_pair": 1 - 2 * Expectation(p**2 * sp.exp(-DIFFERENCE), (DIFFERENCE,)),
    }

    def check(c: Conclusion) -> CheckResult:
        point = random_point(
            {k.m, k.q} | set().union(*(sp.sympify(e).free_symbols for e in c.values())), 4
        )
        numbers = {s: float(x) for s, x in point.items()}
        nodes, weights = np.polynomial.hermite_e.hermegauss(160)
        weights = weights / weights.sum()
        spread = np.sqrt(numbers[k.q])
        a = float(evaluate(tilt, point))
        log_weight = sp.lambdify(activation.x, activation.log_weight, "numpy")
        first, other = np.meshgrid(
            numbers[k.m] * a + spread * nodes, spread * nodes, indexing="ij"
        )
        w = np.exp(log_weight(first)), np.exp(log_weight(other))
        mass = np.outer(weights, weights)
        direct = {
            "s_1_single": 1.0, "s_2_single": 1.0,
            "s_1_pair": float(np.sum(mass * w[0] / (w[0] + w[1]))),
            "s_2_pair": float(np.sum(mass * (w[0] ** 2 + w[1] ** 2) / (w[0] + w[1]) ** 2)),
        }
        pairs = [(_averaged(c, n, point), x) for n, x in direct.items()]
        return compare(pairs, "two independent scores by quadrature in the plane", 1e-9)

    return Step(
        name="one and two tokens",
        rule="a single token has all the weight; of two the difference of their scores matters, "
        "which is normal",
        premises=("best value vector",),
        conclusion=conclusion,
        check=check,
        text="$d$ is normal with this mean and variance; for any overlaps of the key.",
    )


def _averaged(c: Conclusion, name: str, point: dict[Any, Any]) -> float:
    """The value of a conclusion with averages over :data:`DIFFERENCE`."""
    mean, variance = (float(evaluate(sp.sympify(c[n]), point)) for n in ("mean_d", "variance_d"))
    values = {}
    for e in sp.sympify(c[name]).atoms(Expectation):
        body = sp.lambdify(DIFFERENCE, sp.sympify(e.body).xreplace(point), "mpmath")
        values[e] = sp.Float(mp.quad(
            lambda u, body=body: body(mean + mp.sqrt(variance) * u) * mp.npdf(u),
            [-12, -4, -1, 0, 1, 4, 12],
        ))
    return float(evaluate(sp.sympify(c[name]).xreplace(values), point))


def largest_score(model: Model) -> Step | None:
    """A closed risk where the relevant token has the largest score and the attention is linear in
    it; ``None`` for other models."""
    activation, (k, v) = model.activation, model.sectors
    if activation is None or activation.expression is None or not model.sampling_only:
        return None
    x, expression = activation.x, sp.sympify(activation.expression)
    if not expression.is_polynomial(x) or sp.degree(expression, x) != 1:
        return None
    b, a = sp.Poly(expression, x).all_coeffs()
    e = sp.Symbol("e", nonnegative=True)
    # chi_eps = (m/rho) chi*_eps + noise; all tokens taken together are plain
    s1 = a + b * k.m * e / sp.sqrt(k.rho)
    s2 = LENGTH * (a**2 + b**2 * k.q)
    gain = (s1**2 / s2).xreplace({k.q: k.m**2 / k.rho})
    roots = [r for r in sp.solve(sp.numer(sp.together(sp.diff(gain, k.m))), k.m)
             if sp.simplify(gain.xreplace({k.m: r})) != 0]
    slope = sp.diff(model.channel, v.teacher(RELEVANT))
    (best,) = roots
    excess = slope**2 * v.rho * (1 - gain.xreplace({k.m: best}))
    conclusion = {
        "s_1": s1, "s_2": s2, "m_k": sp.factor(best), "excess_risk": sp.factor(sp.simplify(excess)),
        "e_1": sp.S.Zero, "e_2": 1 / sp.sqrt(sp.pi), "e_3": 3 / (2 * sp.sqrt(sp.pi)),
    }

    def check(c: Conclusion) -> CheckResult:
        pairs: list[tuple[Any, Any]] = []
        for length in (1, 2, 3):
            mean = mp.quad(lambda u, n=length: n * u * mp.npdf(u) * mp.ncdf(u) ** (n - 1),
                           [-12, -3, 0, 3, 12])
            pairs.append((float(evaluate(sp.sympify(c[f"e_{length}"]), {})), float(mean)))
            point = random_point(
                {k.m} | excess.free_symbols - {LENGTH, e}
                | set().union(*(sp.sympify(y).free_symbols for y in c.values())) - {LENGTH, e}, 6
            )
            point[k.q] = point[k.m] ** 2 + sp.Rational(1, 2)
            at = {**point, LENGTH: sp.Integer(length), e: sp.Float(mean, 15)}
            rho = float(sp.sympify(k.rho).xreplace(point))
            scale, q = float(point[k.m]) / rho**0.5, float(point[k.q])
            f = sp.lambdify(x, expression.xreplace(point), "mpmath")

            def weighted(u: Any, n: int = length, f: Any = f, scale: float = scale) -> Any:
                return n * mp.npdf(u) * mp.ncdf(u) ** (n - 1) * f(scale * u)

            def square(u: Any, n: int = length, f: Any = f, q: float = q) -> Any:
                return n * mp.npdf(u) * f(mp.sqrt(q) * u) ** 2

            for name, g in (("s_1", weighted), ("s_2", square)):
                direct = float(mp.quad(g, [-12, -3, 0, 3, 12]))
                pairs.append((float(evaluate(c[name], at)), direct))
            here = c["m_k"].xreplace(at)

            def risk(m_k: Any, at: dict[Any, Any] = at) -> float:
                there = {**at, k.m: m_k, k.q: m_k**2 / sp.sympify(k.rho).xreplace(at)}
                first, second = (evaluate(c[n], there) for n in ("s_1", "s_2"))
                return float(evaluate(slope**2 * v.rho, at) * (1 - first**2 / second))

            pairs.append((float(evaluate(c["excess_risk"], at)), risk(here)))
            h = sp.Rational(1, 10**4)
            pairs.append((risk(here + h) - risk(here - h), 0.0))
        return compare(pairs, "quadrature over the largest of one, two, three scores", 1e-9)

    return Step(
        name="largest score",
        rule="the attention is linear, so that the mean of the largest score suffices",
        premises=("best value vector",),
        conclusion=conclusion,
        check=check,
        text=r"$e$ is the mean of the largest of $L$ standard normals, $e_1, e_2, e_3$ for one, "
        r"two and three tokens; for a random length $L$ and $e$ are means over it.",
    )
