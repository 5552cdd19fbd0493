"""One-pass stochastic gradient descent: the seven overlaps in the limit of high dimension.

Every step of ``w <- w - gamma X^T g_w/sqrt(D)`` sees a fresh sample; ``g_w(l)`` is the slope of the
loss by the field ``h^w_l``. ``D`` steps are one unit of time.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import mpmath as mp
import sympy as sp
from sympy.core.function import AppliedUndef

from replica.derivation.free_energy import Blocks, require_parity
from replica.derivation.numeric import compare, evaluate, random_point
from replica.derivation.reduction import put_explicit, with_activation
from replica.derivation.step import CheckResult, Conclusion, Step
from replica.model import LABEL, NOISE, Model, Sector
from replica.symbolic.averages import Expectation
from replica.symbolic.tokens import TokenSum, index, token_derivative, write_out

STEP = sp.Symbol("gamma", positive=True)
"""Step size."""


def gradient(model: Model) -> Step:
    """Slopes of the loss by the fields of one token."""
    j = index("j")
    loss = with_activation(model.loss, model)
    conclusion = {
        f"slope_{s.name}": token_derivative(loss, s.field, j) for s in model.sectors
    }
    positions = [sp.Integer(p) for p in (1, 2)]
    fields = [s.field(p) for s in model.sectors for p in positions]
    stand_in = {f: sp.Symbol(f"h{k}", real=True) for k, f in enumerate(fields)}

    @cache
    def exact() -> tuple[dict[Any, Any], dict[str, list[Any]]]:
        """The loss of two tokens written out and differentiated by SymPy."""
        flat = put_explicit(model.loss, model, 2).xreplace(stand_in)
        point = random_point(flat.free_symbols, 8)
        return point, {
            f"slope_{s.name}": [
                evaluate(sp.diff(flat, stand_in[s.field(p)]), point) for p in positions
            ] for s in model.sectors
        }

    def check(c: Conclusion) -> CheckResult:
        point, numbers = exact()
        pairs = [
            (evaluate(write_out(c[n].xreplace({j: p}), 2).xreplace(stand_in), point), number)
            for n, values in numbers.items() for p, number in zip(positions, values, strict=True)
        ]
        return compare(pairs, "two tokens written out and differentiated by SymPy")

    return Step(
        name="slopes of the loss",
        rule="chain rule through the activation, tokens kept symbolic",
        premises=(),
        conclusion=conclusion,
        check=check,
        text=r"$h^w = X w/\sqrt{D}$, so the gradient by $w$ is $X^T g^w/\sqrt{D}$ with these "
        r"slopes $g^w_j$.",
    )


def _names(model: Model) -> list[tuple[str, Sector, Sector]]:
    """Names of the overlaps with the teachers, and the two sectors of each."""
    b = Blocks(model.sectors)
    return [
        (b.M[i, k].name, a, c)
        for i, a in enumerate(model.sectors) for k, c in enumerate(model.sectors)
    ]


def _pairs(model: Model) -> list[tuple[str, Sector, Sector]]:
    b = Blocks(model.sectors)
    found = []
    for i, k in itertools.combinations_with_replacement(range(len(model.sectors)), 2):
        found.append((b.Q[i, k].name, model.sectors[i], model.sectors[k]))
    return found


def overlap_flow(model: Model, slopes: Step) -> Step:
    """Change of every overlap per unit of time."""
    j, l = index("j"), index("l")  # noqa: E741
    g = {s.name: slopes.conclusion[f"slope_{s.name}"].xreplace({j: l}) for s in model.sectors}

    def mean(body: Any) -> Any:
        return Expectation(TokenSum(body, l), model.random_symbols)

    conclusion: dict[str, Any] = {}
    for name, a, c in _names(model):
        conclusion[f"d{name}"] = -STEP * mean(g[a.name] * c.teacher(l))
    for name, a, c in _pairs(model):
        drift = mean(g[a.name] * c.field(l)) + mean(g[c.name] * a.field(l))
        # (X X^T)_lm / D -> delta_lm: the rows of a sample are orthogonal in high dimension
        conclusion[f"d{name}"] = -STEP * drift + STEP**2 * mean(g[a.name] * g[c.name])

    @cache
    def exact() -> tuple[dict[Any, Any], dict[str, Any]]:
        return _one_step(model)

    def check(c: Conclusion) -> CheckResult:
        fields, changes = exact()
        pairs = []
        for name, change in changes.items():
            held = c[name].atoms(Expectation)
            written = c[name].xreplace({e: write_out(e.body, 2) for e in held})
            pairs.append((evaluate(written, fields), change))
        return compare(pairs, "one step on explicit vectors with orthogonal tokens", 1e-18)

    return Step(
        name="flow of the overlaps",
        rule=r"$w \leftarrow w - \gamma X^T g^w/\sqrt{D}$; $X X^T/D \to 1$; an overlap changes by "
        r"$O(1/D)$ a step and averages over the $D$ steps of a unit of time",
        premises=("slopes of the loss",),
        conclusion=conclusion,
        check=check,
        text="Per unit of time. The average runs over the fields of a fresh sample, whose "
        "covariance the overlaps are.",
        assumption="overlaps concentrate at large $D$",
    )


def _one_step(model: Model) -> tuple[dict[Any, Any], dict[str, Any]]:
    """Eight dimensions, two tokens with orthogonal rows of length ``sqrt(8)``: exact changes."""
    dimension = 8
    signs = [[1] * 8, [1, -1] * 4]  # two rows of a Hadamard matrix: X X^T = 8
    X = sp.Matrix(signs)
    with mp.workdps(40):
        root = mp.sqrt(dimension)
        vectors: dict[str, Any] = {}
        for i, s in enumerate(model.sectors):
            for k, kind in enumerate(("student", "teacher")):
                vectors[f"{kind}_{s.name}"] = [
                    mp.mpf((7 * n + 3 * i + 5 * k) % 11 - 5) / 4 for n in range(dimension)
                ]

        def field(vector: Any) -> list[Any]:
            return [mp.fsum(X[p, n] * vector[n] for n in range(dimension)) / root for p in (0, 1)]

        values: dict[Any, Any] = {}
        for s in model.sectors:
            for p, (x, y) in enumerate(zip(
                field(vectors[f"student_{s.name}"]), field(vectors[f"teacher_{s.name}"]),
                strict=True,
            )):
                values[s.field(sp.Integer(p + 1))] = sp.Float(x, 40)
                values[s.teacher(sp.Integer(p + 1))] = sp.Float(y, 40)
        loss = put_explicit(model.loss, model, 2)
        symbols = {x for x in loss.free_symbols if isinstance(x, sp.Symbol)} | {STEP, LABEL}
        point = random_point(symbols, 9)
        step = evaluate(STEP, point, 40)
        flat = {f: sp.Symbol(f"h{k}", real=True) for k, f in enumerate(
            s.field(sp.Integer(p)) for s in model.sectors for p in (1, 2)
        )}
        written = loss.xreplace(flat)
        at = {flat[f]: values[f] for f in flat}
        moved = {}
        for s in model.sectors:
            slopes = [
                evaluate(sp.diff(written, flat[s.field(sp.Integer(p))]).xreplace(at), point, 40)
                for p in (1, 2)
            ]
            moved[s.name] = [
                w - step * mp.fsum(X[p, n] * slopes[p] for p in (0, 1)) / root
                for n, w in enumerate(vectors[f"student_{s.name}"])
            ]

        def dot(a: Any, b: Any) -> Any:
            return mp.fsum(x * y for x, y in zip(a, b, strict=True))

        changes = {}
        for name, a, c in _names(model):
            teacher = vectors[f"teacher_{c.name}"]
            changes[f"d{name}"] = dot(moved[a.name], teacher) - dot(
                vectors[f"student_{a.name}"], teacher)
        for name, a, c in _pairs(model):
            changes[f"d{name}"] = dot(moved[a.name], moved[c.name]) - dot(
                vectors[f"student_{a.name}"], vectors[f"student_{c.name}"])
    return {**values, **point}, changes


def gradient_flow(model: Model, flow: Step) -> Step:
    """``gamma -> 0`` at fixed ``gamma`` times time."""
    conclusion = {
        name: sp.diff(e, STEP).xreplace({STEP: sp.S.Zero}) for name, e in flow.conclusion.items()
    }

    def check(c: Conclusion) -> CheckResult:
        pairs = []
        tiny = sp.Rational(1, 10**25)
        for name, e in flow.conclusion.items():
            held = sorted(
                e.atoms(Expectation) | c[name].atoms(Expectation), key=sp.default_sort_key
            )
            numbers = {x: sp.Rational(2 * k + 3, 7) for k, x in enumerate(held)}
            direct = evaluate((e.xreplace(numbers) / STEP).xreplace({STEP: tiny}), {}, 60)
            pairs.append((evaluate(c[name].xreplace(numbers), {}), direct))
        return compare(pairs, "flow at a step size of 1e-25")

    return Step(
        name="gradient flow",
        rule=r"$\gamma \to 0$ at fixed $\gamma \tau$: the noise of single samples drops out",
        premises=("flow of the overlaps",),
        conclusion=conclusion,
        check=check,
        text=r"Per unit of $\gamma \tau$.",
    )


def invariance(model: Model, flow: Step) -> Step | None:
    """Where the cross overlaps vanish they stay zero: their change averages an odd form.

    ``None`` for a single sector, which has none.
    """
    cross = [n for n in flow.conclusion if _is_cross(model, n)]
    if not cross:
        return None
    require_parity(model)
    readout = model.readout

    def flip(expr: Any) -> Any:
        """The readout's sector, its teacher, the label and its noise change sign."""
        rule = {
            a: -a for a in expr.atoms(AppliedUndef) if a.func in (readout.field, readout.teacher)
        }
        return expr.xreplace(rule).xreplace({LABEL: -LABEL, NOISE: -NOISE})

    conclusion: dict[str, Any] = {}
    for name in cross:
        even: Any = sp.S.Zero
        for e in flow.conclusion[name].atoms(Expectation):
            body = write_out(e.body, 2)
            even += sp.expand(body + flip(body))
        conclusion[name] = sp.simplify(even) / 2

    positions = [sp.Integer(p) for p in (1, 2)]

    def check(c: Conclusion) -> CheckResult:
        pairs = []
        for name in cross:
            for seed in (1, 2):
                names = [f"{s.name}{kind}{p}" for s in model.sectors
                         for kind in "st" for p in positions]
                draws = random_point([sp.Symbol(n, real=True) for n in names], seed)
                by_name = {s.name: x for s, x in draws.items()}
                at: dict[Any, Any] = {}
                turned: dict[Any, Any] = {}
                for s in model.sectors:
                    sign = -1 if s == readout else 1
                    for p in positions:
                        for kind, f in (("s", s.field), ("t", s.teacher)):
                            at[f(p)] = by_name[f"{s.name}{kind}{p}"]
                            turned[f(p)] = sign * at[f(p)]
                with mp.workdps(40):
                    total = mp.mpf(0)
                    for e in flow.conclusion[name].atoms(Expectation):
                        body = write_out(e.body, 2)
                        point = random_point(body.free_symbols, seed)
                        total += evaluate(body.xreplace(at), point)
                        total += evaluate(
                            body.xreplace(turned), {**point, LABEL: -point.get(LABEL, 0)}
                        )
                pairs.append((evaluate(sp.sympify(c[name]), {}), total))
        return compare(pairs, "random samples and their mirror images")

    return Step(
        name="invariant manifold",
        rule=r"changing the sign of $v$, $v^\ast$, $y$ and $\xi$ leaves the law of a sample "
        "unchanged where the cross overlaps vanish, and flips what their change averages",
        premises=("flow of the overlaps",),
        conclusion=conclusion,
        check=check,
        text="The even part of the integrand, two tokens written out: zero, so that the average "
        r"vanishes. $\varepsilon$ is the relevant token of the sample.",
    )


def _is_cross(model: Model, name: str) -> bool:
    return name[1:] in {s.name for s in Blocks(model.sectors).cross()}


