"""The model: what a user declares and everything else is derived from.

A model has weight sectors (``k`` and ``v``, or a single ``w``), a loss in the label and the local
fields, a channel that makes the label from the teacher's fields, and the law of the teacher's
fields. Expressions are SymPy; token sums are :class:`replica.symbolic.tokens.TokenSum`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from replica.errors import UsageError
from replica.symbolic.tokens import LENGTH, TokenWeights, index

Array = NDArray[np.float64]

LABEL = sp.Symbol("y", real=True)
NOISE = sp.Symbol("xi", real=True)
NOISE_STD = sp.Symbol("Delta", nonnegative=True)
RATIO = sp.Symbol("alpha", positive=True)
SIGNAL = sp.Symbol("nu", nonnegative=True)


def token_function(name: str) -> Any:
    """A real function of a token index."""
    return sp.Function(name, real=True)


SIGMA = token_function("sigma")
"""The attention weights ``sigma(chi)_l``, left open until an activation is put in."""


@dataclass(frozen=True)
class Sector:
    """One weight vector, its local field per token, and the teacher direction it should find.

    ``rho`` is the variance of the teacher's entries: a positive number or symbol.
    """

    name: str
    field_name: str
    rho: sp.Expr = sp.S.One

    @property
    def field(self) -> Any:
        return token_function(self.field_name)

    @property
    def teacher(self) -> Any:
        return token_function(f"{self.field_name}_star")

    @property
    def cavity(self) -> Any:
        return token_function(f"omega_{self.name}")

    @property
    def noise(self) -> Any:
        return token_function(f"zeta_{self.name}")

    @property
    def residual(self) -> Any:
        """``(h - omega)/V`` at the proximal minimiser."""
        return token_function(f"f_{self.name}")

    def variance(self, values: Mapping[str, float]) -> float:
        """The teacher's variance as a number. Raises ``UsageError`` if it is not positive."""
        rho = sp.sympify(self.rho)
        number = float(rho.xreplace({x: sp.Float(values[x.name]) for x in rho.free_symbols}))
        if not number > 0:
            raise UsageError(f"rho_{self.name}", number, "a positive number")
        return number

    def symbol(self, letter: str, **assumptions: Any) -> sp.Symbol:
        return sp.Symbol(f"{letter}_{self.name}", **(assumptions or {"real": True}))

    @property
    def m(self) -> sp.Symbol:
        return self.symbol("m")

    @property
    def q(self) -> sp.Symbol:
        return self.symbol("q", positive=True)

    @property
    def V(self) -> sp.Symbol:
        return self.symbol("V", positive=True)

    @property
    def m_hat(self) -> sp.Symbol:
        return self.symbol("mhat")

    @property
    def q_hat(self) -> sp.Symbol:
        return self.symbol("qhat")

    @property
    def V_hat(self) -> sp.Symbol:
        return self.symbol("Vhat")

    @property
    def ridge(self) -> sp.Symbol:
        return self.symbol("r", positive=True)


@dataclass(frozen=True)
class Parameter:
    """A real parameter of an activation: its name for the user, its symbol, default and range."""

    name: str
    symbol: sp.Symbol
    default: float
    low: float = -float("inf")
    high: float = float("inf")

    def checked(self, value: Any) -> float:
        """The value as a number. Raises ``UsageError`` outside the range."""
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = float("nan")
        if not (self.low <= number <= self.high and abs(number) < float("inf")):
            bounds = f"{self.low:g} to {self.high:g}".replace("-inf to inf", "a finite number")
            raise UsageError(self.name, value, bounds)
        return number


@dataclass(frozen=True)
class Activation:
    """``sigma(chi)_l``: element-wise ``expression``, or normalised with ``log_weight``.

    Exactly one of the two is given, in the token score ``x``. ``kinked`` says that kinks were
    rounded; ``definition`` is what the user wrote, where they did.
    """

    name: str
    x: sp.Symbol
    expression: sp.Expr | None = None
    log_weight: sp.Expr | None = None
    parameters: tuple[Parameter, ...] = ()
    kinked: bool = False
    definition: str = ""

    @property
    def defaults(self) -> dict[str, float]:
        """Default values by the names of the symbols."""
        return {p.symbol.name: p.default for p in self.parameters}

    def __post_init__(self) -> None:
        if (self.expression is None) == (self.log_weight is None):
            raise UsageError(
                "activation", self.name, "either an element-wise expression or a log weight"
            )

    @property
    def normalised(self) -> bool:
        return self.log_weight is not None

    @property
    def shift_invariant(self) -> bool:
        """Whether a constant added to every score changes nothing, as for softmax."""
        if self.log_weight is None:
            return False
        c = sp.Dummy("c", real=True)
        moved = self.log_weight.xreplace({self.x: self.x + c}) - self.log_weight
        return not sp.expand(moved).has(self.x)

    @property
    def even(self) -> bool:
        """Whether it does not feel the sign of all scores, so that ``k`` has no sign either."""
        base = self.expression if self.log_weight is None else self.log_weight
        assert base is not None
        return bool(sp.expand(base.xreplace({self.x: -self.x}) - base) == 0)

    def at(self, score: Any, position: Any) -> Any:
        """``sigma(chi)_position`` with ``score`` the field as a function of the index."""
        if self.log_weight is None:
            assert self.expression is not None
            return self.expression.xreplace({self.x: score(position)})
        i = index("i")
        return TokenWeights(self.log_weight.xreplace({self.x: score(i)}), i, position)


class DataLaw(Protocol):
    """How the teacher's local fields are drawn, numerically, with the relevant token first.

    ``sectors`` names the sectors whose fields are wanted; the others cost nothing.
    """

    def dimension(self, length: int, sectors: Collection[str]) -> int:
        """Number of uniform variables per sample that :meth:`teacher_fields` takes."""
        ...

    def teacher_fields(
        self, uniforms: Array, length: int, values: Mapping[str, float], sectors: Collection[str]
    ) -> dict[str, Array]:
        """Sector name to teacher field, each of shape ``(length, samples)``."""
        ...


@dataclass(frozen=True)
class Model:
    """A learning problem to which the replica method is applied.

    Attributes
    ----------
    sectors
        One or two weight vectors with independent Gaussian teachers.
    loss
        In ``y``, the sectors' fields and, where there is attention, ``sigma(l)``.
    prediction
        The predictor whose squared error is the test error; ``None`` where ``test_error`` is given.
    channel
        The label in the teacher's fields at the relevant token and the noise ``xi ~ N(0, 1)``.
    log_weight
        ``log g(epsilon, chi*)`` of the first sector's teacher field, normalised as
        ``E_N[(1/L) sum_eps g] = c(rho)`` with the constant divided out; 0 for plain Gaussian data.
    law
        Draws from that law.
    test_error
        ``None`` for the squared error of ``prediction``, otherwise an expression in the order
        parameters, checked against the average of ``test_loss`` over fresh samples.
    constants
        Values of symbols that the model fixes (teacher variance, activation parameters).
    """

    name: str
    sectors: tuple[Sector, ...]
    loss: sp.Expr
    channel: sp.Expr
    law: DataLaw
    log_weight: sp.Expr = sp.S.Zero
    activation: Activation | None = None
    prediction: sp.Expr | None = None
    test_error: sp.Expr | None = None
    test_loss: sp.Expr | None = None
    task: str = ""
    constants: Mapping[str, float] = field(default_factory=dict)
    sampling_only: bool = False
    """True where ``log g`` is singular (``nu = oo``), so only reparametrised averages exist."""

    @property
    def attention(self) -> Sector | None:
        """The sector whose field enters through the activation."""
        return self.sectors[0] if self.activation is not None else None

    @property
    def readout(self) -> Sector:
        """The sector whose field enters the loss directly."""
        return self.sectors[-1]

    @property
    def random_symbols(self) -> tuple[sp.Symbol, ...]:
        """Names of the fields and symbols that the data average runs over."""
        names = [LABEL.name, NOISE.name, LENGTH.name, SIGMA.__name__]
        for s in self.sectors:
            names += [s.teacher.__name__, s.noise.__name__, s.residual.__name__, s.cavity.__name__]
        return tuple(sp.Symbol(n) for n in names)
