"""Stability of replica symmetry: the second variation of the replicated exponent.

Overlaps and multipliers move by ``u (x) C`` and ``u (x) E``: ``u`` acts on the replicas, has a zero
diagonal and zero row sums (the replicon directions), ``C`` and ``E`` act on the sectors. ``u`` and
the sector matrices are both symmetric or both antisymmetric. All second variations are per
``sum_ab u_ab^2``.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import mpmath as mp
import sympy as sp
from sympy.core.function import AppliedUndef

from replica.derivation.free_energy import BETA, Blocks, explicit
from replica.derivation.numeric import compare, evaluate, random_point
from replica.derivation.replicon_checks import (
    ANTISYMMETRIC,
    SYMMETRIC,
    PolynomialToy,
    RepliconToy,
    finite_difference_response,
)
from replica.derivation.step import CheckResult, Conclusion, Step
from replica.model import RATIO, Model, Sector
from replica.symbolic.averages import Expectation
from replica.symbolic.replicas import ReplicaMatrix
from replica.symbolic.tokens import LENGTH, TokenSum, index, write_out


def _pairs(model: Model) -> list[tuple[Sector, Sector]]:
    return [(a, c) for a in model.sectors for c in model.sectors]


def _moves(letter: str, model: Model) -> dict[tuple[str, str], sp.Symbol]:
    """The entries of a perturbation of the sectors."""
    return {
        (a.name, c.name): sp.Symbol(f"{letter}_{a.name}{c.name}", real=True)
        for a, c in _pairs(model)
    }


def _mean_product(
    model: Model, letter: str, first: tuple[str, str], second: tuple[str, str]
) -> Any:
    """``E sum_lm X_first(l, m) X_second(l, m)``, one form of those equal by symmetry.

    ``X_ac(l, m) = X_ca(m, l)``, so both factors may be turned around at once.
    """
    l, m = index("l"), index("m")  # noqa: E741
    order = {s.name: k for k, s in enumerate(model.sectors)}

    def places(pairs: list[tuple[str, str]]) -> list[tuple[int, int]]:
        return sorted((order[a], order[c]) for a, c in pairs)

    pair = min([first, second], [first[::-1], second[::-1]], key=places)
    names = [sp.Symbol(f"{letter}_{a.name}{c.name}") for a, c in _pairs(model)]
    body = sp.Mul(*(sp.Function(f"{letter}_{a}{c}", real=True)(l, m) for a, c in pair))
    return Expectation(TokenSum(TokenSum(body, m), l), (*model.random_symbols, *names))


def weights_variation(model: Model, ansatz: Step) -> Step:
    """The multipliers' part: ``A^-1 (u (x) E) = u (x) P^-1 E``, as ``u`` kills the common part."""
    cross = {s: sp.S.Zero for s in Blocks(model.sectors).cross()}
    P = sp.Matrix(ansatz.conclusion["single"]).xreplace(cross)
    E, C = _moves("e", model), _moves("c", model)
    size = len(model.sectors)
    names = [s.name for s in model.sectors]
    e = sp.Matrix(size, size, lambda i, j: E[names[i], names[j]])
    c = sp.Matrix(size, size, lambda i, j: C[names[i], names[j]])
    inverse = P.inv()
    # -log det(A - delta)/2, twice differentiated; the mean part A^-1 B is uniform and u kills it
    conclusion = {
        "delta2_weights": sp.factor_terms((inverse * e * inverse * e.T).trace() / 2),
        "delta2_constraint": -(e * c.T).trace(),
    }

    @cache
    def exact(kind: sp.ImmutableMatrix) -> tuple[dict[Any, Any], list[Any]]:
        """Second differences of the explicit Gaussian integral of four replicas."""
        point = random_point(
            {*P.free_symbols, *E.values(), *C.values(), BETA}, seed=size + int(kind[1, 0])
        )
        point |= {s.V_hat: abs(point[s.V_hat]) for s in model.sectors}
        sign = int(kind[1, 0])
        for moves in (E, C):
            for (a, b), symbol in moves.items():
                if a == b and sign < 0:
                    point[symbol] = sp.S.Zero
                elif names.index(a) > names.index(b):
                    point[symbol] = sign * point[moves[b, a]]
        common = sp.Matrix(size, size, lambda i, j: sp.Rational(1 + i + j, 9))
        A = ReplicaMatrix(sp.ImmutableMatrix(P.xreplace(point)), sp.ImmutableMatrix(common))
        source = sp.Matrix(4 * size, 1, lambda i, _: sp.Rational(1 + i % size, 5))
        move = sp.Matrix(sp.kronecker_product(kind, e.xreplace(point)))
        other = sp.Matrix(sp.kronecker_product(kind, c.xreplace(point)))
        total = sum(x**2 for x in kind)
        with mp.workdps(80):
            step = mp.mpf(10) ** -20

            def log_integral(t: int) -> Any:
                B = sp.Matrix(A.explicit(4)) - t * sp.Rational(1, 10**20) * move
                determinant, quadratic = B.det(), (source.T * B.LUsolve(source))[0, 0]
                return -mp.log(mp.mpf(determinant.p) / determinant.q) / 2 + (
                    mp.mpf(quadratic.p) / quadratic.q / 2
                )

            second = (log_integral(1) - 2 * log_integral(0) + log_integral(-1)) / step**2
            # -Tr(Qtilde Q)/2 moved in both factors
            constraint = evaluate(-(move * other).trace(), {})
            return point, [second / total, constraint / total]

    def check(found: Conclusion) -> CheckResult:
        pairs = []
        for kind in (SYMMETRIC, ANTISYMMETRIC) if size > 1 else (SYMMETRIC,):
            point, numbers = exact(kind)
            pairs += [
                (evaluate(found[n], point), number)
                for n, number in zip(("delta2_weights", "delta2_constraint"), numbers, strict=True)
            ]
        return compare(pairs, "explicit Gaussian integral of four replicas", 1e-15)

    return Step(
        name="second variation of the weights",
        rule=r"moves $u \otimes E$ of the multipliers and $u \otimes C$ of the overlaps with "
        r"$u_{aa} = 0$, $\sum_b u_{ab} = 0$: $A^{-1} (u \otimes E) = u \otimes P^{-1} E$ with the "
        "single part $P$ of $A$, since $u$ annihilates whatever is common to the replicas",
        premises=("replica symmetry", "overlaps and multipliers", "manifold"),
        conclusion=conclusion,
        check=check,
        text=r"Per $\sum_{ab} u_{ab}^2$. $u$ and the sector matrices are both symmetric or both "
        "antisymmetric.",
    )


def data_variation(model: Model) -> Step:
    """``alpha/2 sum C_ij C_kl E sum Gamma_jl Gamma_ik`` with ``Gamma`` the Hessian of log Z_1."""
    C = _moves("c", model)
    terms = [
        C[i.name, j.name] * C[k.name, m.name] * _mean_product(
            model, "Gamma", (j.name, m.name), (i.name, k.name)
        )
        for i, j in _pairs(model) for k, m in _pairs(model)
    ]
    conclusion = {"delta2_data": sp.Add(*(RATIO * t / 2 for t in terms))}
    names = [s.name for s in model.sectors]

    @cache
    def exact(sign: int) -> tuple[dict[Any, Any], Any, dict[Any, Any]]:
        toy = PolynomialToy(names, sign)
        point = {C[a, b]: toy.C[names.index(a), names.index(b)] for a, b in C}
        return point, toy.direct(), toy.products()

    def check(found: Conclusion) -> CheckResult:
        pairs = []
        for sign in (1, -1) if len(names) > 1 else (1,):
            point, direct, products = exact(sign)

            def mean(e: Any, products: dict[Any, Any] = products) -> Any:
                """``E[Z^4 ...]/E[Z^4]`` of a sum of products of two Gammas, one token."""
                total: Any = sp.S.Zero
                for term in sp.Add.make_args(sp.expand(write_out(e.body, 1))):
                    gammas = [
                        a.func.__name__.split("_")[1]
                        for f in sp.Mul.make_args(term) for a in [f.as_base_exp()[0]]
                        for _ in range(int(f.as_base_exp()[1])) if isinstance(a, AppliedUndef)
                    ]
                    coefficient = sp.Mul(*(
                        f for f in sp.Mul.make_args(term) if not f.atoms(AppliedUndef)
                    ))
                    total += coefficient * products[tuple(sorted(gammas))]
                return total

            value = found["delta2_data"]
            value = value.xreplace({e: mean(e) for e in value.atoms(Expectation)})
            alpha = sp.Rational(5, 3)
            pairs.append((
                evaluate(value, {**point, RATIO: alpha}), evaluate(alpha * direct, {})
            ))
        return compare(pairs, "exact Gaussian moments of four replicas, polynomial weights")

    return Step(
        name="second variation of the data",
        rule=r"$\partial/\partial Q_{ij}$ of a Gaussian average is the average of "
        r"$\partial_i \partial_j$; in the replicon directions only products of the Hessian "
        r"$\Gamma = \partial^2 \log Z_1/\partial\omega^2$ of two replicas remain",
        premises=("no replicas: data", "manifold"),
        conclusion=conclusion,
        check=check,
        text=r"Per $\sum_{ab} u_{ab}^2$, at $n \to 0$, where the weight $Z_1^n$ is 1. $\Gamma$ is "
        r"symmetric, $\Gamma^{ac}_{lm} = \Gamma^{ca}_{ml}$; tokens are independent.",
        assumption="continuation in $n$ to 0",
    )


def response_step(model: Model) -> Step:
    """``df/domega = -(1 + A V)^-1 A``: stationarity of the minimum, differentiated."""
    size = len(model.sectors) * LENGTH
    A, V = sp.MatrixSymbol("A", size, size), sp.MatrixSymbol("V", size, size)
    one = sp.Identity(size)
    # grad loss(omega + V f) + f = 0  =>  A (1 + V f') + f' = 0
    conclusion = {"response": -(one + A * V).inv() * A}

    @cache
    def exact() -> tuple[sp.Matrix, sp.Matrix, Any]:
        return finite_difference_response(model)

    def check(found: Conclusion) -> CheckResult:
        curvature, spread, numeric = exact()
        n = curvature.rows
        mine = explicit(found["response"], {"A": curvature, "V": spread})
        pairs = [
            (evaluate(mine[i, j], {}), numeric[i, j]) for i in range(n) for j in range(n)
        ]
        return compare(pairs, "finite differences of a minimiser, two tokens", 1e-14)

    return Step(
        name="response of the minimiser",
        rule=r"implicit function theorem: $\nabla\ell(\omega + V f) + f = 0$ differentiated by "
        r"$\omega$",
        premises=("free energy at zero temperature",),
        conclusion=conclusion,
        check=check,
        text=r"$A$ is the Hessian of the loss by the local fields of all sectors and tokens at the "
        r"minimiser, $V$ the diagonal matrix of the $V_w$. Where the minimiser jumps there is no "
        "derivative: what follows is the stability between jumps, a necessary condition.",
    )


def replicon_step(model: Model, weights: Step, data: Step, overlaps: Step) -> Step:
    """Multipliers eliminated, ``beta -> oo``: the operator ``T`` of the replicon directions."""
    E, C = _moves("e", model), _moves("c", model)
    part = weights.conclusion["delta2_weights"] + weights.conclusion["delta2_constraint"]
    solution = sp.solve([sp.diff(part, x) for x in E.values()], list(E.values()), dict=True)[0]
    part = part.xreplace(solution)
    for s in model.sectors:  # r + Vhat = 1/V at the saddle
        (V_hat,) = sp.solve(overlaps.conclusion[s.V.name] - s.V, s.V_hat)
        part = part.xreplace({s.V_hat: V_hat})
    part = sp.cancel(part)
    # log Z_1 -> -beta M(omega) and dM/domega = -f: Gamma -> beta df/domega
    sample = data.conclusion["delta2_data"]
    rules = {}
    for e in sample.atoms(Expectation):
        gammas = [a for a in e.atoms(AppliedUndef) if a.func.__name__.startswith("Gamma_")]
        first = [a.func.__name__.split("_")[1] for a in gammas]
        first = first if len(first) == 2 else first * 2
        pairs = [next((a.name, c.name) for a, c in _pairs(model) if a.name + c.name == p)
                 for p in sorted(first)]
        rules[e] = BETA**2 * _mean_product(model, "Df", *pairs)
    sample = sample.xreplace(rules)
    conclusion: dict[str, Any] = {}
    own = {C[s.name, s.name]: s for s in model.sectors}
    off = {x: sp.S.Zero for x in C.values() if x not in own}
    for x, s in own.items():
        stiffness = -sp.diff(part.xreplace(off), x, 2)
        for y, t in own.items():
            force = sp.diff(sp.expand(sample.xreplace(off)), x, y)
            conclusion[f"T_{s.name}{t.name}"] = sp.cancel(force / stiffness)
    for a, b in itertools.combinations(model.sectors, 2):
        amplitude = sp.Symbol("amplitude")
        still = {x: sp.S.Zero for x in C.values()}
        for word, sign in (("plus", 1), ("minus", -1)):
            mode = {**still, C[a.name, b.name]: amplitude, C[b.name, a.name]: sign * amplitude}
            stiffness = -sp.diff(part.xreplace(mode), amplitude, 2)
            force = sp.diff(sp.expand(sample.xreplace(mode)), amplitude, 2)
            conclusion[f"T_{a.name}{b.name}_{word}"] = _quotient(force, stiffness)

    @cache
    def toy() -> RepliconToy:
        return RepliconToy(model)

    def check(found: Conclusion) -> CheckResult:
        return toy().compare(found)

    return Step(
        name="replicon",
        rule=r"the multipliers' moves eliminated by their stationarity, $r_w + \hat{V}_w = 1/V_w$, "
        r"and $\beta \to \infty$, where $\log Z_1 \to -\beta M$ and $\partial M/\partial\omega = "
        r"-f$, so that $\Gamma \to \beta \, \partial f/\partial\omega$",
        premises=(
            "second variation of the weights", "second variation of the data",
            "response of the minimiser", "overlap equations",
        ),
        conclusion=conclusion,
        check=check,
        text="Replica symmetry is stable where the spectral radius of the block of the $T$ with "
        "two sectors, and the single modes between sectors, are below 1. The latter never exceed "
        "the radius of the block (Cauchy-Schwarz), so that the block decides. Moves within and "
        "between sectors do not mix on the manifold: their products are odd under its parity.",
        assumption="jumps of the minimiser are not seen: a necessary condition",
    )


def _quotient(force: Any, stiffness: Any) -> Any:
    return sp.Add(*(sp.cancel(t / stiffness) for t in sp.Add.make_args(force)))
