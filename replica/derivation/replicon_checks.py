"""What the steps of the replicon are compared with: four replicas written out."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath as mp
import sympy as sp

from replica.derivation.free_energy import BETA, average_over
from replica.derivation.numeric import compare, evaluate, random_point
from replica.derivation.reduction import put_explicit
from replica.derivation.step import CheckResult, Conclusion
from replica.model import LABEL, RATIO, Model
from replica.symbolic.averages import Expectation
from replica.symbolic.primitives import plain
from replica.symbolic.replicas import ReplicaMatrix
from replica.symbolic.tokens import write_out

SYMMETRIC = sp.ImmutableMatrix([[0, 1, -1, 0], [1, 0, 0, -1], [-1, 0, 0, 1], [0, -1, 1, 0]])
ANTISYMMETRIC = sp.ImmutableMatrix([[0, 1, -1, 0], [-1, 0, 1, 0], [1, -1, 0, 0], [0, 0, 0, 0]])
"""Replicon directions of four replicas, for the checks."""


class PolynomialToy:
    """Four replicas with ``exp(-beta loss)`` replaced by a polynomial: every moment is exact."""

    def __init__(self, names: list[str], sign: int) -> None:
        self.size = len(names)
        self.names = names
        size = self.size
        self.kind = SYMMETRIC if sign > 0 else ANTISYMMETRIC
        self.common = sp.Matrix(size, size, lambda i, j: sp.Rational(2 + 3 * (i == j), 7))
        self.single = sp.Matrix(size, size, lambda i, j: sp.Rational(1 + 4 * (i == j), 9))
        draw = sp.Matrix(size, size, lambda i, j: sp.Rational(2 * i + 3 * j + 1, 5))
        self.C = sp.ImmutableMatrix(draw + sign * draw.T)
        fields = sp.symbols(f"h0:{size}")
        weight = 1 + sum(sp.Rational(k + 1, 3) * h for k, h in enumerate(fields))
        weight += sp.Mul(*fields) / 2 if size > 1 else fields[0] ** 2 / 2
        self.fields, self.weight = fields, weight

    def direct(self) -> Any:
        """``d^2/dt^2 log E[prod p(h^a)]`` at ``Q + t u (x) C``, per ``sum u^2``."""
        fields = [sp.symbols(f"h{a}_0:{self.size}") for a in range(4)]
        product = sp.Mul(*(
            self.weight.xreplace(dict(zip(self.fields, f, strict=True))) for f in fields
        ))
        flat = [h for f in fields for h in f]
        polynomial = sp.Poly(sp.expand(product), *flat)
        base = ReplicaMatrix(sp.ImmutableMatrix(self.single), sp.ImmutableMatrix(self.common))
        covariance = sp.Matrix(base.explicit(4))
        move = sp.Matrix(sp.kronecker_product(self.kind, self.C))
        t = sp.Symbol("t")
        points = range(-2, 3)
        values = [gaussian_mean(polynomial, covariance + k * move) for k in points]
        curve = sp.interpolate(list(zip(points, values, strict=True)), t)
        zeroth, first, second = (sp.diff(curve, t, k).subs(t, 0) for k in range(3))
        return (second / zeroth - (first / zeroth) ** 2) / sum(x**2 for x in self.kind)

    def products(self) -> dict[Any, Any]:
        """``E[Z^4 Gamma Gamma']/E[Z^4]`` over the common field, by the sorted sector pairs."""
        noise = sp.symbols(f"t0:{self.size}")
        shifted = self.weight.xreplace({
            h: h + t for h, t in zip(self.fields, noise, strict=True)
        })
        inner = sp.Poly(sp.expand(shifted), *noise)
        Z = sum(
            c * gaussian_mean(sp.Poly({m: 1}, *noise), self.single) for m, c in inner.terms()
        )
        Z = sp.expand(Z)
        norm = gaussian_mean(sp.Poly(Z**4, *self.fields), self.common)
        gamma = {}
        for i, a in enumerate(self.names):
            for j, b in enumerate(self.names):
                x, y = self.fields[i], self.fields[j]
                gamma[a + b] = sp.expand(Z * sp.diff(Z, x, y) - sp.diff(Z, x) * sp.diff(Z, y))
        return {
            (p, q): gaussian_mean(sp.Poly(gamma[p] * gamma[q], *self.fields), self.common) / norm
            for p in gamma for q in gamma if p <= q
        }


def gaussian_mean(polynomial: Any, covariance: Any) -> Any:
    """``E p(x)`` for ``x ~ N(0, covariance)``, exactly, by Wick's theorem."""
    size = covariance.shape[0]
    entries = [
        [Fraction(int(covariance[i, j].p), int(covariance[i, j].q)) for j in range(size)]
        for i in range(size)
    ]

    @cache
    def moment(powers: tuple[int, ...]) -> Fraction:
        i = next((k for k, p in enumerate(powers) if p), None)
        if i is None:
            return Fraction(1)
        if sum(powers) % 2:
            return Fraction(0)
        rest = list(powers)
        rest[i] -= 1
        total = Fraction(0)
        for j, p in enumerate(rest):
            if p:
                left = list(rest)
                left[j] -= 1
                total += entries[i][j] * p * moment(tuple(left))
        return total

    total = Fraction(0)
    for powers, coefficient in polynomial.terms():
        total += Fraction(int(coefficient.p), int(coefficient.q)) * moment(powers)
    return sp.Rational(total.numerator, total.denominator)


def finite_difference_response(model: Model) -> tuple[sp.Matrix, sp.Matrix, Any]:
    """Hessian of the loss and ``V`` at a minimiser, and ``df/domega`` by central differences.

    The responses are made smaller until Newton's method finds the minimiser from the cavity field.
    """
    for scale in (1, 10, 100):
        try:
            return _response_at(model, sp.Rational(1, scale))
        except (ValueError, TypeError):  # no root, or one off the real axis
            continue
    return _response_at(model, sp.Rational(1, 1000))


def _response_at(model: Model, scale: Any) -> tuple[sp.Matrix, sp.Matrix, Any]:
    digits, length = 40, 2
    positions = [sp.Integer(p) for p in range(1, length + 1)]
    fields = [s.field(p) for s in model.sectors for p in positions]
    flat = sp.symbols(f"h0:{len(fields)}", real=True)
    loss = put_explicit(model.loss, model, length).xreplace(dict(zip(fields, flat, strict=True)))
    loss = plain(loss)
    point = random_point({s for s in loss.free_symbols if s not in flat} | {LABEL}, 5)
    loss = loss.xreplace(point)
    V = [scale * sp.Rational(1 + k, 6) for k, _ in enumerate(model.sectors) for _ in positions]
    omega = [sp.Rational(2 * k - 3, 5) for k in range(len(fields))]
    gradient = [sp.diff(loss, h) for h in flat]
    with mp.workdps(digits):
        slopes = sp.lambdify(flat, gradient, "mpmath")
        widths = [mp.mpf(v.p) / v.q for v in V]

        def minimiser(centre: list[Any]) -> Any:
            def system(*h: Any) -> list[Any]:
                return [g + (x - w) / v for g, x, w, v in
                        zip(slopes(*h), h, centre, widths, strict=True)]

            return mp.findroot(system, centre, tol=mp.mpf(10) ** -60, maxsteps=60)

        centre = [mp.mpf(w.p) / w.q for w in omega]
        found = minimiser(centre)
        step = mp.mpf(10) ** -12
        response = mp.zeros(len(fields))
        for j in range(len(fields)):
            ends = []
            for sign in (1, -1):
                moved = list(centre)
                moved[j] += sign * step
                end = minimiser(moved)
                ends.append([(end[i] - moved[i]) / widths[i] for i in range(len(fields))])
            for i in range(len(fields)):
                response[i, j] = (ends[0][i] - ends[1][i]) / (2 * step)
        at = {h: sp.Float(found[i], digits) for i, h in enumerate(flat)}
    hessian = sp.hessian(loss, flat).xreplace(at)
    return sp.Matrix(hessian), sp.Matrix(sp.diag(*V)), response


class RepliconToy:
    """The replicated exponent of four replicas with two samples of known ``Gamma``, two tokens.

    The multipliers' best move is found by solving the explicit linear system, and the curvature
    that is left is compared with what the operator says.
    """

    length = 2

    def __init__(self, model: Model) -> None:
        self.model = model
        self.names = [s.name for s in model.sectors]
        size = len(self.names)
        symbols = {RATIO, BETA, *(s.V for s in model.sectors)}
        self.point = random_point(symbols, 7)
        n = size * self.length
        self.samples = []
        for k in range(2):
            raw = sp.Matrix(n, n, lambda i, j, k=k: (3 * i + 5 * j + 7 * k) % 11 - 5)
            self.samples.append((raw + raw.T) / 6)

    def entry(self, sample: Any, a: int, c: int, p: int, q: int) -> Any:
        return sample[a * self.length + p, c * self.length + q]

    def cases(self) -> list[tuple[Any, dict[Any, Any]]]:
        """The samples as values of ``Df_ac(l, m) = Gamma/beta``."""
        found = []
        for sample in self.samples:
            values = {}
            for a, c in itertools.product(range(len(self.names)), repeat=2):
                function = sp.Function(f"Df_{self.names[a]}{self.names[c]}", real=True)
                for p, q in itertools.product(range(self.length), repeat=2):
                    key = function(sp.Integer(p + 1), sp.Integer(q + 1))
                    values[key] = self.entry(sample, a, c, p, q)
            found.append((sp.Rational(1, 2), values))
        return found

    def remaining(self, C: sp.Matrix) -> Any:
        """Half the second variation per ``beta^2 sum u^2``, the multipliers at their best."""
        size = len(self.names)
        V = [s.V.xreplace(self.point) for s in self.model.sectors]
        beta, alpha = self.point[BETA], self.point[RATIO]
        kind = SYMMETRIC if C == C.T else ANTISYMMETRIC
        total = sum(x**2 for x in kind)
        A = sp.Matrix(sp.kronecker_product(sp.eye(4), beta * sp.diag(*[1 / v for v in V])))
        A += sp.Matrix(sp.kronecker_product(sp.ones(4), sp.ones(size))) / 9
        inverse = A.inv()
        entries = sp.symbols(f"w0:{size * size}")
        E = sp.Matrix(size, size, entries)
        move = sp.Matrix(sp.kronecker_product(kind, E))
        symmetric = [move[i, j] - move[j, i] for i in range(4 * size) for j in range(i)]
        constraint = sp.solve([x for x in symmetric if x != 0], entries, dict=True)
        move = move.xreplace(constraint[0]) if constraint else move
        free = sorted(move.free_symbols, key=str)
        other = sp.Matrix(sp.kronecker_product(kind, C))
        form = sp.expand((inverse * move * inverse * move).trace() / 2 - (move * other).trace())
        best = sp.solve([sp.diff(form, x) for x in free], free, dict=True)[0]
        value = form.xreplace(best)
        wide = sp.Matrix(sp.kronecker_product(C, sp.eye(self.length)))
        for sample in self.samples:
            G = beta * sample
            value += alpha * total * (wide * G * wide.T * G).trace() / 4
        return value / (beta**2 * total)

    def compare(self, found: Conclusion) -> CheckResult:
        size = len(self.names)
        V = [s.V.xreplace(self.point) for s in self.model.sectors]
        values = {}
        cases = self.cases()
        for name, expr in found.items():
            held = sp.sympify(expr).atoms(Expectation)
            written = expr.xreplace({e: _written(e, self.length) for e in held})
            values[name] = sp.sympify(average_over(written, cases)).xreplace(self.point)
        pairs = []
        shapes = [
            [int(i == k) for i in range(size)] for k in range(size)
        ] + [[1] * size, [1, -2][:size]]
        T = sp.Matrix(size, size, lambda i, j: values[f"T_{self.names[i]}{self.names[j]}"])
        scale = sp.diag(*[1 / v**2 for v in V])
        for shape in shapes:
            c = sp.Matrix(shape)
            predicted = (c.T * scale * (T * c - c))[0, 0] / 2
            pairs.append((evaluate(predicted, {}), evaluate(self.remaining(sp.diag(*shape)), {})))
        for i, j in itertools.combinations(range(size), 2):
            for word, sign in (("plus", 1), ("minus", -1)):
                C = sp.zeros(size)
                C[i, j], C[j, i] = 1, sign
                mode = values[f"T_{self.names[i]}{self.names[j]}_{word}"]
                predicted = (mode - 1) / (V[i] * V[j])
                pairs.append((evaluate(predicted, {}), evaluate(self.remaining(C), {})))
        # the block is known by its quadratic form and by being similar to a symmetric matrix
        for i, j in itertools.combinations(range(size), 2):
            pairs.append((
                evaluate(scale[i, i] * T[i, j], {}), evaluate(scale[j, j] * T[j, i], {})
            ))
        return compare(pairs, "four replicas, multipliers eliminated numerically")


def _written(e: Any, length: int) -> Any:
    """An expectation with its tokens written out."""
    return sp.Expr.__new__(Expectation, write_out(e.body, length), e.random)
