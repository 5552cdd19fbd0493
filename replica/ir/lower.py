"""From derived SymPy expressions to programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp
from sympy.core.function import AppliedUndef

from replica.errors import UnsupportedNodeError
from replica.ir.program import Builder, Program, Shape
from replica.ir.table import BY_CLASS
from replica.symbolic.tokens import LENGTH, RELEVANT, Centred, TokenSum, TokenWeights

Positions = Mapping[Any, Shape]
"""Free token indices to the axis they run along: token, row or col."""


def lower(
    name: str,
    outputs: Mapping[str, Any],
    inputs: Mapping[str, Shape],
    positions: Positions | None = None,
    definitions: Mapping[sp.Symbol, Any] | None = None,
) -> Program:
    """Lower named expressions to one program.

    Parameters
    ----------
    outputs
        Names to expressions.
    inputs
        Names of symbols and token fields to their shape.
    positions
        Axis of each free token index of the outputs.
    definitions
        Symbols that stand for a common factor, to their expression.

    Raises
    ------
    UnsupportedNodeError
        For a node with no entry in the table, before any code exists.
    """
    lowering = _Lowering(inputs, definitions or {})
    values = {k: lowering.value(sp.sympify(e), dict(positions or {})) for k, e in outputs.items()}
    used = {i.data for i in lowering.build.instructions if i.op == "input"}
    kept = [(n, s) for n, s in inputs.items() if n in used]
    return lowering.build.finish(name, kept, values)


def _pairs_with(body: Any, bound: Any) -> bool:
    """Whether the sum runs over the first index of a field of two tokens."""
    return any(len(a.args) == 2 and a.args[0] == bound for a in body.atoms(AppliedUndef))


class _Lowering:
    def __init__(self, inputs: Mapping[str, Shape], definitions: Mapping[sp.Symbol, Any]) -> None:
        self.inputs = inputs
        self.definitions = definitions
        self.build = Builder()

    def constant(self, number: Any) -> int:
        return self.build.emit("const", (), "uniform", sp.sympify(number))

    def value(self, e: Any, at: dict[Any, Shape]) -> int:
        """The instruction that computes an expression."""
        found = self._value(e, at)
        self.build.origins.setdefault(found, e)
        return found

    def _value(self, e: Any, at: dict[Any, Shape]) -> int:
        if e.is_Number or isinstance(e, sp.NumberSymbol):
            if e.is_finite is False or e is sp.nan:
                raise UnsupportedNodeError(e)
            return self.constant(e)
        if isinstance(e, sp.Symbol):
            return self.symbol(e)
        if isinstance(e, AppliedUndef):
            return self.field(e, at)
        if isinstance(e, sp.Add):
            return self.add(e, at)
        if isinstance(e, sp.Mul):
            return self.mul(e, at)
        if isinstance(e, sp.Pow):
            return self.power(e, at)
        if isinstance(e, TokenSum) and _pairs_with(e.body, e.bound):
            # both indices of a two-index field: rows are summed, what is left runs over columns
            body = self.value(e.body, {**{i: "col" for i in at}, e.bound: "row"})
            return self.build.emit("row_sum", (body,), "token")
        if isinstance(e, TokenSum):
            body = self.value(e.body, {**at, e.bound: "token"})
            if self.build.shape(body) == "token":
                return self.build.emit("token_sum", (body,), "node")
            return self.build.elementwise("mul", body, self.length())
        if isinstance(e, TokenWeights):
            return self.move(self.weights(e), e.position, at)
        if isinstance(e, Centred):
            values = self.value(e.values.body, {e.values.bound: "token"})
            if self.build.shape(values) != "token":
                return self.constant(0)
            args = (values, self.weights(e.weights))
            return self.move(self.build.emit("centre", args, "token"), e.weights.position, at)
        if isinstance(e, sp.KroneckerDelta):
            return self.delta(e, at)
        if isinstance(e, sp.Max | sp.Min):
            return self.extreme("maximum" if isinstance(e, sp.Max) else "minimum", e, at)
        if isinstance(e, sp.log) and isinstance(e.args[0], TokenSum):
            inside = e.args[0]
            if isinstance(inside.body, sp.exp):
                score = self.value(inside.body.args[0], {**at, inside.bound: "token"})
                if self.build.shape(score) == "token":
                    return self.build.emit("logsumexp", (score,), "node")
        if isinstance(e, sp.Heaviside) and e.args[1:] not in ((), (sp.S.Half,)):
            raise UnsupportedNodeError(e)  # the declared rule is 1/2 at the kink
        primitive = BY_CLASS.get(type(e))
        if primitive is None:
            raise UnsupportedNodeError(e)
        return self.build.elementwise("call", self.value(e.args[0], at), data=primitive.name)

    def symbol(self, e: Any) -> int:
        if e in self.definitions:
            return self.value(self.definitions[e], {})
        if e == LENGTH:
            return self.length()
        if e.name not in self.inputs:
            raise UnsupportedNodeError(e)
        return self.build.emit("input", (), self.inputs[e.name], e.name)

    def length(self) -> int:
        return self.build.emit("length", (), "uniform")

    def field(self, e: Any, at: dict[Any, Shape]) -> int:
        name = e.func.__name__
        if self.inputs.get(name) == "pair" and [at.get(a) for a in e.args] == ["row", "col"]:
            return self.build.emit("input", (), "pair", name)
        if self.inputs.get(name) != "token":
            raise UnsupportedNodeError(e)
        return self.move(self.build.emit("input", (), "token", name), e.args[0], at)

    def weights(self, e: Any) -> int:
        return self.build.emit("softmax", (self.value(e.body, {e.bound: "token"}),), "token")

    def move(self, token: int, position: Any, at: dict[Any, Shape]) -> int:
        """A token value at a position: itself, the first token, or along a matrix axis."""
        if position == RELEVANT:
            return self.build.emit("pick", (token,), "node")
        axis = at.get(position)
        if axis is None:
            raise UnsupportedNodeError(position)
        if axis == "token":
            return token
        return self.build.emit(axis, (token,), axis)

    def delta(self, e: Any, at: dict[Any, Shape]) -> int:
        first, second = e.args
        if RELEVANT in (first, second):
            other = second if first == RELEVANT else first
            return self.move(self.build.emit("relevant", (), "token"), other, at)
        if {at.get(first), at.get(second)} != {"row", "col"}:
            raise UnsupportedNodeError(e)
        return self.build.emit("eye", (), "pair")

    def add(self, e: Any, at: dict[Any, Shape]) -> int:
        terms = list(e.args)
        total: int | None = None
        # 1 + erf(u) = erfc(-u) keeps its digits where erf is close to -1
        for t in terms:
            if isinstance(t, sp.erf) and sp.S.One in terms:
                terms.remove(t)
                terms.remove(sp.S.One)
                argument = self.build.elementwise("neg", self.value(t.args[0], at))
                total = self.build.elementwise("call", argument, data="erfc")
                break
        terms.sort(key=lambda t: t.could_extract_minus_sign())
        for t in terms:
            negative = t.could_extract_minus_sign() and total is not None
            v = self.value(-t if negative else t, at)
            if total is None:
                total = v
            else:
                total = self.build.elementwise("sub" if negative else "add", total, v)
        assert total is not None
        return total

    def mul(self, e: Any, at: dict[Any, Shape]) -> int:
        """Numerator over denominator, cheap shapes first."""
        above: list[int] = []
        below: list[int] = []
        sign = 1
        for a in e.args:
            if a is sp.S.NegativeOne:
                sign = -1
            elif a.is_Rational and a.q != 1 and abs(a.p) == 1:
                sign *= int(a.p)
                below.append(self.constant(a.q))
            elif isinstance(a, sp.Pow) and a.exp.is_number and a.exp.is_negative:
                below.append(self.value(a.base ** (-a.exp), at))
            else:
                above.append(self.value(a, at))
        top = self.product(above)
        if below:
            bottom = self.product(below)
            assert bottom is not None
            one = self.constant(1)
            if top is None or self.build.shape(bottom) == self.build.shape(top):
                top = self.build.elementwise("div", one if top is None else top, bottom)
            else:  # one division for all tokens or samples, then products
                top = self.build.elementwise(
                    "mul", self.build.elementwise("div", one, bottom), top
                )
        if top is None:
            top = self.constant(1)
        return top if sign > 0 else self.build.elementwise("neg", top)

    def extreme(self, op: str, e: Any, at: dict[Any, Shape]) -> int:
        first, *rest = sorted(e.args, key=sp.default_sort_key)
        result = self.value(first, at)
        for a in rest:
            result = self.build.elementwise(op, result, self.value(a, at))
        return result

    def product(self, values: list[int]) -> int | None:
        order = {"uniform": 0, "node": 1, "token": 2, "row": 2, "col": 2, "pair": 3}
        result: int | None = None
        for v in sorted(values, key=lambda v: order[self.build.shape(v)]):
            result = v if result is None else self.build.elementwise("mul", result, v)
        return result

    def power(self, e: Any, at: dict[Any, Shape]) -> int:
        base, exponent = e.base, e.exp
        if not exponent.is_Rational or exponent.q not in (1, 2) or abs(exponent) > 64:
            raise UnsupportedNodeError(e)
        if exponent.is_negative:
            below = self.value(base ** (-exponent), at)
            return self.build.elementwise("div", self.constant(1), below)
        value = self.value(base, at)
        whole, half = divmod(int(2 * exponent), 2)
        result = self.build.elementwise("sqrt", value) if half else None
        square = value
        while whole:
            if whole & 1:
                result = square if result is None else self.build.elementwise(
                    "mul", result, square
                )
            whole >>= 1
            if whole:
                square = self.build.elementwise("mul", square, square)
        return self.constant(1) if result is None else result
