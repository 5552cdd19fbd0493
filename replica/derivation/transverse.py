"""Small cross overlaps: whether the flow takes them back to the manifold or away from it."""

from __future__ import annotations

from functools import cache
from typing import Any

import mpmath as mp
import sympy as sp

from replica.derivation.flow import STEP
from replica.derivation.free_energy import Blocks
from replica.derivation.numeric import compare, evaluate, random_point
from replica.derivation.reduction import put_explicit
from replica.derivation.step import CheckResult, Conclusion, Step
from replica.model import Model, Sector, token_function
from replica.symbolic.averages import Expectation
from replica.symbolic.tokens import TokenSum, index, token_derivative, write_out


def cross_overlaps(model: Model) -> list[sp.Symbol]:
    """The three cross overlaps, in the order of the rows and columns."""
    b = Blocks(model.sectors)
    return [b.M[0, 1], b.M[1, 0], b.Q[0, 1]]


def slope_at(sector: Sector) -> Any:
    """``g^w``, the slope of the loss by a field, left open."""
    return token_function(f"g_{sector.name}")


def curvature_at(a: Sector, c: Sector) -> Any:
    """``H^ac``, the second slope of the loss by the fields of two tokens, left open."""
    return token_function(f"H_{a.name}{c.name}")


def second_slopes(model: Model, slopes: Step) -> Step:
    """Derivatives of the slopes by the fields of another token."""
    j, i = index("j"), index("i")
    conclusion = {
        f"hessian_{a.name}{c.name}": token_derivative(
            slopes.conclusion[f"slope_{a.name}"], c.field, i
        ) for a in model.sectors for c in model.sectors
    }
    places = [sp.Integer(1), sp.Integer(2)]
    fields = {s.field(p): sp.Symbol(f"h_{s.name}{p}", real=True)
              for s in model.sectors for p in places}

    def check(c: Conclusion) -> CheckResult:
        flat = put_explicit(model.loss, model, 2).xreplace(fields)
        point = random_point(flat.free_symbols | set(fields.values()), 8)
        pairs = []
        for a in model.sectors:
            for s in model.sectors:
                for p in places:
                    for q in places:
                        mine = c[f"hessian_{a.name}{s.name}"].xreplace({j: p, i: q}).doit()
                        direct = sp.diff(flat, fields[a.field(p)], fields[s.field(q)])
                        pairs.append((
                            evaluate(write_out(mine, 2).xreplace(fields), point),
                            evaluate(direct, point),
                        ))
        return compare(pairs, "two tokens written out and differentiated twice by SymPy")

    return Step(
        name="curvature of the loss",
        rule="chain rule through the activation, tokens kept symbolic",
        premises=("slopes of the loss",),
        conclusion=conclusion,
        check=check,
        text=r"$H^{ac}_{ji}$ below.",
    )


def linear_stability(model: Model, flow: Step, invariant: Step) -> Step:
    """Derivatives of the cross overlaps' flow by the cross overlaps, on the manifold."""
    k, v = model.sectors
    m_kv, m_vk, q_kv = cross_overlaps(model)
    l, m = index("l"), index("m")  # noqa: E741
    width = sp.sqrt(k.q - k.m**2 / k.rho)
    # to first order chi and z take up a part of the other sector's fields
    shared = {m_kv: -v.m / v.rho, m_vk: -k.m / k.rho, q_kv: sp.S.One}
    moves: dict[Any, dict[str, Any]] = {
        y: {
            k.name: v.teacher(l) / v.rho if y == m_kv else sp.S.Zero,
            v.name: (k.teacher(l) / k.rho if y == m_vk else 0) + shared[y] * k.noise(l) / width,
        } for y in (m_kv, m_vk, q_kv)
    }

    def turned(a: Sector, y: sp.Symbol) -> Any:
        """Change of the slope ``g^a_l``: the second slopes are symmetric."""
        parts = [curvature_at(c, a)(m, l) * moves[y][c.name].xreplace({l: m})
                 for c in model.sectors if moves[y][c.name] != 0]
        return TokenSum(sp.Add(*parts), m)

    def mean(body: Any) -> Any:
        return Expectation(TokenSum(body, l), random)

    random = (*model.random_symbols, *(sp.Symbol(slope_at(s).__name__) for s in model.sectors),
              *(sp.Symbol(curvature_at(a, c).__name__) for a in model.sectors
                for c in model.sectors))
    conclusion: dict[str, Any] = {}
    for y in (m_kv, m_vk, q_kv):
        for x, a, c in ((m_kv, k, v), (m_vk, v, k)):
            growth = -STEP * mean(turned(a, y) * c.teacher(l))
            conclusion[f"growth_{x.name}_{y.name}"] = growth - (STEP * a.ridge if x == y else 0)
        g_k, g_v = slope_at(k)(l), slope_at(v)(l)
        drift = [mean(turned(k, y) * v.field(l)), mean(turned(v, y) * k.field(l)),
                 mean(g_k * moves[y][v.name])]
        if moves[y][k.name] != 0:
            drift.append(mean(g_v * moves[y][k.name]))
        noise = [mean(turned(k, y) * g_v), mean(turned(v, y) * g_k)]
        growth = sp.Add(*(-STEP * e for e in drift), *(STEP**2 * e for e in noise))
        conclusion[f"growth_{q_kv.name}_{y.name}"] = growth - (
            STEP * (k.ridge + v.ridge) if y == q_kv else 0
        )

    @cache
    def exact() -> dict[str, tuple[dict[Any, Any], Any]]:
        return _one_sample(model, flow)

    def check(c: Conclusion) -> CheckResult:
        pairs = []
        for name, (at, slope) in exact().items():
            held = c[name].atoms(Expectation)
            written = c[name].xreplace({e: write_out(e.body, 2) for e in held})
            pairs.append((evaluate(written.xreplace(at), at), slope))
        return compare(pairs, "one sample, fields by the full Cholesky factor, central difference",
                       1e-16)

    return Step(
        name="stability of the manifold",
        rule="derivative along fields that carry the covariance: the other sector's teacher and "
        "noise enter to first order",
        premises=("flow of the overlaps", "curvature of the loss", invariant.name),
        conclusion=conclusion,
        check=check,
        text="Cross overlaps decay where all eigenvalues of this matrix have negative real parts. "
        r"$\zeta^k$ is the part of $\chi$ off the teacher, of variance one.",
    )


def _one_sample(model: Model, flow: Step) -> dict[str, tuple[dict[Any, Any], Any]]:
    """Slopes of the cross overlaps' rates at one sample of two tokens, the fields made by the full
    Cholesky factor at cross overlaps ``+h`` and ``-h``."""
    k, v = model.sectors
    cross = cross_overlaps(model)
    places = [sp.Integer(1), sp.Integer(2)]
    draws = random_point(
        [sp.Symbol(f"n{i}{p}", real=True) for i in range(4) for p in places], 12
    )
    normal = {s.name: x for s, x in draws.items()}
    point = random_point({k.m, v.m, *sp.sympify(k.rho).free_symbols,
                          *sp.sympify(v.rho).free_symbols}, 12)
    rho_k, rho_v = (sp.sympify(s.rho).xreplace(point) for s in (k, v))
    point[k.q] = point[k.m] ** 2 / rho_k + sp.Rational(4, 3)
    point[v.q] = point[v.m] ** 2 / rho_v + sp.Rational(5, 3)
    h = sp.Rational(1, 10**12)

    def fields(value: dict[sp.Symbol, Any]) -> dict[Any, Any]:
        m_kv, m_vk, q_kv = (value[x] for x in cross)
        m_k, m_v, q_k, q_v = (point[x] for x in (k.m, v.m, k.q, v.q))
        a = sp.sqrt(q_k - m_k**2 / rho_k - m_kv**2 / rho_v)
        c = (q_kv - m_k * m_vk / rho_k - m_kv * m_v / rho_v) / a
        b = sp.sqrt(q_v - m_v**2 / rho_v - m_vk**2 / rho_k - c**2)
        found: dict[Any, Any] = {}
        for p in places:
            star, z_star, one, two = (normal[f"n{i}{p}"] for i in range(4))
            found[k.teacher(p)], found[v.teacher(p)] = star, z_star
            found[k.noise(p)] = one
            found[k.field(p)] = sp.N(m_k * star / rho_k + m_kv * z_star / rho_v + a * one, 60)
            found[v.field(p)] = sp.N(
                m_vk * star / rho_k + m_v * z_star / rho_v + c * one + b * two, 60
            )
        return found

    slopes: dict[str, tuple[dict[Any, Any], Any]] = {}
    zero = {x: sp.S.Zero for x in cross}
    with mp.workdps(60):
        for x in cross:
            rate = flow.conclusion[f"d{x.name}"]
            held = rate.atoms(Expectation)
            written = rate.xreplace({e: write_out(e.body, 2) for e in held})
            names = {s for s in written.free_symbols if isinstance(s, sp.Symbol)}
            here = random_point(names - {*point, *cross}, 5) | point
            curved = _slopes(model, {**fields(zero), **here})
            for y in cross:
                ends = []
                for sign in (1, -1):
                    moved = {**zero, y: sign * h}
                    at = {**here, **moved}
                    ends.append(evaluate(written.xreplace(fields(moved)), at, 60))
                slope = (ends[0] - ends[1]) / (2 * mp.mpf(10) ** -12)
                sample = {**fields(zero), **here, **zero, **curved}
                slopes[f"growth_{x.name}_{y.name}"] = (sample, slope)
    return slopes


def _slopes(model: Model, at: dict[Any, Any]) -> dict[Any, Any]:
    """Values of ``g`` and ``H`` at a sample of two tokens, differentiated by SymPy."""
    places = [sp.Integer(1), sp.Integer(2)]
    stand_in = {s.field(p): sp.Symbol(f"h_{s.name}{p}", real=True)
                for s in model.sectors for p in places}
    flat = put_explicit(model.loss, model, 2).xreplace(stand_in)
    numbers = {x: at[f] for f, x in stand_in.items()}
    numbers |= {s: at[s] for s in flat.free_symbols if s in at}
    numbers |= random_point(flat.free_symbols - set(numbers), 5)
    found: dict[Any, Any] = {}

    def value(expr: Any) -> Any:
        return sp.Float(evaluate(expr, numbers, 50), 50)

    for a in model.sectors:
        for p in places:
            slope = sp.diff(flat, stand_in[a.field(p)])
            found[slope_at(a)(p)] = value(slope)
            for c in model.sectors:
                for q in places:
                    found[curvature_at(a, c)(p, q)] = value(sp.diff(slope, stand_in[c.field(q)]))
    return found
