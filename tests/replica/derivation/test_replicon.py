"""The derived stability operator is the one that the engine evaluates."""

import numpy as np
import pytest
import sympy as sp
from sympy.core.function import AppliedUndef

from replica.model import RATIO
from replica.saddle_point.solve import SaddlePointProblem, SolverOptions
from replica.symbolic.averages import Expectation
from replica.symbolic.tokens import TokenSum
from tests.conftest import derived

VALUES = {"nu": 2.0, "Delta": 0.1, "r_k": 0.5, "r_v": 0.5}
POINT = np.array([0.3, 0.4, 1.2, 0.6, 0.7, 0.9])


@pytest.fixture
def problem(activation):
    p = SaddlePointProblem(
        derived(activation), VALUES, {3: 1.0}, SolverOptions(nodes=1024, backend="numpy")
    )
    at = p.uniform(POINT, 2.0)
    p.engine.sweep(at, 1e-12, search="all")
    return p, at


def derived_operator(p, at):
    """Every entry of the replicon step, its averages taken over the engine's nodes."""
    (group,), (state,) = p.nodes.groups, p.engine.state
    nodes = group.count
    response = p.engine.responses(group, state, slice(0, nodes), at)
    blocks = response.reshape(nodes, 2, 3, 2, 3)
    names = {s.name: i for i, s in enumerate(p.sectors)}

    def block(function):
        a, c = function.func.__name__.split("_")[1]
        return blocks[:, names[a], :, names[c], :]

    def average(e):
        (outer,) = [e.body] if isinstance(e.body, TokenSum) else e.body.args
        product = outer.body.body
        value = 1.0
        for factor in sp.Mul.make_args(product):
            base, power = factor.as_base_exp()
            assert isinstance(base, AppliedUndef)
            value = value * block(base) ** int(power)
        return float(value.sum(axis=(1, 2)).mean())

    found = {}
    for name, expr in p.equations.derivation["replicon"].conclusion.items():
        number = expr.xreplace({e: sp.Float(average(e)) for e in expr.atoms(Expectation)})
        found[name] = float(number.xreplace({
            RATIO: sp.Float(2.0), **{s.V: sp.Float(at[s.V.name]) for s in p.sectors}
        }))
    return found


def test_the_engine_evaluates_the_derived_operator(problem):
    p, at = problem
    T = derived_operator(p, at)
    (group,), (state,) = p.nodes.groups, p.engine.state
    squares = p.engine.squared_responses(group, state, slice(0, group.count), at) / group.count
    V = POINT[[2, 5]]
    mine = 2.0 * V[:, None] ** 2 * squares
    names = [s.name for s in p.sectors]
    for i, a in enumerate(names):
        for j, c in enumerate(names):
            assert mine[i, j] == pytest.approx(T[f"T_{a}{c}"], rel=1e-10)


def test_the_block_bounds_the_modes_between_sectors(problem):
    p, at = problem
    T = derived_operator(p, at)
    bound = np.sqrt(T["T_kk"] * T["T_vv"]) + np.sqrt(T["T_kv"] * T["T_vk"])
    radius = max(abs(np.linalg.eigvals([[T["T_kk"], T["T_kv"]], [T["T_vk"], T["T_vv"]]])))
    for mode in ("T_kv_plus", "T_kv_minus"):
        assert abs(T[mode]) <= bound * (1 + 1e-12)
        assert abs(T[mode]) <= radius * (1 + 1e-12)
