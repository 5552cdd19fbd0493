"""What must be known before a problem is solved: valid inputs, scales, the better estimator."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from replica.codegen.programs import parameter_names, parameter_symbols, score_program
from replica.errors import UsageError
from replica.model import Model
from replica.saddle_point.kernels import Compiled
from replica.saddle_point.nodes import sobol_points


def signal_strength(
    model: Model, values: Mapping[str, float], lengths: Mapping[int, float]
) -> float:
    """Mean teacher field of the relevant token in units of 3 standard deviations, at least 1."""
    s, length = model.sectors[0], max(lengths)
    dimension = model.law.dimension(length, (s.name,))
    uniforms = sobol_points(dimension, 8, (2, length))
    field = model.law.teacher_fields(uniforms, length, values, (s.name,))[s.name][0]
    return max(1.0, float(np.mean(field)) / float(3 * np.sqrt(s.variance(values))))


SCORE_VARIANCE_LIMIT = 1.0
"""Above this variance of the score, Stein's form of the key's conjugate is the noisier one."""


def noisy_forms(
    model: Model, values: Mapping[str, float], lengths: Mapping[int, float]
) -> tuple[str, ...]:
    """Conjugates whose Stein form would have the larger sampling error.

    A score that varies much from sample to sample (max data at strong signal: all its weight is on
    rare near-ties) makes an average that few nodes see.
    """
    s = model.sectors[0]
    if model.sampling_only or model.log_weight == 0:
        return ()
    score = Compiled.of(score_program(model))
    length = max(lengths)
    dimension = model.law.dimension(length, (s.name,))
    uniforms = sobol_points(dimension, 10, (1, length))
    fields = model.law.teacher_fields(uniforms, length, values, (s.name,))
    h, rho = fields[s.name], s.variance(values)
    found = np.broadcast_to(score({**values, s.teacher.__name__: h}, length)[0], h.shape)
    spread = float(np.var(found, axis=-1).max()) * rho
    # integration by parts with f = h*: E[h* score] = E[h*^2]/rho - 1; a sample that misses the
    # rare events which carry the score does not fulfil it
    missed = np.abs((h * found).mean(axis=-1) - ((h * h).mean(axis=-1) / rho - 1.0)).max()
    noisy = spread > SCORE_VARIANCE_LIMIT or missed > 0.05 * max(1.0, float((h * h).mean()) / rho)
    return (s.m_hat.name,) if noisy else ()


def check_values(
    model: Model, values: Mapping[str, float], lengths: Mapping[int, float]
) -> None:
    """Every parameter present, finite and known; probabilities that sum to 1."""
    known = parameter_names(model)
    for name in sorted(known - set(values)):
        raise UsageError(name, "nothing", "a number: the model has this parameter")
    for name in sorted(set(values) - known):
        listed = ", ".join(sorted(known))
        raise UsageError(name, values[name], f"one of the model's parameters: {listed}")
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or (
            not np.isfinite(value)
        ):
            raise UsageError(name, value, "a finite number")
    for symbol in parameter_symbols(model):
        if symbol.is_nonnegative and values[symbol.name] < 0:
            raise UsageError(symbol.name, values[symbol.name], "a number >= 0")
    for s in model.sectors:
        if not values[s.ridge.name] > 0:
            raise UsageError(s.ridge.name, values[s.ridge.name], "a number > 0")
        s.variance(values)
    if not lengths or any(k < 1 or p <= 0 for k, p in lengths.items()) or abs(
        sum(lengths.values()) - 1
    ) > 1e-9:
        raise UsageError("length", dict(lengths), "lengths >= 1 with probabilities of sum 1")
