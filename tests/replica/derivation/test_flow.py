"""The flow of the overlaps: checks, mutants, and simulated SGD."""

import numpy as np
import pytest
import sympy as sp

from derivations.classical import ridge
from derivations.slr import single_location
from replica.codegen.numpy_printer import compile_numpy
from replica.derivation.chain import derive_flow
from replica.derivation.flow import STEP
from replica.derivation.mutate import all_survivors
from replica.ir.lower import lower
from replica.model import LABEL, SIGMA, Sector
from replica.symbolic.averages import Expectation
from replica.symbolic.tokens import TokenSum, index


@pytest.mark.parametrize("task", ["spiked", "max"])
def test_every_step_passes_its_check(activation, task):
    for step in derive_flow(single_location(task, activation)).derivation:
        result = step.run_check()
        assert result.passed, (step.name, result.detail)


def test_one_token_problems_flow_too():
    derivation = derive_flow(ridge()).derivation
    assert "invariant manifold" not in derivation
    assert all(step.run_check().passed for step in derivation)


@pytest.mark.parametrize("name", ["softmax", "linear"])
def test_no_mutant_survives(name):
    assert all_survivors(derive_flow(single_location("spiked", name)).derivation) == {}


def test_another_loss_gives_another_flow():
    plain = single_location()
    other = single_location(loss=3 * plain.loss)
    mine, theirs = (derive_flow(m).derivation for m in (plain, other))
    for name, slope in mine["slopes of the loss"].conclusion.items():
        assert sp.expand(theirs["slopes of the loss"].conclusion[name] - 3 * slope) == 0
    for name, second in mine["curvature of the loss"].conclusion.items():
        assert second != 0
        assert sp.expand(theirs["curvature of the loss"].conclusion[name] - 3 * second) == 0
    assert (theirs["gradient flow"].conclusion["dm_v"]
            != mine["gradient flow"].conclusion["dm_v"])
    assert all(step.run_check().passed for step in theirs)


def test_another_loss_has_another_stability_of_the_manifold():
    """The growth rates are written in open slopes: a loss that is not a function of the same
    residual changes what stands for them, and the check of the step follows."""
    l, v = index("l"), Sector("v", "z")  # noqa: E741
    other = single_location(loss=sp.log(1 + (LABEL - TokenSum(SIGMA(l) * v.field(l), l)) ** 2))
    derivation = derive_flow(other).derivation
    curvature, plain = (
        d["curvature of the loss"].conclusion
        for d in (derivation, derive_flow(single_location()).derivation)
    )
    assert all(sp.expand(curvature[name] - plain[name]) != 0 for name in plain)
    for name in ("curvature of the loss", "stability of the manifold"):
        result = derivation[name].run_check()
        assert result.passed, (name, result.detail)


NAMES = ("m_k", "m_kv", "m_vk", "m_v", "q_k", "q_kv", "q_v")
NU, NOISE = 2.0, 0.1
DECAY = {"r_k": 0.3, "r_v": 0.2}


def fields_of(overlaps, length, count, rng):
    """Fields of fresh samples with the given overlaps, the relevant token first."""
    m_k, m_kv, m_vk, m_v, q_k, q_kv, q_v = overlaps
    covariance = np.array([
        [q_k, m_k, q_kv, m_kv], [m_k, 1, m_vk, 0], [q_kv, m_vk, q_v, m_v], [m_kv, 0, m_v, 1],
    ])
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))
    chi, chi_star, z, z_star = np.einsum("ij,jln->iln", root, rng.normal(size=(4, length, count)))
    for field, overlap in ((chi, m_k), (chi_star, 1.0), (z, m_vk)):
        field[0] += np.sqrt(NU) * overlap  # the spike shifts along k*
    y = z_star[0] + NOISE * rng.normal(size=count)
    return {"chi": chi, "chi_star": chi_star, "z": z, "z_star": z_star, "y": y}


class Flow:
    """The derived right-hand side, averaged over Monte Carlo fields."""

    def __init__(self, activation, length):
        conclusion = derive_flow(
            single_location("spiked", activation)
        ).derivation["flow of the overlaps"].conclusion
        self.length, self.parts = length, []
        for name in NAMES:
            e = conclusion[f"d{name}"]
            held = sorted(e.atoms(Expectation), key=str)
            shapes = {"chi": "token", "chi_star": "token", "z": "token", "z_star": "token",
                      "y": "node"}
            programs = [lower("part", {"v": h.body}, shapes) for h in held]
            symbols = [sp.Symbol(f"a{k}") for k in range(len(held))]
            named = {s.name: s for s in e.free_symbols}
            arguments = [named.get(n, sp.Symbol(n)) for n in (*NAMES, *DECAY)]
            written = e.xreplace(dict(zip(held, symbols, strict=True)))
            combined = sp.lambdify([STEP, *arguments, *symbols], written)
            self.parts.append(([(p, compile_numpy(p)) for p in programs], combined))

    def rate(self, overlaps, step, rng, count=40000):
        fields = fields_of(overlaps, self.length, count, rng)
        found = []
        for programs, combined in self.parts:
            means = [
                float(np.mean(f(*(fields[n] for n, _ in p.inputs), self.length)[0]))
                for p, f in programs
            ]
            found.append(combined(step, *overlaps, *DECAY.values(), *means))
        return np.array(found)


def simulate(activation, length, start, step, time, dimension, seed):
    """SGD on fresh samples, gradients by hand."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(dimension, 4)))[0].T * np.sqrt(dimension)
    k_star, v_star = basis[0], basis[1]
    m_k, m_kv, m_vk, m_v, q_k, _, q_v = start
    k = m_k * k_star + m_kv * v_star + np.sqrt(q_k - m_k**2 - m_kv**2) * basis[2]
    v = m_vk * k_star + m_v * v_star + np.sqrt(q_v - m_vk**2 - m_v**2) * basis[3]
    root = np.sqrt(dimension)
    for _ in range(round(time * dimension)):
        X = rng.normal(size=(length, dimension))
        X[0] += np.sqrt(NU) * k_star / root
        y = X[0] @ v_star / root + NOISE * rng.normal()
        chi, z = X @ k / root, X @ v / root
        if activation == "softmax":
            w = np.exp(chi - chi.max())
            sigma = w / w.sum()
            u = sigma * (z - sigma @ z)
        else:
            sigma, u = 1 + chi, z
        r = y - sigma @ z
        shrink_k, shrink_v = (1 - step * d / dimension for d in DECAY.values())
        k = shrink_k * k + step * r * (X.T @ u) / root
        v = shrink_v * v + step * r * (X.T @ sigma) / root
    return np.array([k @ k_star, k @ v_star, v @ k_star, v @ v_star, k @ k, k @ v, v @ v]
                    ) / dimension


@pytest.mark.slow
@pytest.mark.parametrize(("activation", "length", "step"), [
    ("softmax", 3, 0.5), ("linear", 2, 0.1),
])
def test_simulated_sgd_follows_the_derived_flow(activation, length, step):
    """From a start off the manifold; the cross overlaps decay."""
    q_kv = 0.3 * 0.2 + 0.1 * 0.3
    start = np.array([0.3, 0.1, 0.2, 0.3, 0.5, q_kv, 0.6])
    flow, rng = Flow(activation, length), np.random.default_rng(5)
    x, time, dt = start.copy(), 2.0, 0.05
    for _ in range(round(time / dt)):
        half = x + 0.5 * dt * flow.rate(x, step, rng)
        x = x + dt * flow.rate(half, step, rng)
    runs = np.array([
        simulate(activation, length, start, step, time, 500, seed) for seed in range(6)
    ])
    error = runs.std(axis=0, ddof=1) / np.sqrt(len(runs))
    assert np.all(np.abs(runs.mean(axis=0) - x) < 4.5 * error + 0.012)
    assert np.abs(x[[1, 2]]).max() < 0.2
    assert np.abs(x - start).max() > 0.1
