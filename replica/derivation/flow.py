"""One-pass stochastic gradient descent: the seven overlaps in the limit of high dimension.

Every step of ``w <- (1 - gamma r_w/D) w - gamma X^T g_w/sqrt(D)`` sees a fresh sample; ``g_w(l)``
is the slope of the loss by the field ``h^w_l`` and ``r_w`` the weight decay, the gradient of
``r_w |w|^2/(2 D)``. ``D`` steps are one unit of time.
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
    known = {x.name: x for x in (*Blocks(model.sectors).M, *Blocks(model.sectors).Q)}
    for name, a, c in _names(model):
        conclusion[f"d{name}"] = (
            -STEP * mean(g[a.name] * c.teacher(l)) - STEP * a.ridge * known[name]
        )
    for name, a, c in _pairs(model):
        # (X X^T)_lm / D -> delta_lm: the rows of a sample are orthogonal in high dimension
        conclusion[f"d{name}"] = (
            -STEP * mean(g[a.name] * c.field(l)) - STEP * mean(g[c.name] * a.field(l))
            - STEP * (a.ridge + c.ridge) * known[name] + STEP**2 * mean(g[a.name] * g[c.name])
        )

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
        rule=r"$X X^T/D \to 1$; an overlap changes by $O(1/D)$ a step and averages over the $D$ "
        "steps of a unit of time",
        premises=("slopes of the loss",),
        conclusion=conclusion,
        check=check,
        text=r"One step is $w \leftarrow (1 - \gamma r_w/D) w - \gamma X^T g^w/\sqrt{D}$. The "
        "average runs over the fields of a fresh sample, whose covariance the overlaps are.",
        assumption="overlaps concentrate at large $D$",
    )


def _one_step(model: Model) -> tuple[dict[Any, Any], dict[str, Any]]:
    """Eight dimensions, two tokens with orthogonal rows of length ``sqrt(8)``: exact changes."""
    dimension = 8
    signs = [[1] * 8, [1, -1] * 4]  # two rows of a Hadamard matrix: X X^T = 8
    X = sp.Matrix(signs)
    with mp.workdps(60):
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
        slopes = {
            s.name: [
                evaluate(sp.diff(written, flat[s.field(sp.Integer(p))]).xreplace(at), point, 40)
                for p in (1, 2)
            ] for s in model.sectors
        }

        def dot(a: Any, b: Any) -> Any:
            return mp.fsum(x * y for x, y in zip(a, b, strict=True))

        def change(size: Any, decay: Any) -> dict[str, Any]:
            """``D`` times the changes of the overlaps in one step."""
            moved = {
                s.name: [
                    (1 - size * decay * ridges[s.name] / dimension) * w
                    - size * mp.fsum(X[p, n] * slopes[s.name][p] for p in (0, 1)) / root
                    for n, w in enumerate(vectors[f"student_{s.name}"])
                ] for s in model.sectors
            }
            found = {}
            for name, a, c in _names(model):
                teacher = vectors[f"teacher_{c.name}"]
                found[name] = dot(moved[a.name], teacher) - dot(
                    vectors[f"student_{a.name}"], teacher)
            for name, a, c in _pairs(model):
                found[name] = dot(moved[a.name], moved[c.name]) - dot(
                    vectors[f"student_{a.name}"], vectors[f"student_{c.name}"])
            return found

        ridges = {s.name: mp.mpf(3 + i) / 7 for i, s in enumerate(model.sectors)}
        # the decay of a step of D is of order 1/D: beside the gradient only its part linear in
        # both step and decay remains at large D
        tiny = mp.mpf(10) ** -22
        bare, decayed = change(tiny, 0), change(tiny, 1)
        changes = {
            f"d{n}": x + step * (decayed[n] - bare[n]) / tiny for n, x in change(step, 0).items()
        }
        by_name = {x.name: x for x in (*Blocks(model.sectors).M, *Blocks(model.sectors).Q)}
        for name, a, c in [*_names(model), *_pairs(model)]:
            kind = "teacher" if name.startswith("m") else "student"
            values[by_name[name]] = sp.Float(dot(
                vectors[f"student_{a.name}"], vectors[f"{kind}_{c.name}"]) / dimension, 40)
        values |= {s.ridge: sp.Float(ridges[s.name], 40) for s in model.sectors}
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
            numbers: dict[Any, Any] = {x: sp.Rational(2 * k + 3, 7) for k, x in enumerate(held)}
            free = e.xreplace(numbers).free_symbols | c[name].xreplace(numbers).free_symbols
            numbers |= random_point(free - {STEP}, 4)
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
    vanishing = {s: sp.S.Zero for s in Blocks(model.sectors).cross()}

    def flip(expr: Any) -> Any:
        """The readout's sector, its teacher, the label and its noise change sign."""
        rule = {
            a: -a for a in expr.atoms(AppliedUndef) if a.func in (readout.field, readout.teacher)
        }
        return expr.xreplace(rule).xreplace({LABEL: -LABEL, NOISE: -NOISE})

    conclusion: dict[str, Any] = {}
    for name in cross:
        # the weight decay is proportional to the cross overlap itself
        even: Any = flow.conclusion[name].xreplace(vanishing)
        held = {}
        for e in even.atoms(Expectation):
            body = write_out(e.body, 2)
            held[e] = sp.simplify(sp.expand(body + flip(body))) / 2
        conclusion[name] = sp.expand(even.xreplace(held))

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
                change = flow.conclusion[name]
                held: dict[Any, Any] = {}
                for e in change.atoms(Expectation):
                    body = write_out(e.body, 2)
                    point = random_point(body.free_symbols, seed)
                    held[e] = sp.Float((
                        evaluate(body.xreplace(at), point)
                        + evaluate(body.xreplace(turned), {**point, LABEL: -point.get(LABEL, 0)})
                    ) / 2, 30)
                change = change.xreplace(held).xreplace(vanishing)
                here = random_point(change.free_symbols | sp.sympify(c[name]).free_symbols, seed)
                pairs.append((evaluate(sp.sympify(c[name]), here), evaluate(change, here)))
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


