"""Wrong premises and wrong limits are noticed.

A step checks what it concludes, some steps relative to their premises; what a premise states is
checked at the premise. So a doubled premise must make the derivation fail, or the check of the step
that uses it, or the check of the premise itself.
"""

from dataclasses import replace

import pytest
import sympy as sp

from derivations.slr import single_location
from replica.derivation import (
    asymptotics,
    bayes,
    chain,
    curvature,
    flow,
    free_energy,
    population,
    reduction,
    replicon,
    saddle_point,
)
from replica.derivation.flow import STEP
from replica.derivation.free_energy import BETA, REPLICAS
from replica.derivation.step import Step
from tests.conftest import derived

MODULES = (asymptotics, bayes, curvature, flow, free_energy, population, reduction, replicon,
           saddle_point)


def calls_of(derive, model, monkeypatch):
    """Every call that makes a step from other steps: function, arguments, result."""
    calls = []

    def recorded(function):
        def wrapper(*arguments, **words):
            result = function(*arguments, **words)
            if isinstance(result, Step) and any(isinstance(a, Step) for a in arguments):
                calls.append((function, arguments, result))
            return result

        return wrapper

    with monkeypatch.context() as patch:
        for module in MODULES:
            for name, item in list(vars(module).items()):
                own = getattr(item, "__module__", "") == module.__name__
                if own and callable(item) and not isinstance(item, type) and name[0] != "_":
                    patch.setattr(module, name, recorded(item))
        derive(model)
    return calls


def notices(function, arguments, original):
    """Whether a step that these premises make is refused, fails its check, or is the same."""
    try:
        made = function(*arguments)
        return made is None or made.conclusion == original.conclusion or (
            not made.run_check().passed
        )
    except Exception:  # whatever a wrong premise breaks, it was noticed
        return True


@pytest.mark.slow
@pytest.mark.parametrize(("name", "activation", "least"), [
    ("derive_erm", "softmax", 30), ("derive_bayes", "softmax", 10),
    ("derive_population", "linear", 5), ("derive_flow", "softmax", 3),
])
def test_a_wrong_premise_is_noticed(name, activation, least, monkeypatch):
    calls = calls_of(getattr(chain, name), single_location("spiked", activation), monkeypatch)
    tried = 0
    for function, arguments, original in calls:
        for i, premise in enumerate(arguments):
            if not isinstance(premise, Step):
                continue
            for key, value in premise.conclusion.items():
                if value == 0:
                    continue
                wrong = replace(premise, conclusion={**premise.conclusion, key: 2 * value})
                tried += 1
                assert notices(
                    function, [*arguments[:i], wrong, *arguments[i + 1:]], original
                ) or not wrong.run_check().passed, (original.name, premise.name, key)
    assert tried >= least


def test_a_wrong_number_of_replicas_is_noticed():
    derivation = derived("softmax").derivation
    step, integral = derivation["no replicas: weights"], derivation["weight integral"]
    wrong = sp.diff(integral.conclusion["log_weights"], REPLICAS).subs(REPLICAS, 1)
    assert step.run_check().passed
    assert not step.check({**step.conclusion, "weights": wrong}).passed


def test_a_temperature_that_stays_finite_is_noticed():
    derivation = derived("softmax").derivation
    step, finite = derivation["free energy at zero temperature"], derivation[
        "free energy at finite temperature"]
    algebra = finite.conclusion["f"].subs(BETA, 50)
    data = [t for t in sp.Add.make_args(step.conclusion["f"]) if "Expectation" in sp.srepr(t)]
    rest = [t for t in sp.Add.make_args(algebra) if "Expectation" not in sp.srepr(t)]
    assert not step.check({"f": sp.Add(*rest, *data)}).passed


def test_a_step_size_that_stays_finite_is_noticed():
    derivation = chain.derive_flow(single_location()).derivation
    step, full = derivation["gradient flow"], derivation["flow of the overlaps"]
    wrong = sp.expand(full.conclusion["dq_v"] / STEP).subs(STEP, 1)
    assert not step.check({**step.conclusion, "dq_v": wrong}).passed
