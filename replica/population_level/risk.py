"""The population risk of one activation, its best key scale, and the Bayes risk.

The best value vector is eliminated: ``excess = 1 - s1^2/s2`` (step *best value vector* of the
population chain), in units of the value teacher's variance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from replica.derivation.population import closed_moments, nishimori, posterior_step
from replica.errors import UsageError
from replica.model import Array, Model
from replica.population_level.elementwise import elementwise_moments
from replica.population_level.independent import Token, normalised_moments, posterior_squares
from replica.population_level.largest import largest_moments
from replica.population_level.law import RelevantDensity, TokenLaw, token_law
from replica.population_level.moments import Moments, log_mean, mixture
from replica.population_level.sampled import SampledMoments
from replica.population_level.score import ScoreFunction
from replica.saddle_point.nodes import SCRAMBLES
from replica.symbolic.tokens import LENGTH

SCALES = np.geomspace(0.02, 60.0, 30)
"""Key overlaps, in standard deviations of the teacher, at which minima are looked for."""
BUDGET = 2**25
"""Token scores held at once by a sampled average."""
WIDEN = 1e-3
"""Relative increase of ``q`` with which a part of the key off the teacher is tried."""


@dataclass(frozen=True)
class Scale:
    """A minimum of the risk over the key: overlaps with the teacher and with itself."""

    m: float
    q: float
    excess: float


@dataclass(frozen=True)
class PopulationRisk:
    """The best risk and where it is reached.

    ``standard_errors`` are those of a sampled average over its scrambles; where ``method`` is a
    quadrature they bound its error. ``minima`` lists all scales where the risk has a minimum, the
    best first. ``m = inf`` says that the infimum is approached by ever longer keys.
    """

    excess_risk: float
    log_excess_risk: float
    bayes_excess_risk: float
    log_bayes_excess_risk: float
    scale_k: float
    q_k: float
    scale_v: float
    s1: float
    s2: float
    method: str
    standard_errors: Mapping[str, float]
    minima: tuple[Scale, ...]
    parameters: Mapping[str, float]

    @property
    def gap(self) -> float:
        return self.excess_risk - self.bayes_excess_risk

    def document(self) -> dict[str, Any]:
        """The keys of the command line's JSON."""
        return {
            "excess_risk": self.excess_risk, "log_excess_risk": self.log_excess_risk,
            "bayes_excess_risk": self.bayes_excess_risk,
            "log_bayes_excess_risk": self.log_bayes_excess_risk, "gap": self.gap,
            "scale_k": self.scale_k, "q_k": self.q_k, "scale_v": self.scale_v,
            "s1": self.s1, "s2": self.s2, "method": self.method,
            "standard_errors": dict(self.standard_errors),
            "minima": [
                {"scale_k": s.m, "q_k": s.q, "excess_risk": s.excess} for s in self.minima
            ],
            **({"parameters": dict(self.parameters)} if self.parameters else {}),
        }


class PopulationProblem:
    """The risk of a model's activation as a function of the key.

    Parameters
    ----------
    values
        Every parameter but the ridge, by the names of their symbols (``nu`` where finite).
    lengths
        Probability of each length.
    power, seed
        Of the sampled averages, for the laws that have no quadrature: ``2^power`` points a
        scramble, fewer for long sequences.

    Raises
    ------
    UsageError
        For a model without an activation.
    """

    def __init__(
        self, model: Model, values: Mapping[str, Any], lengths: Mapping[int, float],
        power: int = 13, seed: int = 0,
    ) -> None:
        if model.activation is None:
            raise UsageError("activation", "none", "a model with an activation")
        self.model, self.values, self.lengths = model, dict(values), dict(lengths)
        self.activation = model.activation
        self.rho = model.sectors[0].variance(self.values)
        self.law: TokenLaw = token_law(model, self.values)
        self.score = ScoreFunction(model.activation, self.values)
        self.power, self.seed = power, seed
        self.density = RelevantDensity(self.law, self.rho)
        self._sampled: dict[int, SampledMoments] = {}

    # -- one key -----------------------------------------------------------------------------

    @property
    def sampled(self) -> bool:
        """Whether the averages have no quadrature here."""
        if self.law.kind == "other":
            return True
        return self.law.kind == "chosen" and self.score.normalised

    @property
    def method(self) -> str:
        if self.sampled:
            return "scrambled Sobol average"
        if not self.score.normalised:
            return "quadrature over one token"
        return "quadrature over one token and the Laplace variable of the normalisation"

    def moments(
        self, m: float, q: float, parameters: Mapping[str, float] | None = None,
        quick: bool = False,
    ) -> tuple[Moments, float]:
        """Moments at key overlaps, and the relative error of the risk's quadrature."""
        score = self.score
        if parameters:
            score = ScoreFunction(self.activation, {**self.values, **parameters})
        parts, errors = {}, [0.0]
        for length in self.lengths:
            parts[length], error = self._of_length(score, m, q, length, quick)
            errors.append(error)
        return mixture(parts, self.lengths), max(errors)

    def _of_length(
        self, score: ScoreFunction, m: float, q: float, length: int, quick: bool
    ) -> tuple[Moments, float]:
        if self.sampled:
            s1, s2 = self._blocks(m, q, length)
            return Moments(float(s1.mean()), float(s2.mean())), 0.0
        if not score.normalised:
            return elementwise_moments(score, self.density, m, q, length), 1e-13
        if self.law.kind == "largest":
            return largest_moments(score, m, q, length, self.rho), 0.0
        spread = math.sqrt(q)
        relevant = Token(m * float(self.law.tilt), spread)
        return normalised_moments(score, relevant, Token(0.0, spread), length, quick=quick)

    def _blocks(self, m: float, q: float, length: int) -> tuple[Array, Array]:
        if length not in self._sampled:
            room = int(math.log2(BUDGET / (SCRAMBLES * length)))
            self._sampled[length] = SampledMoments(
                self.model, self.values, length, max(5, min(self.power, room)), self.seed
            )
        return self._sampled[length](m, q)

    def excess(
        self, m: float, q: float, parameters: Mapping[str, float] | None = None,
        quick: bool = False,
    ) -> float:
        """Excess risk of the key with these overlaps and the best value vector."""
        return self.moments(m, q, parameters, quick)[0].excess

    # -- the best key ------------------------------------------------------------------------

    def minima(self) -> tuple[Scale, ...]:
        """All minima over keys along the teacher, widened off it where that helps; best first.

        An end of the range of scales counts only where nothing inside is better.
        """
        inside, ends = self._aligned()
        found = sorted((self._widened(m) for m in inside), key=lambda s: s.excess)
        edges = [Scale(m, m * m / self.rho, self.excess(m, m * m / self.rho)) for m in ends]
        last = min(edges, key=lambda s: s.excess, default=None)
        if last is not None and (not found or last.excess < found[0].excess):
            found.insert(0, last)
        return tuple(found)

    def _aligned(self) -> tuple[list[float], list[float]]:
        """Minima along the teacher inside the range of scales, and at its ends."""
        from scipy.optimize import minimize_scalar

        def at(sign: float, log_scale: float, quick: bool = False) -> float:
            m = sign * math.exp(log_scale) * self.rho
            return self.excess(m, m * m / self.rho, quick=quick)

        root = math.sqrt(self.rho)
        # a strong tilt separates the tokens at short keys already
        tilt = abs(float(self.law.tilt)) if self.law.kind == "tilted" else 0.0
        grid = np.log(SCALES / root)
        grid = np.linspace(grid[0] - math.log(max(1.0, tilt * root)), grid[-1], len(grid))
        found: list[float] = []
        ends: list[float] = []
        for sign in (1.0,) if self.activation.even else (1.0, -1.0):
            risks = np.array([at(sign, x, quick=True) for x in grid])
            for i in range(len(grid)):
                left = risks[i - 1] if i else math.inf
                right = risks[i + 1] if i + 1 < len(grid) else math.inf
                if not (risks[i] < left and risks[i] <= right):
                    continue
                if i in (0, len(grid) - 1):
                    ends.append(sign * math.exp(grid[i]) * self.rho)
                    continue
                best = minimize_scalar(
                    lambda x, sign=sign: at(sign, x), bounds=(grid[i - 1], grid[i + 1]),
                    method="bounded", options={"xatol": 1e-9},
                )
                found.append(sign * math.exp(float(best.x)) * self.rho)
        return found, ends

    def _widened(self, m: float) -> Scale:
        """Add a part off the teacher to the key if the risk falls."""
        from scipy.optimize import minimize

        q = m * m / self.rho
        aligned = self.excess(m, q)
        if self.excess(m, q * (1.0 + WIDEN)) >= aligned - 1e-12:
            return Scale(m, q, aligned)

        def at(x: Array) -> float:
            key = math.copysign(math.exp(x[0]), m)
            return self.excess(key, key * key / self.rho * (1.0 + math.exp(x[1])))

        best = minimize(at, [math.log(abs(m)), math.log(0.1)], method="Nelder-Mead",
                        options={"xatol": 1e-7, "fatol": 1e-13})
        if not (abs(best.x[0] - math.log(abs(m))) < 5 and best.x[1] < 10):
            return Scale(m, q, aligned)  # ever longer keys: the minimum along the teacher is kept
        key = math.copysign(math.exp(best.x[0]), m)
        return Scale(key, key * key / self.rho * (1.0 + math.exp(best.x[1])), float(best.fun))

    # -- results -----------------------------------------------------------------------------

    def nishimori_scale(self) -> float | None:
        """The key scale at which the attention is the posterior; ``None`` if there is none.

        Infinite where the relevant token has the largest score and the activation tends to the
        arg-max.
        """
        if self.law.kind == "largest":
            return math.inf if self.activation.shift_invariant else None
        step = nishimori(self.model, posterior_step(self.model))
        if step is None or "key_scale" not in step.conclusion:
            return None
        scale = step.conclusion["key_scale"]
        return float(scale.xreplace({s: self.values[s.name] for s in scale.free_symbols}))

    def bayes(self) -> tuple[float, float]:
        """``log`` of the Bayes excess risk, and its relative error.

        Raises ``UsageError`` for a law without a posterior in closed form.
        """
        if self.law.kind == "largest":
            return -math.inf, 0.0
        if self.law.kind == "other":
            raise UsageError("task", self.model.task, "one whose posterior is a softmax")
        parts, errors = {}, [0.0]
        for length in self.lengths:
            if self.law.kind == "chosen":
                assert self.law.exponent is not None
                log_excess, error = posterior_squares(
                    self.law.exponent, Token(0.0, math.sqrt(self.rho)), length
                )
                parts[length] = Moments(
                    -math.expm1(log_excess), -math.expm1(log_excess), log_excess, log_excess
                )
            else:
                a = float(self.law.tilt)
                spread = a * math.sqrt(self.rho)
                parts[length], error = normalised_moments(
                    lambda x: x, Token(a * a * self.rho, spread), Token(0.0, spread), length
                ) if a > 0 else (Moments(1 / length, 1 / length), 0.0)
            errors.append(error)
        # a posterior per length: the risks add, not the moments
        return log_mean({k: m.log_excess for k, m in parts.items()}, self.lengths), max(errors)

    def closed(self) -> Scale | None:
        """The best scale where the derivation has it in closed form."""
        step = closed_moments(self.model)
        if step is None or "excess_risk" not in step.conclusion:
            return None
        mean = math.fsum(k * p for k, p in self.lengths.items())
        at = {s: mean if s == LENGTH else self.values[s.name]
              for e in step.conclusion.values() for s in e.free_symbols
              if s == LENGTH or s.name in self.values}
        m, excess = (
            float(step.conclusion[n].xreplace(at)) for n in ("m_k", "excess_risk")
        )
        return Scale(m, m * m / self.rho, excess)

    def best_parameters(self) -> PopulationProblem:
        """The same problem with the activation's parameters at their best values.

        Minimised together with the key's scale, from its minima at the given parameters.
        """
        from scipy.optimize import minimize

        names = list(self.score.values)
        base = np.array([float(self.score.values[n]) for n in names])

        def at(x: Array) -> float:
            m = math.exp(x[0])
            return self.excess(m, m * m / self.rho, dict(zip(names, x[1:], strict=True)))

        starts = [s.m for s in self.minima() if s.m > 0] or [1.0]
        runs = [
            minimize(at, [math.log(m), *(base + shift)], method="Nelder-Mead",
                     options={"xatol": 1e-8, "fatol": 1e-14, "maxiter": 2000})
            for m in starts for shift in (0.0, -1.0)
        ]
        best = min(runs, key=lambda run: float(run.fun))
        values = self.values | dict(zip(names, map(float, best.x[1:]), strict=True))
        return PopulationProblem(self.model, values, self.lengths, self.power, self.seed)

    def solve(self) -> PopulationRisk:
        """The best risk of the activation."""
        log_bayes, bayes_error = self.bayes()
        scale = self.nishimori_scale()
        if scale is not None:
            return self._nishimori(scale, log_bayes, bayes_error)
        closed = self.closed()
        minima = (closed,) if closed is not None else self.minima()
        best = minima[0]
        moments, error = self.moments(best.m, best.q)
        if not self.sampled and self.law.kind == "largest" and self.score.normalised:
            finer = [largest_moments(self.score, best.m, best.q, k, self.rho, 2)
                     for k in self.lengths]
            fine = mixture(dict(zip(self.lengths, finer, strict=True)), self.lengths)
            error, moments = abs(math.expm1(fine.log_excess - moments.log_excess)), fine
        errors = self._errors(best, moments, error)
        errors["bayes_excess_risk"] = bayes_error * math.exp(log_bayes)
        method = self.method
        if closed is not None:
            method = "closed form"
            moments = replace(moments, log_miss=None, log_distance=None)
        excess = closed.excess if closed is not None else moments.excess
        return self._result(
            best, minima, moments, excess, math.log(excess), log_bayes, method, errors
        )

    def _nishimori(self, scale: float, log_bayes: float, error: float) -> PopulationRisk:
        """The activation is the posterior there, for every length with one key and value."""
        excess = math.exp(log_bayes)
        m = scale * self.rho
        best = Scale(m, scale * m, excess)
        kept = Moments(1.0 - excess, 1.0 - excess)
        errors = {n: error * excess for n in
                  ("excess_risk", "bayes_excess_risk", "s1", "s2", "scale_v")}
        errors |= {"scale_k": 0.0, "q_k": 0.0}
        method = "limit of long keys" if math.isinf(scale) else (
            "Nishimori condition; " + (
                "quadrature over one token and the Laplace variable of the normalisation"
            )
        )
        return self._result(best, (best,), kept, excess, log_bayes, log_bayes, method, errors)

    def _errors(self, best: Scale, moments: Moments, error: float) -> dict[str, float]:
        names = ("excess_risk", "s1", "s2", "scale_v")
        if not self.sampled:
            found = {n: error * abs(x) for n, x in zip(
                names, (moments.excess, moments.s1, moments.s2, moments.s1 / moments.s2),
                strict=True,
            )}
            # the minimum is found from risks good to a rounding error
            return found | {"scale_k": 1e-7 * abs(best.m), "q_k": 2e-7 * best.q}

        def blocks(factor: float) -> tuple[Array, Array]:
            pairs = [self._blocks(best.m * factor, best.q * factor**2, k) for k in self.lengths]
            weights = np.array(list(self.lengths.values()))
            return (np.einsum("k,kb->b", weights, np.array([a for a, _ in pairs])),
                    np.einsum("k,kb->b", weights, np.array([b for _, b in pairs])))

        def spread(x: Array) -> float:
            return float(np.std(x, ddof=1) / math.sqrt(SCRAMBLES))

        h = 1e-3
        (a, b), (a_up, b_up), (a_down, b_down) = (blocks(1 + s * h) for s in (0, 1, -1))
        risk, up, down = (1 - x * x / y for x, y in ((a, b), (a_up, b_up), (a_down, b_down)))
        slope = (up - down) / (2 * h)
        bend = float(np.mean(up - 2 * risk + down)) / h**2
        scale = spread(slope) / bend if bend > 0 else math.inf
        return {
            "excess_risk": spread(risk), "s1": spread(a), "s2": spread(b),
            "scale_v": spread(a / b), "scale_k": scale * abs(best.m), "q_k": 2 * scale * best.q,
        }

    def _result(
        self, best: Scale, minima: tuple[Scale, ...], moments: Moments, excess: float,
        log_excess: float, log_bayes: float, method: str, errors: Mapping[str, float],
    ) -> PopulationRisk:
        return PopulationRisk(
            excess_risk=excess, log_excess_risk=log_excess,
            bayes_excess_risk=math.exp(log_bayes), log_bayes_excess_risk=log_bayes,
            scale_k=best.m, q_k=best.q, scale_v=moments.s1 / moments.s2, s1=moments.s1,
            s2=moments.s2, method=method, standard_errors=errors, minima=minima,
            parameters=self.score.values,
        )

    @property
    def longest(self) -> float:
        """The longest key scale at which minima are looked for."""
        return float(SCALES[-1] * math.sqrt(self.rho))
