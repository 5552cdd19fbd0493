"""Sums over tokens and their exact derivatives for a symbolic number of tokens.

A token field is an applied undefined function of an index, ``chi(l)``. A sum binds its index, so
one expression stands for every sequence length. Differentiating by ``chi(j)`` collapses the
Kronecker deltas on the spot: the derivative of ``sum_l F(chi_l)`` is the one term ``F'(chi_j)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy as sp
from sympy.core.function import AppliedUndef

RELEVANT = sp.Symbol("epsilon", integer=True)
"""Index of the relevant token. By permutation equivariance code puts it first."""

LENGTH = sp.Symbol("L", integer=True, positive=True)


def index(name: str) -> sp.Symbol:
    """A token index."""
    return sp.Symbol(name, integer=True)


def _depth(expr: sp.Basic) -> int:
    if isinstance(expr, _Bound):
        return int(expr.bound.name[1:])
    return max((_depth(a) for a in expr.args), default=0)


class _Bound(sp.Expr):
    """An expression whose argument 1 is an index bound in argument 0.

    The bound symbol gets a canonical name (its nesting depth), so that equal expressions compare
    equal, and substitution never captures it.
    """

    def __new__(cls, body: Any, bound: Any, *rest: Any) -> Any:
        body = sp.sympify(body)
        depth = _depth(body) + 1
        canonical = sp.Symbol(f"l{depth}", integer=True)
        while canonical != bound and canonical in body.free_symbols:
            depth += 1
            canonical = sp.Symbol(f"l{depth}", integer=True)
        if canonical != bound:
            body = body.xreplace({bound: canonical})
        return super().__new__(cls, body, canonical, *rest)

    is_commutative = True

    @property
    def body(self) -> Any:
        return self.args[0]

    @property
    def bound(self) -> Any:
        return self.args[1]

    @property
    def free_symbols(self) -> set[sp.Basic]:
        free: set[sp.Basic] = self.body.free_symbols - {self.bound}
        for rest in self.args[2:]:
            free |= rest.free_symbols
        return free

    def at(self, position: Any) -> Any:
        """The body with its bound index replaced."""
        return self.body.xreplace({self.bound: position})

    def _eval_subs(self, old: Any, new: Any) -> Any:
        new = sp.sympify(new)
        body, bound = self.body, self.bound
        if bound in new.free_symbols:  # rename first: the new symbol is another one
            fresh = sp.Dummy("l", integer=True)
            body, bound = body.xreplace({bound: fresh}), fresh
        if old != bound and old != self.bound:
            body = body.subs(old, new)
        return type(self)(body, bound, *(a.subs(old, new) for a in self.args[2:]))

    def _xreplace(self, rule: Any) -> Any:
        if self in rule:
            return rule[self], True
        if not hasattr(rule, "items"):  # SymPy's Transform: a predicate, not a mapping
            return super()._xreplace(rule)
        # a replacement that brings in the bound symbol would be captured, unless what it
        # replaces holds that symbol too and so is meant to lie inside this sum
        if any(
            self.bound in v.free_symbols and self.bound not in k.free_symbols
            for k, v in rule.items()
        ):
            fresh = sp.Dummy("l", integer=True)
            body, bound = self.body.xreplace({self.bound: fresh}), fresh
        else:
            body, bound = self.body, self.bound
        inner = {k: v for k, v in rule.items() if k != self.bound}
        new_body = body.xreplace(inner)
        rest = tuple(a.xreplace(rule) for a in self.args[2:])  # outside the binding
        if new_body == body and rest == self.args[2:]:
            return self, False
        return type(self)(new_body, bound, *rest), True

    def _eval_is_extended_real(self) -> bool:
        return True


class TokenSum(_Bound):
    """``sum_{l=1}^{L} body(l)``."""

    def __new__(cls, body: Any, bound: Any) -> Any:
        body = sp.sympify(body)
        if body == 0:
            return sp.S.Zero
        return super().__new__(cls, body, bound)

    def _eval_derivative(self, symbol: Any) -> Any:
        if symbol == self.bound:
            return sp.S.Zero
        return TokenSum(sp.diff(self.body, symbol), self.bound)

    def _eval_is_nonnegative(self) -> bool | None:
        return True if self.body.is_nonnegative else None


class TokenWeights(_Bound):
    """Normalised weight ``exp(u(at))/sum_l exp(u(l))``; ``body`` is the log weight ``u``."""

    def __new__(cls, body: Any, bound: Any, at: Any) -> Any:
        return super().__new__(cls, body, bound, at)

    @property
    def position(self) -> Any:
        return self.args[2]

    def _eval_is_positive(self) -> bool:
        return True

    def weight(self, position: Any) -> Any:
        return type(self)(self.body, self.bound, position)

    def _eval_derivative(self, symbol: Any) -> Any:
        score = sp.diff(self.body, symbol)
        if score == 0:
            return sp.S.Zero
        return self * Centred.of(score, self.bound, self)

    def explicit(self) -> Any:
        return sp.exp(self.at(self.position)) / TokenSum(sp.exp(self.body), self.bound)


class LocationProbability(TokenWeights):
    """Token weights that are the posterior probability of the relevant token's place."""


class Centred(sp.Expr):
    """``body(at) - sum_l w_l body(l)`` with the normalised weights of ``log_weight``.

    Kept whole because the difference cancels when one weight is close to 1; printers centre it on
    the largest token.
    """

    is_commutative = True

    def __new__(cls, values: Any, weights: Any) -> Any:
        if values == 0:
            return sp.S.Zero
        return super().__new__(cls, values, weights)

    @classmethod
    def of(cls, body: Any, bound: Any, weights: TokenWeights) -> Any:
        """``body(at) - sum_l w_l body(l)``, ``at`` being the position of ``weights``."""
        outside, inside = sp.sympify(body).as_independent(bound, as_Add=False)
        if bound not in sp.sympify(inside).free_symbols:
            return sp.S.Zero  # a constant is its own average
        return outside * cls(TokenSum(inside, bound), weights)

    @property
    def values(self) -> Any:
        return self.args[0]

    @property
    def weights(self) -> Any:
        return self.args[1]

    @property
    def average(self) -> Any:
        bound = self.values.bound
        return TokenSum(self.values.body * self.weights.weight(bound), bound)

    def explicit(self) -> Any:
        return self.values.at(self.weights.position) - self.average

    def _rebuild(self, change: Callable[[Any], Any]) -> Any:
        values, weights = change(self.values), change(self.weights)
        if values == 0:
            return sp.S.Zero
        if not isinstance(values, TokenSum):
            raise TypeError("a centred value must stay a function of the token")
        return Centred(values, weights)

    def _eval_subs(self, old: Any, new: Any) -> Any:
        return self._rebuild(lambda a: a.subs(old, new))

    def _xreplace(self, rule: Any) -> Any:
        if self in rule:
            return rule[self], True
        new = self._rebuild(lambda a: a.xreplace(rule))
        return new, new != self

    def _eval_derivative(self, symbol: Any) -> Any:
        return sp.diff(self.explicit(), symbol)

    def _eval_is_extended_real(self) -> bool:
        return True


def outermost(expr: sp.Basic, kinds: tuple[type, ...]) -> list[Any]:
    """Outermost nodes of the given kinds, in a stable order."""
    found: list[Any] = []

    def walk(node: sp.Basic) -> None:
        if isinstance(node, kinds):
            if node not in found:
                found.append(node)
            return
        for a in node.args:
            walk(a)

    walk(expr)
    return found


def token_derivative(expr: Any, field: Any, j: sp.Symbol) -> Any:
    """Derivative of ``expr`` by ``field(j)``, ``j`` a free index that ``expr`` does not hold.

    Free occurrences ``field(i)`` give ``KroneckerDelta(i, j)``; sums collapse theirs.
    """
    deltas, smooth = _split_derivative(sp.sympify(expr), field, j)
    return smooth + sum(
        (coefficient * _delta(i, j) for i, coefficient in deltas.items()), sp.S.Zero
    )


def _delta(i: Any, j: Any) -> Any:
    return sp.KroneckerDelta(*sorted((i, j), key=lambda s: s.name))


def _split_derivative(expr: Any, field: Any, j: sp.Symbol) -> tuple[dict[Any, Any], Any]:
    """``(coefficients of delta(i, j) by i, the rest)`` of the derivative by ``field(j)``."""
    nodes = outermost(expr, (TokenSum, TokenWeights, Centred, AppliedUndef))
    nodes = [n for n in nodes if _mentions(n, field)]
    dummies = {n: sp.Dummy(f"t{i}", real=True) for i, n in enumerate(nodes)}
    back = {d: n for n, d in dummies.items()}
    flat = expr.xreplace(dummies)
    deltas: dict[Any, Any] = {}
    smooth: Any = sp.S.Zero

    def add_delta(i: Any, value: Any) -> None:
        deltas[i] = deltas.get(i, sp.S.Zero) + value

    for node, dummy in dummies.items():
        outer = sp.diff(flat, dummy).xreplace(back)
        if outer == 0:
            continue
        if isinstance(node, AppliedUndef):
            add_delta(node.args[0], outer)
        elif isinstance(node, TokenSum):
            smooth += outer * _sum_derivative(node, field, j)
        elif isinstance(node, TokenWeights):
            score = _score(node, field, j)
            add_delta(node.position, outer * node * score.xreplace({j: node.position}))
            smooth -= outer * node * node.weight(j) * score
        else:
            inner_deltas, inner_smooth = _split_derivative(node.explicit(), field, j)
            for i, value in inner_deltas.items():
                add_delta(i, outer * value)
            smooth += outer * inner_smooth
    return deltas, smooth


def _score(weights: TokenWeights, field: Any, j: sp.Symbol) -> Any:
    """``d u(j)/d field(j)`` of a log weight that acts token by token."""
    deltas, smooth = _split_derivative(weights.body, field, j)
    if smooth != 0 or any(i != weights.bound for i in deltas):
        raise NotImplementedError("a log weight that couples tokens is not supported")
    return deltas.get(weights.bound, sp.S.Zero).xreplace({weights.bound: j})


def _sum_derivative(node: TokenSum, field: Any, j: sp.Symbol) -> Any:
    """Derivative of a token sum; weights at the summed index give the centred form."""
    bound = node.bound
    centred_forms = {c: c.explicit() for c in outermost(node.body, (Centred,))}
    if centred_forms:  # their weights are needed as such below
        node = TokenSum(node.body.xreplace(centred_forms), bound)
    weights = [
        w for w in outermost(node.body, (TokenWeights, TokenSum, Centred))
        if isinstance(w, TokenWeights) and w.position == bound and _mentions(w, field)
    ]
    result: Any = sp.S.Zero
    held = {w: sp.Dummy(f"w{i}", positive=True) for i, w in enumerate(weights)}
    back = {d: w for w, d in held.items()}
    body = node.body.xreplace(held)
    for w, dummy in held.items():
        slope = sp.diff(body, dummy).xreplace(back)
        # sum_l slope_l dw_l/dfield_j = w_j u'_j (slope_j - sum_l w_l slope_l)
        centred = Centred.of(slope, bound, w.weight(j))
        result += w.weight(j) * _score(w, field, j) * centred
    deltas, smooth = _split_derivative(body, field, j)
    for i, value in deltas.items():
        value = value.xreplace(back)
        if i == bound:
            result += value.xreplace({bound: j})
        else:
            result += TokenSum(value, bound) * _delta(i, j)
    return result + TokenSum(sp.sympify(smooth).xreplace(back), bound)


def _mentions(node: sp.Basic, field: Any) -> bool:
    return any(a.func == field for a in node.atoms(AppliedUndef))


def expand_sums(expr: Any) -> Any:
    """Split sums over terms and pull out factors that do not depend on the summed token."""

    def rule(node: TokenSum) -> Any:
        body = sp.expand(expand_sums(node.body))
        total: Any = sp.S.Zero
        for term in sp.Add.make_args(body):
            outside, inside = term.as_independent(node.bound, as_Add=False)
            inside = sp.sympify(inside)
            if node.bound not in inside.free_symbols:
                total += term * LENGTH
            else:
                total += outside * TokenSum(inside, node.bound)
        return total

    tops = outermost(sp.sympify(expr), (TokenSum,))
    return sp.sympify(expr).xreplace({t: rule(t) for t in tops})


def write_out(expr: Any, length: int) -> Any:
    """The expression for an explicit number of tokens, fields becoming ``chi(1), chi(2), ...``.

    The relevant token is token 1. Independent of the derivative rules above, so checks use it.
    """
    positions = [sp.Integer(i) for i in range(1, length + 1)]

    def go(node: Any) -> Any:
        if isinstance(node, TokenSum):
            return sp.Add(*(go(node.at(p)) for p in positions))
        if isinstance(node, TokenWeights):
            return go(sp.exp(node.at(node.position))) / sp.Add(
                *(go(sp.exp(node.at(p))) for p in positions)
            )
        if isinstance(node, Centred):
            return go(node.explicit())
        if not node.args:
            return node
        return node.func(*(go(a) for a in node.args))

    substituted = sp.sympify(expr).subs({RELEVANT: sp.Integer(1), LENGTH: sp.Integer(length)})
    return go(substituted)
