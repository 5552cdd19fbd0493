"""The population chain: checks, mutants, and the answers that are known."""

import pytest
import sympy as sp

from derivations.own_activation import own_activation
from derivations.slr import single_location
from replica.derivation.chain import derive_population
from replica.derivation.mutate import all_survivors, survivors
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


def test_short_sequences_in_closed_form():
    model = single_location("max", "linear", strongest=True)
    derivation = derive_population(model).derivation
    step = derivation["largest score"]
    assert survivors(step) == []
    e = sp.Symbol("e", nonnegative=True)
    risk = step.conclusion["excess_risk"]
    assert sp.simplify(risk - (1 - (1 + e**2) / LENGTH)) == 0
    pair = risk.xreplace({LENGTH: sp.Integer(2), e: step.conclusion["e_2"]})
    assert float(pair) == pytest.approx(0.3408, abs=6e-5)
    other = single_location("max", own_activation("line", "3 + 2*x"), strongest=True)
    moved = derive_population(other).derivation["largest score"]
    assert sp.simplify(moved.conclusion["m_k"] - 3 * e / 2) == 0
    softmax = derive_population(single_location("spiked", "softmax")).derivation
    assert softmax["one and two tokens"].conclusion["s_1_single"] == 1
    assert "one and two tokens" not in derive_population(
        single_location("spiked", "softplus")).derivation


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


def test_the_strong_signal_law_of_softmax():
    """``(L - 1) (sqrt(pi)/2) nu^(-1/2) exp(-nu/4)``, with the published ratios at finite ``nu``."""
    import mpmath as mp

    derivation = derive_population(single_location("spiked", "softmax")).derivation
    law = derivation["strong signal"].conclusion["bayes_excess"]
    known = (LENGTH - 1) * sp.sqrt(sp.pi) / 2 * NU ** sp.Rational(-1, 2) * sp.exp(-NU / 4)
    assert sp.simplify(law - known) == 0
    for nu, ratio in ((100, 0.977), (200, 0.988)):
        with mp.workdps(30):
            exact = mp.quad(
                lambda u, nu=nu: 2 / ((1 + mp.exp(-u)) * (1 + mp.exp(u)))
                * mp.exp(-((u - nu) ** 2) / (4 * nu)), [-60, -10, 0, 10, 60]
            ) / mp.sqrt(4 * mp.pi * nu)
            assert float(exact / law.subs({LENGTH: 2, NU: nu}).evalf(20)) == pytest.approx(
                ratio, abs=6e-4)


def test_limits_of_linear_attention():
    derivation = derive_population(single_location("spiked", "linear")).derivation
    conclusion = derivation["limits of the closed risk"].conclusion
    assert sp.simplify(conclusion["strong_signal"] - LENGTH / NU) == 0
    assert conclusion["long_sequence"] == 1


@pytest.mark.parametrize(("q", "mean"), [(0.3, 0.0), (1.7, 0.8)])
def test_erf_moments_are_closed(q, mean):
    import numpy as np
    from scipy.special import erf

    moments = derive_population(
        single_location("spiked", "erf")
    ).derivation["closed moments"].conclusion
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    weights = weights / weights.sum()

    def average(power, centre):
        return float(np.sum(weights * (1 + erf(-0.7 + centre + np.sqrt(q) * nodes)) ** power))

    at = {sp.Symbol("c", real=True): -0.7, NU: 1.0, LENGTH: 4, sp.Symbol("m_k", real=True): mean,
          sp.Symbol("q_k", positive=True): q}
    found = [float(moments[n].subs(at).evalf()) for n in ("s_1", "s_2")]
    assert found == pytest.approx(
        [average(1, mean), average(2, mean) + 3 * average(2, 0.0)], rel=1e-9)
