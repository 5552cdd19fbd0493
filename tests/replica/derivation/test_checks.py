"""Every step of every derivation passes its own check."""

import pytest

from derivations.classical import logistic, ridge
from replica.derivation.chain import derive_erm
from tests.conftest import derived


@pytest.mark.parametrize("task", ["spiked", "max"])
def test_all_steps_pass(activation, task):
    for step in derived(activation, task).derivation:
        result = step.run_check()
        assert result.passed, f"{step.name}: {result.detail}"


@pytest.mark.parametrize("model", [ridge, logistic])
def test_all_steps_of_classical_problems_pass(model):
    for step in derive_erm(model()).derivation:
        result = step.run_check()
        assert result.passed, f"{step.name}: {result.detail}"


def test_every_step_is_derived_and_has_a_check(activation):
    for step in derived(activation).derivation:
        assert step.derived, step.name
        assert step.check is not None, step.name


def test_premises_form_a_graph():
    import networkx as nx

    graph = derived("softmax").derivation.graph()
    assert nx.is_directed_acyclic_graph(graph)
    roots = [n for n, degree in graph.in_degree() if degree == 0]
    assert roots == ["replicated partition function"]


def test_early_steps_feed_the_later_ones():
    """Change what a step concludes, and the steps built on it conclude something else."""
    from dataclasses import replace

    from derivations.slr import single_location
    from replica.derivation import free_energy as F

    model = single_location()
    replicated, fourier, teacher = F.replicate(model), F.fourier(model), F.teacher_overlaps(model)
    ansatz = F.replica_symmetry(model, replicated, fourier)

    def scaled(step, factor):
        return replace(step, conclusion={k: factor * v for k, v in step.conclusion.items()})

    other = F.replica_symmetry(model, scaled(replicated, 7), fourier)
    assert other.conclusion["single"] != ansatz.conclusion["single"]
    assert not other.run_check().passed
    other = F.replica_symmetry(model, replicated, scaled(fourier, 3))
    assert other.conclusion["constraint"] != ansatz.conclusion["constraint"]
    assert not other.run_check().passed
    doubled = F.integrate_weights(model, ansatz, scaled(teacher, 2))
    assert not doubled.run_check().passed
    assert not F.local_fields(model, scaled(teacher, 2)).run_check().passed
    loss = F.loss_of(scaled(replicated, 7))
    assert loss == 7 * F.loss_of(replicated)
