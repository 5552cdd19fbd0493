"""The checks can fail: a term with its sign flipped, doubled or dropped is noticed.

Survivors, and why they are no defect:

* the sign of the cavity noise ``zeta`` or of the label noise ``xi``: both are symmetric, so the
  flipped statement is the same law.
"""

import pytest

from derivations.classical import logistic, ridge
from replica.derivation.chain import derive_erm
from replica.derivation.mutate import all_survivors, mutants
from tests.conftest import derived


def explained(step: str, mutant) -> bool:
    laws = ("cavity fields", "marginal cavity law")
    noise = ("zeta" in mutant.term) != ("xi" in mutant.term)
    return step in laws and mutant.change == "flipped" and noise and "star" not in mutant.term


def unexplained(equations, known=None):
    return [
        (step, m.name, m.change, m.term)
        for step, kept in all_survivors(equations.derivation, known).items()
        for m in kept
        if not explained(step, m)
    ]


@pytest.mark.parametrize("model", [ridge, logistic])
def test_one_token_problems(model):
    assert unexplained(derive_erm(model())) == []


@pytest.mark.slow
def test_single_location_regression(activation):
    """What does not depend on the activation is tried once, with softmax."""
    task = "max" if activation == "softplus" else "spiked"
    known = None if activation == "softmax" else derived("softmax").derivation
    assert unexplained(derived(activation, task), known) == []


def test_there_are_mutants_of_every_step():
    for step in derived("linear").derivation:
        assert list(mutants(step)), step.name


def test_added_terms_are_noticed_too():
    """Mutants that no drop, flip or doubling makes: something added to a law or an average."""
    import sympy as sp

    from replica.model import LABEL
    from replica.symbolic.tokens import RELEVANT, TokenSum, index

    equations = derived("softmax")
    k, v = equations.model.sectors
    l = index("l")  # noqa: E741
    law = equations.derivation["marginal cavity law"]
    shift = sp.sqrt(sp.Symbol("nu", nonnegative=True)) * k.m
    for name, value in (
        ("omega_k", shift + sp.sqrt(k.q) * k.noise(l)),
        ("omega_k", law.conclusion["omega_k"] + 5),
        ("omega_v", law.conclusion["omega_v"] + 1),
        ("y", law.conclusion["y"] + 7),
        ("y", law.conclusion["y"] + 3 * v.noise(RELEVANT)),
        ("y", law.conclusion["y"] + TokenSum(v.cavity(l), l)),
    ):
        assert not law.check({**law.conclusion, name: value}).passed, (name, value)
    form = equations.derivation["conditioned form of the readout's conjugate"]
    (average,) = form.conclusion["mhat_v"].atoms(type(equations.conjugates["qhat_k"].args[-1]))
    for extra in (TokenSum(v.residual(l) * v.cavity(l), l), v.residual(RELEVANT) ** 2, LABEL**2):
        wrong = form.conclusion["mhat_v"].xreplace(
            {average: type(average)(average.body + extra, average.random)}
        )
        assert not form.check({"mhat_v": wrong}).passed, extra
