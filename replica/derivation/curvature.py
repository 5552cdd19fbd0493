"""The Hessian of the loss as diagonal plus low rank, so that linear algebra costs O(L)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import mpmath as mp
import sympy as sp

from replica.derivation.numeric import compare, evaluate, random_point
from replica.derivation.step import CheckResult, Conclusion, Step
from replica.model import LABEL, Model
from replica.symbolic.tokens import index, write_out


def split_pairs(expr: Any, j: sp.Symbol, i: sp.Symbol) -> tuple[Any, dict[Any, Any]] | None:
    """``expr(j, i) = delta_ij diagonal(j) + sum_left left(j) right(i)``.

    Returns the diagonal and a map from left factors to right factors, or ``None`` where a factor
    couples the two tokens in another way.
    """
    diagonal: Any = sp.S.Zero
    pairs: dict[Any, Any] = {}
    delta = sp.KroneckerDelta(i, j)
    for term in sp.Add.make_args(_spread(expr, delta, j, i)):
        if term.has(sp.KroneckerDelta):
            rest = (term / delta).xreplace({i: j})
            if rest.has(sp.KroneckerDelta):
                return None
            diagonal += rest
            continue
        left: list[Any] = []
        right: list[Any] = []
        for factor in sp.Mul.make_args(term):
            free = factor.free_symbols
            if j in free and i in free:
                return None
            (left if j in free else right).append(factor)
        key = sp.Mul(*left)
        pairs[key] = pairs.get(key, sp.S.Zero) + sp.Mul(*right)
    return diagonal, pairs


def _spread(expr: Any, delta: Any, j: sp.Symbol, i: sp.Symbol) -> Any:
    """Expand only products whose sums hold the delta or mix both tokens."""
    terms = []
    for term in sp.Add.make_args(expr):
        mixing = [
            f for f in sp.Mul.make_args(term)
            if f.is_Add and (f.has(delta) or {j, i} <= f.free_symbols)
        ]
        if not mixing:
            terms.append(term)
            continue
        rest = term / mixing[0]
        terms += [_spread(part * rest, delta, j, i) for part in mixing[0].args]
    return sp.Add(*terms)


def curvature_step(model: Model, derivatives: Step) -> Step | None:
    """Diagonal blocks, left and right factors of the Hessian of the loss; ``None`` if dense.

    Conclusions: ``diagonal_ab`` per pair of sectors, and per rank ``r`` one ``left_r_a`` and a
    ``right_r_b`` for each sector ``b``: ``H_ab(j, i) = delta_ij diagonal_ab(j) + sum_r left_r_a(j)
    right_r_b(i)``.
    """
    j, i = index("j"), index("i")
    conclusion: dict[str, Any] = {}
    factors: dict[tuple[str, Any], dict[str, Any]] = {}
    for a in model.sectors:
        for b in model.sectors:
            found = split_pairs(derivatives.conclusion[f"hessian_{a.name}{b.name}"], j, i)
            if found is None:
                return None
            conclusion[f"diagonal_{a.name}{b.name}"] = found[0]
            for left, right in found[1].items():
                factors.setdefault((a.name, left), {})[b.name] = right
    for r, ((a_name, left), rights) in enumerate(factors.items()):
        conclusion[f"left_{r}_{a_name}"] = left
        for b in model.sectors:
            conclusion[f"right_{r}_{b.name}"] = rights.get(b.name, sp.S.Zero).xreplace({j: i})

    hessians = derivatives.conclusion
    places = [{j: sp.Integer(p), i: sp.Integer(q)} for p in (1, 2) for q in (1, 2)]
    fields = {
        s.field(sp.Integer(p)): sp.Symbol(f"{s.field_name}{p}", real=True)
        for s in model.sectors for p in (1, 2)
    }
    symbols = {x for e in hessians.values() for x in e.free_symbols if not x.is_integer}
    point = random_point({*fields.values(), LABEL, *symbols}, 1)

    @cache
    def numbers(expr: Any) -> list[Any]:
        """The expression at every pair of two tokens."""
        return [
            evaluate(write_out(expr.xreplace(place), 2).xreplace(fields), point)
            for place in places
        ]

    def check(c: Conclusion) -> CheckResult:
        values = {n: numbers(sp.sympify(e)) for n, e in c.items()}
        pairs = []
        for a in model.sectors:
            lefts = [n for n in c if n.startswith("left_") and n.endswith(f"_{a.name}")]
            for b in model.sectors:
                for k, place in enumerate(places):
                    with mp.workdps(40):
                        total = mp.fsum(
                            values[n][k] * values[f"right_{n.split('_')[1]}_{b.name}"][k]
                            for n in lefts
                        )
                        if place[j] == place[i]:
                            total += values[f"diagonal_{a.name}{b.name}"][k]
                    pairs.append((numbers(hessians[f"hessian_{a.name}{b.name}"])[k], total))
        return compare(pairs, "recombined, two tokens written out")

    return Step(
        name="curvature",
        rule=r"terms of the Hessian sorted by the token they depend on, "
        r"$H_{ji} = \delta_{ij} \Lambda_j + \sum_r a^{(r)}_j b^{(r)}_i$: "
        "diagonal plus low rank, so that solving costs $O(L)$",
        premises=("loss derivatives",),
        conclusion=conclusion,
        check=check,
    )


def rank_of(conclusion: Mapping[str, Any]) -> int:
    """Number of left factors."""
    return sum(n.startswith("left_") for n in conclusion)
