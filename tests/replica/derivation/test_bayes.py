"""The Bayes-optimal chain: its checks, its mutants, published fixed points from its equations."""

import numpy as np
import pytest
import sympy as sp
from scipy.stats import qmc

from derivations.slr import single_location
from replica.codegen.numpy_printer import compile_numpy
from replica.derivation.chain import derive_bayes
from replica.derivation.mutate import all_survivors
from replica.errors import DerivationError
from replica.ir.lower import lower
from replica.model import NOISE, NOISE_STD
from replica.normals import standard_normal
from replica.symbolic.averages import Expectation
from replica.symbolic.tokens import RELEVANT, index

MODELS = {
    "spiked": lambda: single_location("spiked"),
    "max": lambda: single_location("max"),
    "argmax": lambda: single_location("max", strongest=True),
}


@pytest.fixture(params=sorted(MODELS), scope="module")
def equations(request):
    return derive_bayes(MODELS[request.param]())


def test_every_step_passes_its_check(equations):
    for step in equations.derivation:
        result = step.run_check()
        assert result.passed, (step.name, result.detail)
        assert step.check is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spiked", "max"])
def test_mutants_are_noticed(name):
    """Survivors flip the sign of a symmetric noise, which is the same law."""
    known = None if name == "spiked" else derive_bayes(MODELS["spiked"]()).derivation
    found = all_survivors(derive_bayes(MODELS[name]()).derivation, known)
    assert set(found) <= {"law of the fields"}
    for mutant in found.get("law of the fields", []):
        assert mutant.change == "flipped"
        assert "zeta" in mutant.term or "xi" in mutant.term


class StateEvolution:
    """The derived equations of a closed weight, averaged over Sobol nodes."""

    def __init__(self, model, length, values, nodes=2**15):
        self.equations = derive_bayes(model)
        self.values, self.length = values, length
        uniforms = qmc.Sobol(2 * length + 1, seed=1).random(nodes).T
        normals = standard_normal(uniforms)
        self.noise = {"zeta_k": normals[:length], "zeta_v": normals[length : 2 * length],
                      "xi": normals[-1]}

    def mean(self, expr, at):
        """``expr`` with its one average taken over the nodes."""
        (average,) = sp.sympify(expr).atoms(Expectation)
        law = self.equations.law
        fields = dict(self.noise)
        for name in ("omega_k", "omega_v", "y"):
            (fields[name],) = self.run({name: law[name]}, fields, at)
        (value,) = self.run({"value": average.body}, fields, at)
        number = sp.sympify(expr).xreplace({average: sp.Float(float(np.mean(value)))})
        return float(number.xreplace({s: sp.Float(at[s.name]) for s in number.free_symbols}))

    def run(self, outputs, fields, at):
        shapes = {n: "node" if np.ndim(a) == 1 else "token" for n, a in fields.items()}
        inputs = {**shapes, **dict.fromkeys(at, "uniform")}
        program = lower("part", outputs, inputs, {index("l"): "token"})
        named = {**fields, **at}
        return compile_numpy(program)(*(named[n] for n, _ in program.inputs), self.length)

    def fixed_point(self, alpha, start, sweeps=60):
        at = {**self.values, "alpha": alpha, "q_k": start, "q_v": start}
        for _ in range(sweeps):
            hats = {n: self.mean(e, at) for n, e in self.equations.conjugates.items()}
            for n, e in self.equations.overlaps.items():
                at[n] = float(e.xreplace({s: sp.Float(hats[s.name]) for s in e.free_symbols}))
        return at["q_k"], at["q_v"], self.mean(self.equations.test_error, at)


@pytest.mark.parametrize(("alpha", "q_k", "q_v", "error"), [
    (1.0, 0.3352, 0.4500, 0.8284), (3.0, 0.7288, 0.9935, 0.5378),
])
def test_published_fixed_points_come_out(alpha, q_k, q_v, error):
    """Spiked, ``nu = 1, L = 3, Delta = 0.1``; confirmed there by message passing."""
    se = StateEvolution(single_location("spiked"), 3, {"nu": 1.0, "Delta": 0.1})
    found = se.fixed_point(alpha, 0.5)
    assert found == pytest.approx((q_k, q_v, error), abs=2e-3)


def test_the_free_entropy_is_stationary_there():
    se = StateEvolution(single_location("spiked"), 3, {"nu": 1.0, "Delta": 0.3}, nodes=2**13)
    q_k, q_v, _ = se.fixed_point(1.0, 0.5)
    at = {**se.values, "alpha": 1.0, "q_k": q_k, "q_v": q_v}
    hats = {n: se.mean(e, at) for n, e in se.equations.conjugates.items()}
    for name in ("q_k", "q_v"):
        ends = [
            se.mean(se.equations.free_entropy, {**at, **hats, name: at[name] + h})
            for h in (1e-3, -1e-3)
        ]
        assert abs(ends[0] - ends[1]) / 2e-3 < 5e-3


def test_the_teacher_s_variance_is_in_the_equations():
    rho = sp.Symbol("rho_k", positive=True)
    equations = derive_bayes(single_location("spiked", rho_k=rho))
    assert rho in equations.overlaps["q_k"].free_symbols
    for step in equations.derivation:
        assert step.run_check().passed, step.name


def test_more_noise_is_in_the_equations():
    loud = single_location(
        "spiked", channel=sp.Function("z_star", real=True)(RELEVANT) + 3 * NOISE_STD * NOISE
    )
    variance = derive_bayes(loud).derivation["channel"].conclusion["variance"]
    assert variance.coeff(NOISE_STD**2) == 9
    assert derive_bayes(loud).derivation["channel"].run_check().passed


def test_other_channels_are_refused_with_a_reason():
    sign = single_location("spiked", channel=sp.sign(sp.Function("z_star", real=True)(RELEVANT)))
    with pytest.raises(DerivationError, match="additive Gaussian noise"):
        derive_bayes(sign)
