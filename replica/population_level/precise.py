"""The population risk to as many digits as asked, where a quadrature exists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import mpmath as mp
import sympy as sp

from replica.derivation.population import closed_moments, nishimori, posterior_step
from replica.errors import UsageError
from replica.model import Model
from replica.population_level import exact
from replica.population_level.law import token_law
from replica.population_level.risk import PopulationProblem
from replica.symbolic.tokens import LENGTH

MAX_DIGITS = 60


def rational(value: Any) -> sp.Rational:
    """The decimal number that a double was written as: 0.1 means one tenth."""
    return sp.Rational(repr(float(value)) if isinstance(value, float) else value)


@dataclass(frozen=True)
class PreciseRisk:
    """Decimal strings with ``digits`` certified digits."""

    numbers: Mapping[str, str]
    method: str
    digits: int

    def document(self) -> dict[str, Any]:
        """The keys of the command line's JSON."""
        errors = {n: "0" if x in ("0", "-inf", "inf") else f"1e-{self.digits}"
                  for n, x in self.numbers.items()}
        return {**self.numbers, "method": self.method, "standard_errors": errors,
                "digits": self.digits}


class PreciseProblem:
    """The quadratures of a :class:`PopulationProblem` at ``digits`` digits.

    Raises ``UsageError`` for a law and an activation that have none.
    """

    def __init__(self, problem: PopulationProblem, digits: int) -> None:
        if not 1 <= digits <= MAX_DIGITS:
            raise UsageError("precision", digits, f"1 to {MAX_DIGITS} digits")
        kind, normalised = problem.law.kind, problem.score.normalised
        nishimori_holds = problem.nishimori_scale() is not None
        if problem.activation.kinked or not (
            nishimori_holds or kind == "tilted" or (kind == "largest" and not normalised)
        ):
            raise UsageError(
                "precision", digits,
                "nothing for this task and activation: their averages have no quadrature with "
                "certified digits",
            )
        self.problem, self.digits = problem, digits
        self.model: Model = problem.model
        self.values = {n: rational(v) for n, v in problem.values.items()}
        self.law = token_law(self.model, self.values)  # its tilt exact, not a double
        self.lengths = {k: rational(p) for k, p in problem.lengths.items()}
        self.rho = sp.sympify(self.model.sectors[0].rho).xreplace(self._at(
            sp.sympify(self.model.sectors[0].rho)))

    def _at(self, expr: Any) -> dict[Any, Any]:
        return {s: self.values[s.name] for s in expr.free_symbols if s.name in self.values}

    def _number(self, expr: Any) -> Any:
        expr = sp.sympify(expr).xreplace(self._at(sp.sympify(expr)))
        return mp.mpf(sp.N(expr, mp.mp.dps)._mpf_)

    def solve(self) -> PreciseRisk:
        """All numbers to ``digits`` digits."""
        with mp.workdps(self.digits + exact.GUARD):
            found, method = self._solve()
            numbers = {n: self._text(x) for n, x in found.items()}
        return PreciseRisk(numbers, method, self.digits)

    def _text(self, x: Any) -> str:
        if x == 0:
            return "0"
        if mp.isinf(x):
            return "inf" if x > 0 else "-inf"
        return str(mp.nstr(x, self.digits, strip_zeros=False))

    def _solve(self) -> tuple[dict[str, Any], str]:
        bayes = self._bayes()
        scale = self.problem.nishimori_scale()
        if scale is not None:
            return self._nishimori(scale, bayes)
        step = closed_moments(self.model)
        if step is not None and "excess_risk" in step.conclusion:
            mean = sum(k * p for k, p in self.lengths.items())
            k = self.model.sectors[0]

            def closed(name: str, **more: Any) -> Any:
                expr = step.conclusion[name].xreplace({LENGTH: mean})
                return expr.xreplace({s: more[s.name] for s in expr.free_symbols
                                      if s.name in more})

            m = closed("m_k")
            at = {k.m.name: m, k.q.name: m**2 / self.rho}
            numbers = (self._number(e) for e in (
                closed("excess_risk"), m, m**2 / self.rho, closed("s_1", **at), closed("s_2", **at)
            ))
            return self._all(bayes, *numbers), "closed form"
        m = self._best_scale()
        excess, s1, s2 = self._risk(m)
        q = m * m / self._number(self.rho)
        return self._all(bayes, excess, m, q, s1, s2), self.problem.method

    def _all(self, bayes: Any, excess: Any, m: Any, q: Any, s1: Any, s2: Any) -> dict[str, Any]:
        return {
            "excess_risk": excess, "log_excess_risk": mp.log(excess),
            "bayes_excess_risk": bayes,
            "log_bayes_excess_risk": mp.log(bayes) if bayes else -mp.inf,
            "gap": excess - bayes, "scale_k": m, "q_k": q, "scale_v": s1 / s2, "s1": s1, "s2": s2,
        }

    def _nishimori(self, scale: float, bayes: Any) -> tuple[dict[str, Any], str]:
        if bayes == 0:
            one = mp.mpf(1)
            log_zero = {"log_excess_risk": -mp.inf, "log_bayes_excess_risk": -mp.inf}
            found = {"excess_risk": bayes, "bayes_excess_risk": bayes, "gap": bayes,
                     "scale_k": mp.inf if scale == float("inf") else mp.mpf(scale),
                     "q_k": mp.inf if scale == float("inf") else mp.mpf(scale) ** 2,
                     "scale_v": one, "s1": one, "s2": one}
            return found | log_zero, "one token, or the limit of long keys"
        step = nishimori(self.model, posterior_step(self.model))
        assert step is not None
        c = self._number(step.conclusion["key_scale"])
        rho = self._number(self.rho)
        s = 1 - bayes
        method = "Nishimori condition; " + (
            "one-dimensional quadrature"
            if self.problem.law.kind == "tilted" and set(self.lengths) <= {1, 2} else
            "quadrature over one token and the Laplace variable of the normalisation"
        )
        return self._all(bayes, bayes, c * rho, c * c * rho, s, s), method

    def _bayes(self) -> Any:
        problem = self.problem
        if problem.law.kind == "largest":
            return mp.mpf(0)
        rho = self._number(self.rho)
        parts = {}
        for length in self.lengths:
            start = exact.first_spacing(self.digits)
            if length == 1:
                parts[length] = mp.mpf(0)
            elif problem.law.kind == "chosen":
                c = self._exponent_slope()
                parts[length] = exact.certified(
                    partial(self._chosen_excess, c, mp.sqrt(rho), length),
                    self.digits, start / max(1.0, float(c)),
                )
            else:
                a = self._exponent_slope()
                if a == 0:
                    parts[length] = 1 - mp.mpf(1) / length
                    continue
                parts[length] = self._softmax(a * a * rho, a * mp.sqrt(rho), length)
        return exact.mixed(parts, {k: self._number(p) for k, p in self.lengths.items()})

    def _chosen_excess(self, c: Any, spread: Any, length: int, spacing: float) -> Any:
        return exact.posterior_excess(lambda x: c * x, spread, length, self.digits, spacing)

    def _exponent_slope(self) -> Any:
        """Slope of the log-ratio of the weight in a score."""
        from replica.derivation.population import score_exponent
        from replica.symbolic.tokens import index

        x = sp.Symbol("x", real=True)
        exponent = score_exponent(self.model).xreplace(
            {self.model.sectors[0].teacher(index("l")): x}
        )
        return self._number(sp.diff(exponent, x))

    def _softmax(self, centre: Any, spread: Any, length: int) -> Any:
        """Certified excess of softmax at one length and its own best value vector."""

        def excess(miss: Any, apart: Any) -> Any:
            return (apart - miss**2) / (1 - 2 * miss + apart)

        if length == 2:
            return excess(*exact.two_tokens(centre, mp.sqrt(2) * spread, self.digits))

        def at(h: float) -> Any:
            return excess(*exact.normalised_pair(
                lambda x: x, (centre, spread), (mp.mpf(0), spread), length, self.digits, h
            ))

        return exact.certified(at, self.digits, exact.first_spacing(self.digits))

    def _score(self, x: Any) -> Any:
        values = {n: mp.mpf(rational(v).p) / rational(v).q
                  for n, v in self.problem.score.values.items()}
        return self.problem.score.exact(x, values)

    def _risk(self, m: Any, spacing: float | None = None) -> tuple[Any, Any, Any]:
        """Excess risk, ``s1`` and ``s2`` of the aligned key; certified unless ``spacing`` is given.
        """
        problem, rho = self.problem, self._number(self.rho)
        weights = {k: self._number(p) for k, p in self.lengths.items()}
        spread = abs(m) / mp.sqrt(rho)

        def square(x: Any) -> Any:
            return self._score(x) ** 2

        if not problem.score.normalised:
            mean = mp.fsum(k * p for k, p in weights.items())
            plain = exact.normal_average(square, mp.mpf(0), spread, self.digits)
            if problem.law.kind == "tilted":
                centre = m * self._number(self.law.tilt)
                s1, own = (
                    exact.normal_average(f, centre, spread, self.digits)
                    for f in (self._score, square)
                )
                s2 = own + (mean - 1) * plain
            else:
                s2 = mean * plain
                s1 = exact.mixed({
                    k: exact.largest_average(self._score, m / mp.sqrt(rho), k, self.digits)
                    for k in weights
                }, weights)
            return 1 - s1**2 / s2, s1, s2
        centre = m * self._number(self.law.tilt)

        def pooled(h: float) -> tuple[Any, Any]:
            pairs = {k: exact.normalised_pair(
                self._score, (centre, spread), (mp.mpf(0), spread), k, self.digits, h
            ) for k in weights}
            return tuple(
                exact.mixed({k: p[i] for k, p in pairs.items()}, weights) for i in (0, 1)
            )

        kept: dict[float, Any] = {}

        def at(h: float) -> Any:
            miss, apart = kept[h] = pooled(h)
            return (apart - miss**2) / (1 - 2 * miss + apart)

        if spacing is not None:
            value = at(spacing)
        else:
            value = exact.certified(at, self.digits, exact.first_spacing(self.digits))
        miss, apart = kept[min(kept)]
        return value, 1 - miss, 1 - 2 * miss + apart

    def _best_scale(self) -> Any:
        """The minimum over aligned keys by Newton steps from that in doubles.

        The risk is a smooth function of the scale at a fixed spacing; its slope is a central
        difference at half as many digits again.
        """
        best = self.problem.minima()[0]
        if abs(best.q - best.m**2 / self.problem.rho) > 1e-9 * best.q:
            raise UsageError("precision", self.digits, "nothing where the best key is not aligned "
                             "with the teacher")
        if abs(best.m) >= 0.999 * self.problem.longest:
            raise UsageError("precision", self.digits, "nothing where no finite key is best")
        m, reached = mp.mpf(best.m), 7
        while reached < self.digits + 2:
            reached = min(2 * reached, self.digits + 3)
            aim = PreciseProblem(self.problem, min(MAX_DIGITS, reached + reached // 2 + 4))
            with mp.workdps(aim.digits + exact.GUARD):
                h = abs(m) * mp.mpf(10) ** -(reached // 2 + 1)
                spacing = exact.first_spacing(reached)  # its error is as smooth as the risk
                up, here, down = (aim._risk(m + s * h, spacing)[0] for s in (1, 0, -1))
                m -= h * (up - down) / (2 * (up - 2 * here + down))
        return m
