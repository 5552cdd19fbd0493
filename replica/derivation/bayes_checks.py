"""What the Bayes-optimal steps are compared with: two tokens, every field on a Gaussian grid."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import sympy as sp
from sympy.core.function import AppliedUndef

from replica.model import LABEL, NOISE_STD, RATIO, Array, Model
from replica.symbolic.averages import Expectation
from replica.symbolic.tokens import LENGTH, RELEVANT, write_out

POINTS = 18
"""Nodes of the Gauss-Hermite rule in each of the five directions."""
COUPLING = 0.35
"""Strength of the stand-in weight where the model's has no closed form."""


class BayesToy:
    """Free entropy and its ingredients by quadrature, from the definitions alone.

    Without a closed form the weight is replaced by
    ``g(l, chi) = exp(a (chi_l - chi_m) - a^2 rho)``, which couples both tokens and is normalised;
    its smoothed form and score are put for the abstract ``G`` and its derivatives.
    """

    def __init__(self, model: Model, closed: bool) -> None:
        self.model, self.closed = model, closed
        self.k, self.v = model.sectors
        nodes, weights = np.polynomial.hermite_e.hermegauss(POINTS)
        weights = weights / weights.sum()
        axes = [nodes] * 5
        grid = np.meshgrid(*axes, indexing="ij")
        self.normal = [g.ravel() for g in grid]  # two keys, two values, label noise
        mass = np.ones(())
        for _ in range(5):
            mass = np.multiply.outer(mass, weights)
        self.mass = mass.ravel()
        self.line = (nodes, weights)
        self.values = {
            RATIO: 1.7, NOISE_STD: 0.8, sp.Symbol("nu", nonnegative=True): 0.6,
            self.k.q: 0.35, self.v.q: 0.45, self.k.q_hat: 0.6, self.v.q_hat: 1.1,
        }
        for s in model.sectors:
            for extra in sp.sympify(s.rho).free_symbols:
                self.values[extra] = 1.3
        self.rho = {s.name: float(sp.sympify(s.rho).xreplace(self._floats())) for s in
                    model.sectors}
        self.weights = [self._weight(p) for p in range(2)] if closed else []
        self.fields = cache(self._fields)  # the smoothed weights cost most of every average

    def _floats(self) -> dict[Any, Any]:
        return {s: sp.Float(x) for s, x in self.values.items()}

    def log_g(self, position: int, chi: list[Array]) -> Array:
        """``log g`` at a token, from the model or the stand-in."""
        if not self.closed:
            other = 1 - position
            gap = chi[position] - chi[other]
            return np.asarray(COUPLING * gap - COUPLING**2 * self.rho[self.k.name])
        return np.asarray(self.weights[position](*chi)) + 0.0 * chi[0]

    def _weight(self, position: int) -> Any:
        """The model's ``log g`` at a token as a function of both keys."""
        expr = sp.sympify(self.model.log_weight).xreplace({RELEVANT: sp.Integer(position + 1)})
        written = write_out(expr, 2).xreplace(self._floats())
        names = [sp.Symbol(f"c{p}") for p in range(2)]
        flat = written.xreplace({
            self.k.teacher(sp.Integer(p + 1)): names[p] for p in range(2)
        })
        return sp.lambdify(names, flat, "numpy")

    def smoothed(self, position: int, omega: list[Array], q: float) -> Array:
        """``G_l(omega) = E g(l, omega + sqrt(rho - q) t)`` by quadrature over both tokens."""
        width = np.sqrt(self.rho[self.k.name] - q)
        nodes, weights = self.line
        total = np.zeros_like(omega[0])
        for s, a in zip(nodes, weights, strict=True):
            for t, b in zip(nodes, weights, strict=True):
                total += a * b * np.exp(
                    self.log_g(position, [omega[0] + width * s, omega[1] + width * t])
                )
        return total

    def _fields(
        self, q_k: float, q_v: float
    ) -> tuple[list[Array], list[Array], Array, list[Array]]:
        """Cavity fields on the grid, the label given the first token, and the two ``G``."""
        omega_k = [np.sqrt(q_k) * x for x in self.normal[:2]]
        omega_v = [np.sqrt(q_v) * x for x in self.normal[2:4]]
        s = np.sqrt(self.rho[self.v.name] - q_v + self.values[NOISE_STD] ** 2)
        label = omega_v[0] + s * self.normal[4]
        plane = POINTS**3  # the keys vary slowest: G on the plane of both keys, then spread
        small = [w[::plane] for w in omega_k]
        G = [np.repeat(self.smoothed(p, small, q_k), plane) for p in range(2)]
        return omega_k, omega_v, label, G

    def free_entropy(self, q_k: float, q_v: float) -> float:
        """``E log Z_out`` under the law of the data, the relevant token first by symmetry."""
        _, omega_v, label, G = self.fields(q_k, q_v)
        variance = self.rho[self.v.name] - q_v + self.values[NOISE_STD] ** 2
        Z = sum(
            g * np.exp(-((label - w) ** 2) / (2 * variance))
            for g, w in zip(G, omega_v, strict=True)
        ) / (2 * np.sqrt(2 * np.pi * variance))
        return float(np.sum(self.mass * G[0] * np.log(Z)))

    def slope(self, which: str) -> float:
        """``2 alpha d/dq E log Z_out`` by a five-point rule."""
        q = [self.values[self.k.q], self.values[self.v.q]]
        i = 0 if which == self.k.name else 1
        h = 1e-2
        total = 0.0
        for shift, weight in ((1, 8.0), (-1, -8.0), (2, -1.0), (-2, 1.0)):
            moved = list(q)
            moved[i] += shift * h
            total += weight * self.free_entropy(*moved) / (12 * h)
        return float(2 * self.values[RATIO] * total)

    def average(self, expr: Any) -> float:
        """A derived expression, its averages taken over the law on the grid."""
        q_k, q_v = self.values[self.k.q], self.values[self.v.q]
        omega_k, omega_v, label, G = self.fields(q_k, q_v)
        held = sorted(sp.sympify(expr).atoms(Expectation), key=sp.default_sort_key)
        numbers = {}
        for e in held:
            body = write_out(e.body, 2).xreplace({LENGTH: sp.Integer(2)})
            stand_in: dict[Any, sp.Symbol] = {}
            arrays: list[Array] = []
            for a in sorted(body.atoms(AppliedUndef), key=sp.default_sort_key):
                stand_in[a] = sp.Symbol(f"a{len(arrays)}")
                arrays.append(self._array(a, omega_k, omega_v, G))
            names = [*stand_in.values(), LABEL]
            flat = body.xreplace(stand_in).xreplace(self._floats())
            with np.errstate(all="ignore"):  # a wrong equation may overflow: then it is noticed
                value = sp.lambdify(names, flat, "numpy")(*arrays, label)
            numbers[e] = sp.Float(complex(np.sum(self.mass * G[0] * value)).real)
        return float(sp.sympify(expr).xreplace(numbers).xreplace(self._floats()))

    def _array(
        self, a: Any, omega_k: list[Array], omega_v: list[Array], G: list[Array]
    ) -> Array:
        name, place = a.func.__name__, [int(p) - 1 for p in a.args]
        if name == self.k.cavity.__name__:
            return omega_k[place[0]]
        if name == self.v.cavity.__name__:
            return omega_v[place[0]]
        if name == "logG":
            return np.asarray(np.log(G[place[0]]))
        if name == "score":  # d log G_l / d omega_m of the stand-in
            return np.full_like(label_of(G), COUPLING if place[0] == place[1] else -COUPLING)
        raise ValueError(name)

    def prediction_error(self) -> float:
        """``E (y - posterior mean)^2`` for a fresh sample whose label is not seen."""
        q_k, q_v = self.values[self.k.q], self.values[self.v.q]
        _, omega_v, _, G = self.fields(q_k, q_v)
        P = [g / (G[0] + G[1]) for g in G]
        mean = sum(p * w for p, w in zip(P, omega_v, strict=True))
        rest = self.rho[self.v.name] - q_v + self.values[NOISE_STD] ** 2
        return float(np.sum(self.mass * G[0] * ((omega_v[0] - mean) ** 2 + rest)))

    def moments(self) -> dict[str, float]:
        """Mean and second moment of the key's cavity fields under the tilted law."""
        q_k, q_v = self.values[self.k.q], self.values[self.v.q]
        omega_k, _, _, G = self.fields(q_k, q_v)
        weight = self.mass * G[0]
        return {
            "total": float(weight.sum()),
            **{f"mean{p}": float(np.sum(weight * omega_k[p])) for p in range(2)},
            **{f"square{p}": float(np.sum(weight * omega_k[p] ** 2)) for p in range(2)},
        }


def label_of(G: list[Array]) -> Array:
    """An array of the grid's shape."""
    return G[0]
