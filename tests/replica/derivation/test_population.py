"""The population chain: checks, mutants, and the answers that are known."""

import pytest
import sympy as sp

from derivations.own_activation import own_activation
from derivations.slr import single_location
from replica.derivation.chain import derive_population
from replica.derivation.mutate import all_survivors
from replica.errors import DerivationError
from replica.model import SIGNAL
from replica.symbolic.averages import Expectation
from replica.symbolic.tokens import LENGTH

NU = SIGNAL
CASES = [("spiked", False), ("max", False), ("max", True)]


@pytest.mark.parametrize(("task", "strongest"), CASES)
def test_every_step_passes_its_check(activation, task, strongest):
    equations = derive_population(single_location(task, activation, strongest=strongest))
    for step in equations.derivation:
        result = step.run_check()
        assert result.passed, (step.name, result.detail)
        assert step.check is not None


@pytest.mark.parametrize(("task", "name"), [("spiked", "softmax"), ("spiked", "linear"),
                                            ("max", "softplus")])
def test_no_mutant_survives(task, name):
    assert all_survivors(derive_population(single_location(task, name)).derivation) == {}


def test_softmax_satisfies_the_nishimori_condition():
    for task, scale in (("spiked", sp.sqrt(NU)), ("max", NU)):
        step = derive_population(single_location(task, "softmax")).derivation["Nishimori condition"]
        assert step.conclusion["bend"] == 0
        assert sp.simplify(step.conclusion["key_scale"] - scale) == 0


@pytest.mark.parametrize("name", ["linear", "erf", "softplus"])
@pytest.mark.parametrize("task", ["spiked", "max"])
def test_other_activations_break_it(task, name):
    step = derive_population(single_location(task, name)).derivation["Nishimori condition"]
    assert step.conclusion["bend"] != 0
    assert "key_scale" not in step.conclusion


def test_your_own_activation_is_judged_too():
    steep = own_activation("steep", "exp(2*x)", normalised=True)
    step = derive_population(single_location("spiked", steep)).derivation["Nishimori condition"]
    assert step.conclusion["key_scale"] == sp.sqrt(NU) / 2
    square = own_activation("square", "exp(x**2)", normalised=True)
    step = derive_population(single_location("spiked", square)).derivation["Nishimori condition"]
    assert step.conclusion["bend"] == 2


@pytest.mark.parametrize(("length", "nu", "excess"), [
    (2, 1, sp.Rational(2, 5)), (2, 2, sp.Rational(1, 3)), (2, 5, sp.Rational(2, 9)),
    (3, 1, sp.Rational(6, 11)), (3, 2, sp.Rational(6, 13)), (3, 5, sp.Rational(6, 19)),
])
def test_linear_attention_in_closed_form(length, nu, excess):
    derivation = derive_population(single_location("spiked", "linear")).derivation
    found = derivation["closed moments"].conclusion["excess_risk"]
    assert found.subs({LENGTH: length, NU: nu}) == excess
    assert sp.limit(found.subs(LENGTH, 3) * NU, NU, sp.oo) == 3


def test_cross_overlaps_have_no_gradient_on_the_manifold_and_a_risk_off_it():
    derivation = derive_population(single_location("spiked", "softmax")).derivation
    names = {"m_kv", "m_vk", "q_kv"}
    conclusion = derivation["manifold"].conclusion
    assert {n for n in conclusion if n.startswith("gradient")} == {f"gradient_{n}" for n in names}
    assert all(conclusion[f"gradient_{n}"] == 0 for n in names)
    (average,) = derivation["population risk"].conclusion["risk"].atoms(Expectation)
    assert names <= {s.name for s in average.free_symbols}


def test_label_and_teacher_are_in_the_risk():
    rho = sp.Symbol("rho_v", positive=True)
    from replica.model import NOISE, NOISE_STD, Sector
    from replica.symbolic.tokens import RELEVANT

    twice = single_location(
        "spiked", "linear", rho_v=rho,
        channel=2 * Sector("v", "z").teacher(RELEVANT) + NOISE_STD * NOISE,
    )
    derivation = derive_population(twice).derivation
    plain = derive_population(single_location("spiked", "linear")).derivation
    ratio = (derivation["closed moments"].conclusion["excess_risk"]
             / plain["closed moments"].conclusion["excess_risk"])
    assert sp.simplify(ratio - 4 * rho) == 0
    for step in derivation:
        assert step.run_check().passed, step.name


def test_other_predictors_are_refused_with_a_reason():
    from dataclasses import replace

    model = replace(single_location(), prediction=sp.Symbol("a"))
    with pytest.raises(DerivationError, match="sum_l sigma_l z_l"):
        derive_population(model)
