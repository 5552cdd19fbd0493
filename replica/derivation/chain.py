"""The whole chain for regularised empirical risk minimisation, and what later stages need of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from replica.derivation import (
    asymptotics,
    curvature,
    free_energy,
    reduction,
    replicon,
    saddle_point,
)
from replica.derivation.step import Derivation, Step
from replica.model import Model


@dataclass(frozen=True)
class _Equations:
    """A model and what was derived from it; Jupyter shows the document."""

    model: Model
    derivation: Derivation

    def _repr_markdown_(self) -> str:
        from replica.document.markdown import markdown_document

        return markdown_document(self, [])  # type: ignore[arg-type]


@dataclass(frozen=True)
class SaddlePointEquations(_Equations):
    """The derived equations of a model: everything code generation reads.

    ``eliminated`` says whether the readout field was eliminated symbolically. ``stein`` holds
    alternative forms of the conjugates with a smaller sampling error, where they exist.
    """

    @property
    def free_energy(self) -> Any:
        return self.derivation["manifold"].conclusion["f"]

    @property
    def cavity(self) -> Mapping[str, Any]:
        return self.derivation["cavity fields"].conclusion

    @property
    def overlaps(self) -> Mapping[str, Any]:
        return self.derivation["overlap equations"].conclusion

    @property
    def conjugates(self) -> Mapping[str, Any]:
        """Reparametrised forms."""
        return self.derivation["conjugate equations"].conclusion

    @property
    def stein(self) -> Mapping[str, Any]:
        found: dict[str, Any] = {}
        for step in self.derivation:
            if step.name in ESTIMATORS:
                found |= step.conclusion
        return found

    @property
    def marginal(self) -> Mapping[str, Any]:
        """Cavity fields and label in fewer random numbers, where the estimators allow it."""
        if "marginal cavity law" not in self.derivation:
            return {}
        return self.derivation["marginal cavity law"].conclusion

    @property
    def test_error(self) -> Any:
        return self.derivation["test error"].conclusion["test_error"]

    @property
    def noise_floor(self) -> Any:
        return self.derivation["test error"].conclusion["noise_floor"]

    @property
    def curvature(self) -> Mapping[str, Any] | None:
        """The Hessian of the loss as diagonal plus low rank; ``None`` where it is neither."""
        if "curvature" not in self.derivation:
            return None
        return self.derivation["curvature"].conclusion

    @property
    def eliminated(self) -> bool:
        return "readout eliminated" in self.derivation


ESTIMATORS = (
    "response identity",
    "Stein form of the key's conjugate",
    "conditioned form of the readout's conjugate",
)


def derive_erm(model: Model) -> SaddlePointEquations:
    """Derive the saddle-point equations of a model. About one second.

    Raises ``DerivationError`` if a step cannot be carried out (for instance a loss without the
    parity that makes the manifold stationary).
    """
    replicated = free_energy.replicate(model)
    fourier = free_energy.fourier(model)
    teacher = free_energy.teacher_overlaps(model)
    ansatz = free_energy.replica_symmetry(model, replicated, fourier)
    integral = free_energy.integrate_weights(model, ansatz, teacher)
    weights = free_energy.no_replicas(model, ansatz, integral)
    fields = free_energy.local_fields(model, teacher)
    data = free_energy.data_term(model, replicated)
    finite = free_energy.finite_temperature(model, weights, data, ansatz, integral)
    zero = free_energy.zero_temperature(model, finite, fields, replicated)
    on_manifold = free_energy.manifold(model, zero)
    cavity = saddle_point.cavity_fields(model, fields)
    overlaps = saddle_point.overlap_equations(model, on_manifold)
    conjugates = saddle_point.conjugate_equations(model, on_manifold, cavity)
    steps: list[Step | None] = [
        replicated, fourier, teacher, ansatz, integral, weights, fields, data, finite, zero,
        on_manifold, cavity, overlaps, conjugates,
        saddle_point.response_identity(model, conjugates, cavity),
        saddle_point.stein_attention(model, conjugates, cavity),
        saddle_point.conditioned_readout(model, conjugates, cavity),
        saddle_point.marginal_law(model, cavity),
        saddle_point.fresh_risk(model, cavity),
    ]
    readout = reduction.readout_step(model, on_manifold)
    if readout is not None:
        steps.append(readout[0])
        if model.activation is not None:
            steps.append(reduction.attention_step(model, readout[1], on_manifold))
    derivatives = reduction.loss_step(model, replicated)
    moved_weights = replicon.weights_variation(model, ansatz)
    moved_data = replicon.data_variation(model)
    steps += [
        derivatives, curvature.curvature_step(model, derivatives), moved_weights, moved_data,
        replicon.response_step(model),
        replicon.replicon_step(model, moved_weights, moved_data, overlaps),
        asymptotics.many_samples(model, derivatives),
    ]
    kept = tuple(s for s in steps if s is not None)
    return SaddlePointEquations(model, Derivation(f"ERM, {model.name}", kept))


@dataclass(frozen=True)
class BayesEquations(_Equations):
    """State evolution of the Bayes-optimal learner, derived from a model's law of the data.

    ``closed`` says whether the smoothed weight ``G`` is elementary.
    """

    @property
    def free_entropy(self) -> Any:
        return self.derivation["free entropy"].conclusion["Phi"]

    @property
    def overlaps(self) -> Mapping[str, Any]:
        return self.derivation["overlap equations"].conclusion

    @property
    def conjugates(self) -> Mapping[str, Any]:
        return self.derivation["conjugate equations"].conclusion

    @property
    def law(self) -> Mapping[str, Any]:
        return self.derivation["law of the fields"].conclusion

    @property
    def test_error(self) -> Any:
        return self.derivation["test error"].conclusion["test_error"]

    @property
    def closed(self) -> bool:
        return "density" not in self.law


def derive_bayes(model: Model) -> BayesEquations:
    """Derive free entropy and state evolution of the Bayes-optimal learner.

    The model's loss and activation play no part. Raises ``DerivationError`` if the label is not
    the relevant token's value field with additive Gaussian noise.
    """
    from replica.derivation import bayes, message_passing

    posterior = bayes.posterior(model)
    symmetric = bayes.ansatz(model)
    integral = bayes.weight_integral(model, symmetric)
    weights = bayes.no_replicas(model, symmetric, integral)
    channel = bayes.channel_step(model)
    data = bayes.data_term(model, channel)
    entropy = bayes.free_entropy(model, weights, data, symmetric, integral)
    growth = bayes.heat_lemma()
    steps = [
        posterior, symmetric, integral, weights, channel, data, entropy,
        bayes.overlap_equations(model, entropy), growth,
        bayes.conjugate_equations(model, entropy, channel, growth),
        bayes.law_step(model, channel), bayes.prediction_step(model, channel),
        message_passing.scores_step(model, channel), message_passing.precision_step(model),
    ]
    kept = tuple(s for s in steps if s is not None)
    return BayesEquations(model, Derivation(f"Bayes-optimal, {model.task or model.name}", kept))


@dataclass(frozen=True)
class PopulationEquations(_Equations):
    """The risk at infinite data and what minimises it."""


def derive_population(model: Model) -> PopulationEquations:
    """Derive the population risk on and off the manifold, the Bayes risk and who reaches it.

    Raises ``DerivationError`` unless the predictor is ``sum_l sigma_l z_l`` and the label linear in
    the relevant value field.
    """
    from replica.derivation import asymptotics, population, short_sequences

    fields = population.conditional_fields(model)
    full = population.risk(model, fields)
    on_manifold = population.manifold(model, full)
    best = population.best_value(model, on_manifold)
    posterior = population.posterior_step(model)
    closed = population.closed_moments(model)
    steps = [
        fields, full, on_manifold, best, posterior, population.nishimori(model, posterior),
        asymptotics.strong_signal_bayes(model), closed, asymptotics.limits_step(model, closed),
        short_sequences.two_tokens(model), short_sequences.largest_score(model),
    ]
    kept = tuple(s for s in steps if s is not None)
    return PopulationEquations(model, Derivation(f"Population level, {model.name}", kept))


@dataclass(frozen=True)
class FlowEquations(_Equations):
    """The overlaps under one-pass stochastic gradient descent."""


def derive_flow(model: Model) -> FlowEquations:
    """Derive the flow of all overlaps under one-pass SGD, and its gradient-flow limit.

    Raises ``DerivationError`` for a loss without the parity that keeps the manifold invariant.
    """
    from replica.derivation import flow, transverse

    slopes = flow.gradient(model)
    overlaps = flow.overlap_flow(model, slopes)
    invariant = flow.invariance(model, overlaps)
    steps = [slopes, overlaps, flow.gradient_flow(model, overlaps), invariant]
    if invariant is not None:
        steps += [transverse.second_slopes(model, slopes),
                  transverse.linear_stability(model, overlaps, invariant)]
    kept = tuple(s for s in steps if s is not None)
    return FlowEquations(model, Derivation(f"One-pass SGD, {model.name}", kept))


Equations = SaddlePointEquations | BayesEquations | PopulationEquations | FlowEquations

DERIVERS: Mapping[str, Callable[[Model], Equations]] = {
    "erm": derive_erm, "bayes": derive_bayes, "population": derive_population, "flow": derive_flow,
}
"""Every chain by its name."""
