"""What approximate message passing needs of the channel: its scores and the keys' precision."""

from __future__ import annotations

from functools import cache
from typing import Any

import mpmath as mp
import numpy as np
import sympy as sp

from replica.derivation.bayes import LOG_G, SCORE
from replica.derivation.numeric import compare, evaluate, random_point
from replica.derivation.population import score_exponent, written_at
from replica.derivation.saddle_point import collapse_deltas, score_of
from replica.derivation.step import CheckResult, Conclusion, Step
from replica.model import LABEL, RATIO, Model
from replica.symbolic.averages import Expectation
from replica.symbolic.tokens import (
    RELEVANT,
    LocationProbability,
    TokenSum,
    TokenWeights,
    expand_sums,
    index,
    token_derivative,
    write_out,
)


def scores_step(model: Model, channel: Step) -> Step:
    """``g_w(l) = d log Z_out / d omega^w_l``."""
    l, m = index("l"), index("m")  # noqa: E741
    k, v = model.sectors
    log_G, variance = channel.conclusion["log_G"], channel.conclusion["variance"]
    closed = not log_G.has(LOG_G)
    exponent = log_G.as_independent(l, as_Add=True)[1] - (LABEL - v.cavity(l)) ** 2 / (2 * variance)
    p = LocationProbability(exponent, l, l)
    conclusion: dict[str, Any] = {}
    for s in model.sectors:
        if s == k and not closed:
            weighted = p.xreplace({l: m}) * SCORE(m, l)
            conclusion[f"g_{s.name}"] = TokenSum(weighted, m)
        else:
            conclusion[f"g_{s.name}"] = p * sp.diff(exponent, s.cavity(l))

    places = [sp.Integer(1), sp.Integer(2)]
    flat = {s.cavity(q): sp.Symbol(f"w_{s.name}{q}", real=True) for s in model.sectors
            for q in places}
    stand_in: dict[Any, Any] = {}
    if not closed:  # any smooth function serves for log G
        for q in places:
            mine, other = flat[k.cavity(q)], flat[k.cavity(places[2 - int(q)])]
            stand_in[LOG_G(q)] = mine / 3 - other / 5 + mine * other / 7
        for q in places:
            for r in places:
                stand_in[SCORE(q, r)] = sp.diff(stand_in[LOG_G(q)], flat[k.cavity(r)])

    @cache
    def exact() -> tuple[dict[Any, Any], dict[tuple[str, Any], Any]]:
        written = write_out(channel.conclusion["channel"], 2).xreplace(flat).xreplace(stand_in)
        point = random_point(written.free_symbols, 4)
        point |= {s.q: point[s.q] / 9 for s in model.sectors if s.q in point}
        slopes = {
            (s.name, q): evaluate(sp.diff(sp.log(written), flat[s.cavity(q)]), point)
            for s in model.sectors for q in places
        }
        return point, slopes

    def check(c: Conclusion) -> CheckResult:
        point, slopes = exact()
        pairs = []
        for (name, q), value in slopes.items():
            written = write_out(c[f"g_{name}"].xreplace({l: q}), 2)
            pairs.append((evaluate(written.xreplace(stand_in).xreplace(flat), point), value))
        return compare(pairs, "channel of two tokens written out and differentiated")

    return Step(
        name="scores of the channel",
        rule=r"the gradient of $\log \sum_l e^{u_l}$ is the weight $p_l = e^{u_l}/\sum_m e^{u_m}$ "
        "times that of $u_l$",
        premises=("channel",),
        conclusion=conclusion,
        check=check,
        text=r"Message passing evaluates them at its own fields, with the variance of its estimate "
        r"for $\rho - q$.",
    )


def _over_places(body: Any, model: Model) -> Any:
    """The place averaged out at given keys: it has the posterior ``p``, whose sum is 1."""
    exponent = score_exponent(model)
    if exponent is None:
        return body
    l = index("l")  # noqa: E741
    p = TokenWeights(exponent, l, l)
    here = p.xreplace({l: RELEVANT})
    if body.has(here) and sp.Poly(body, here).degree() > 1:
        return body
    known = {here: TokenSum(p**2, l), TokenSum(p, l): sp.S.One}
    return sp.expand(body.xreplace(known))


def precision_step(model: Model) -> Step | None:
    """What the fluctuation of ``|k|^2/D`` adds to the posterior precision of the keys.

    ``None`` where the weight has no density.
    """
    if model.sampling_only:
        return None
    k = model.sectors[0]
    j, i = index("j"), index("i")
    score = score_of(model)
    # c(rho') = E_{N(0, rho')} (1/L) sum_eps g: the heat equation gives 2 c' = E (1/L) sum_eps
    # sum_l d^2 g, and d^2 g = g [(d log g)^2 + d^2 log g]
    bend = token_derivative(score, k.teacher, i).xreplace({i: j})
    body = sp.expand(expand_sums(collapse_deltas(TokenSum(score**2 + bend, j))))
    conclusion = {
        "precision": RATIO * Expectation(_over_places(body, model), model.random_symbols)
    }

    @cache
    def exact() -> tuple[dict[Any, Any], Any, Any]:
        """Numbers, tilted masses on a grid of two keys, and ``2 alpha c'`` by a difference."""
        symbols = sp.sympify(model.log_weight).free_symbols | sp.sympify(k.rho).free_symbols
        point = random_point({s for s in symbols if isinstance(s, sp.Symbol)} - {RELEVANT}, 2)
        point[RATIO] = sp.Rational(7, 5)
        numbers = {s: sp.Float(float(x)) for s, x in point.items()}
        rho = float(sp.sympify(k.rho).xreplace(numbers))
        nodes, weights = np.polynomial.hermite_e.hermegauss(60)
        mass = np.outer(weights, weights).ravel() / weights.sum() ** 2
        grid = [g.ravel() for g in np.meshgrid(nodes, nodes, indexing="ij")]
        names = [sp.Symbol("x1"), sp.Symbol("x2")]
        flat = {k.teacher(sp.Integer(q + 1)): names[q] for q in range(2)}
        functions = [
            sp.lambdify(names, written_at(model.log_weight, sp.Integer(q + 1), 2)
                        .xreplace(numbers).xreplace(flat), "numpy") for q in range(2)
        ]

        def constant(spread: float) -> float:
            keys = [np.sqrt(spread) * g for g in grid]
            return float(sum(np.sum(mass * np.exp(f(*keys))) for f in functions) / 2)

        h = 1e-3 * rho
        slope = (8 * (constant(rho + h) - constant(rho - h))
                 - (constant(rho + 2 * h) - constant(rho - 2 * h))) / (12 * h)
        keys = [np.sqrt(rho) * g for g in grid]
        tilted = [mass * np.exp(f(*keys)) / 2 for f in functions]
        return numbers, (keys, tilted, flat, names), 2 * float(numbers[RATIO]) * slope

    def check(c: Conclusion) -> CheckResult:
        numbers, (keys, tilted, flat, names), wanted = exact()
        held = sp.sympify(c["precision"]).atoms(Expectation)
        values = {}
        for e in held:
            total = 0.0
            for q in range(2):
                written = written_at(e.body, sp.Integer(q + 1), 2).xreplace(numbers).xreplace(flat)
                total += float(np.sum(tilted[q] * sp.lambdify(names, written, "numpy")(*keys)))
            values[e] = sp.Float(total)
        mine = float(sp.sympify(c["precision"]).xreplace(values).xreplace(numbers))
        pairs = [(mp.mpf(mine), mp.mpf(wanted))]
        return compare(pairs, "normalisation of two tokens by quadrature", 1e-8)

    return Step(
        name="precision of the keys",
        rule=r"the law of a sample is $g/c(|k|^2/D)$; expanding $\log c$ around the teacher's norm "
        r"adds $2 \alpha c'/c$ to the posterior's precision; the heat equation gives $c'$",
        premises=("scores of the channel",),
        conclusion=conclusion,
        check=check,
        text="It cancels in state evolution, where it is half of the Nishimori identity of the "
        "keys, and is needed by message passing.",
    )
