"""Data averages and minima over fields, each with its derivative rule."""

from __future__ import annotations

from typing import Any

import sympy as sp

from replica.errors import DerivationError


class Expectation(sp.Expr):
    """Average of ``body`` over the data law. ``random`` lists the fields and symbols averaged over.

    The law does not depend on the order parameters (they enter through reparametrised noise), so
    derivatives pass inside. An average of something not random is that thing.
    """

    is_commutative = True

    def __new__(cls, body: Any, random: Any) -> Any:
        body = sp.sympify(body)
        random = sp.Tuple(*random)
        coefficient, rest = body.as_independent(*_symbols_of(body, random), as_Add=False)
        if not _symbols_of(sp.sympify(rest), random):
            return body
        if coefficient != 1:
            return coefficient * Expectation(rest, random)
        return super().__new__(cls, body, random)

    @property
    def body(self) -> Any:
        return self.args[0]

    @property
    def random(self) -> Any:
        return self.args[1]

    @property
    def free_symbols(self) -> set[sp.Basic]:
        names = {str(r) for r in self.random}
        return {s for s in self.body.free_symbols if s.name not in names}

    def _eval_derivative(self, symbol: Any) -> Any:
        return Expectation(sp.diff(self.body, symbol), self.random)

    def _eval_subs(self, old: Any, new: Any) -> Any:
        if str(old) in {str(r) for r in self.random}:  # bound by the average
            return self
        return Expectation(self.body.subs(old, new), self.random)

    def _eval_is_extended_real(self) -> bool:
        return True


def _symbols_of(body: Any, random: Any) -> list[Any]:
    """The random symbols and random field values that ``body`` holds."""
    from sympy.core.function import AppliedUndef

    names = {str(r) for r in random}
    found: list[Any] = [s for s in body.free_symbols if s.name in names]
    found += [a for a in body.atoms(AppliedUndef) if a.func.__name__ in names]
    found += list(body.atoms(Minimum, Proximal, LogPartition, OneSamplePartition))
    return sorted(found, key=sp.default_sort_key)


class OneSamplePartition(sp.Expr):
    """``Z_1 = int Dt exp(-beta loss)``: the replica noise integrated out of one sample.

    Arguments: the loss as a function of the fields, and the fields with the replica noise inside.
    """

    is_commutative = True

    @property
    def free_symbols(self) -> set[sp.Basic]:
        return set(self.args[0].free_symbols)

    def _eval_is_positive(self) -> bool:
        return True


class LogPartition(sp.Expr):
    """``log Z_1`` of :class:`OneSamplePartition`."""

    is_commutative = True

    def _eval_is_extended_real(self) -> bool:
        return True


class Minimum(sp.Expr):
    """``min over the fields of objective``. Derivatives follow the envelope theorem.

    Source: the derivative of a minimum by a parameter is the explicit derivative of the objective
    at the minimiser (Danskin); where the minimiser jumps the minimum itself stays continuous.
    """

    is_commutative = True

    def __new__(cls, objective: Any, fields: Any) -> Any:
        return super().__new__(cls, sp.sympify(objective), sp.Tuple(*fields))

    @property
    def objective(self) -> Any:
        return self.args[0]

    @property
    def fields(self) -> Any:
        return self.args[1]

    def _eval_derivative(self, symbol: Any) -> Any:
        slope = sp.diff(self.objective, symbol)
        return at_minimiser(slope, self)

    def _eval_is_extended_real(self) -> bool:
        return True


class Proximal(sp.Expr):
    """The minimiser of one field at one token: ``argmin objective`` of a :class:`Minimum`.

    It depends on every parameter of the objective, so differentiating it as a bare symbol would
    be silently wrong; it refuses instead.
    """

    is_commutative = True

    def __new__(cls, field: Any, position: Any, minimum: Any) -> Any:
        return super().__new__(cls, sp.sympify(field), position, minimum)

    @property
    def field(self) -> Any:
        return self.args[0]

    @property
    def position(self) -> Any:
        return self.args[1]

    @property
    def minimum(self) -> Any:
        return self.args[2]

    @property
    def free_symbols(self) -> set[sp.Basic]:
        return set(self.position.free_symbols) | set(self.minimum.free_symbols)

    def _eval_derivative(self, symbol: Any) -> Any:
        if symbol not in self.minimum.free_symbols:
            return sp.S.Zero
        raise DerivationError("the derivative of a proximal map needs the implicit function rule")

    def _eval_is_extended_real(self) -> bool:
        return True


def at_minimiser(expr: Any, minimum: Minimum) -> Any:
    """Replace the minimised fields by the minimiser."""
    from sympy.core.function import AppliedUndef

    names = {f.name for f in minimum.fields}
    values = {
        a: Proximal(sp.Symbol(a.func.__name__), a.args[0], minimum)
        for a in expr.atoms(AppliedUndef)
        if a.func.__name__ in names
    }
    return expr.xreplace(values)
