import numpy as np
import pytest

from derivations.slr import single_location
from replica.codegen.programs import build_programs
from replica.derivation.chain import derive_erm
from replica.saddle_point.kernels import Kernels
from replica.saddle_point.nodes import SCRAMBLES, make_nodes, spread_differences
from replica.saddle_point.solve import SaddlePointProblem, SolverOptions
from tests.conftest import derived


def nodes_of(task, nu, lengths, count=2**12, seed=0, stein=False):
    strongest = np.isinf(nu)
    equations = derived("linear", task, strongest) if not strongest else \
        derive_erm(single_location(task, "linear", strongest=True))
    kernels = Kernels(equations.model, build_programs(equations, stein=stein))
    values = {"Delta": 0.1} | ({} if strongest else {"nu": nu})
    return make_nodes(
        equations.model, lengths, count, seed, values, kernels.node_inputs, kernels.label
    )


def test_counts_are_rounded_up_to_powers_of_two():
    group = nodes_of("spiked", 2.0, {3: 1.0}, 5000).groups[0]
    assert group.per_scramble == 1024
    assert group.count == SCRAMBLES * 1024


def test_the_same_seed_gives_the_same_nodes_and_another_does_not():
    first, again, other = (
        nodes_of("spiked", 2.0, {2: 1.0}, 256, seed).groups[0].arrays for seed in (1, 1, 2)
    )
    for name, array in first.items():
        assert np.array_equal(array, again[name])
    assert not np.array_equal(first["y"], other["y"])


def test_spiked_data_shift_the_relevant_token():
    key = nodes_of("spiked", 2.0, {3: 1.0}).groups[0].arrays["chi_star"]
    assert key.mean(axis=1) == pytest.approx([np.sqrt(2.0), 0, 0], abs=0.01)
    assert key.var(axis=1) == pytest.approx([1, 1, 1], abs=0.02)


def test_max_data_put_the_largest_token_first():
    key = nodes_of("max", np.inf, {3: 1.0}).groups[0].arrays["chi_star"]
    assert np.all(key[0] >= key.max(axis=0))
    assert key[0].mean() == pytest.approx(3 / (2 * np.sqrt(np.pi)), abs=0.01)
    assert key.sum(axis=0).var() == pytest.approx(3, abs=0.05)  # as a set, plain Gaussian


@pytest.mark.parametrize("nu", [0.5, 2.0])
def test_finite_max_data_follow_their_density(nu):
    """Averages of the drawn first token against plain Gaussians weighted by ``g``."""
    key = nodes_of("max", nu, {3: 1.0}, 2**15).groups[0].arrays["chi_star"]
    plain = nodes_of("spiked", 0.0, {3: 1.0}, 2**15).groups[0].arrays["chi_star"]
    g = 3 * np.exp(nu * plain[0]) / np.exp(nu * plain).sum(axis=0)
    assert g.mean() == pytest.approx(1, abs=0.01)
    for power in (1, 2, 3):
        assert (key[0] ** power).mean() == pytest.approx((g * plain[0] ** power).mean(), abs=0.04)
        assert (key[1] ** power).mean() == pytest.approx((g * plain[1] ** power).mean(), abs=0.04)


def test_lengths_share_the_nodes_by_probability():
    groups = nodes_of("max", np.inf, {1: 0.25, 4: 0.75}, 4096).groups
    assert [g.length for g in groups] == [1, 4]
    assert [g.probability for g in groups] == [0.25, 0.75]
    assert groups[1].count > groups[0].count


@pytest.mark.parametrize(
    ("task", "nu", "names"),
    [("spiked", 2.0, {"zeta_k", "zeta_v", "xi"}),
     ("max", 2.0, {"chi_star", "zeta_k", "zeta_v", "xi"}),
     ("max", np.inf, {"chi_star", "zeta_k", "zeta_v", "xi"})],
)
def test_only_what_is_averaged_is_drawn(task, nu, names):
    """Spiked data need 2L + 1 dimensions, max data 3L + 1 or 3L + 2, instead of 4L + 1."""
    assert set(nodes_of(task, nu, {3: 1.0}, stein=True).groups[0].arrays) == names
    full = set(nodes_of(task, nu, {3: 1.0}).groups[0].arrays)
    assert {"chi_star", "z_star", "zeta_k", "zeta_v", "xi", "y"} == full


def test_only_differences_are_drawn_where_only_differences_matter():
    for name, size in (("softmax", 6), ("softplus", 7), ("linear", 7)):
        equations = derived(name, "spiked")
        kernels = Kernels(equations.model, build_programs(equations, stein=True))
        nodes = make_nodes(
            equations.model, {3: 1.0}, 2**12, 0, {"Delta": 0.1, "nu": 2.0}, kernels.node_inputs,
            kernels.label,
        )
        group = nodes.groups[0]
        assert group.dimension == size
        zeta = group.arrays["zeta_k"]
        centred = np.abs(zeta.sum(axis=0)).max() < 1e-12
        assert centred == (name == "softmax") == any("shift" in r for r in nodes.reductions)
        covariance = np.cov(zeta)
        expected = np.eye(3) - (1 / 3 if centred else 0)
        assert np.allclose(covariance, expected, atol=0.02)


@pytest.mark.parametrize("length", [1, 2, 5, 40])
def test_spread_differences_is_the_orthonormal_basis(length):
    basis = spread_differences(np.eye(length - 1), length)
    assert np.allclose(basis.T @ basis, np.eye(length - 1))
    assert np.allclose(basis.sum(axis=0), 0)


@pytest.mark.parametrize("name", ["softmax", "softplus", "linear", "erf"])
@pytest.mark.parametrize("task", ["spiked", "max"])
@pytest.mark.slow
def test_reduced_nodes_are_unbiased_against_plain_monte_carlo(name, task):
    """The reduced quasi-random averages against independent normals for every variable."""
    equations = derived(name, task)
    values = {"Delta": 0.1, "nu": 2.0, "r_k": 0.5, "r_v": 0.5}
    point = np.array([0.3, 0.4, 1.2, 0.6, 0.7, 0.9])
    reduced = SaddlePointProblem(equations, values, {3: 1.0}, SolverOptions(nodes=2**16))
    plain = SaddlePointProblem(
        equations, values, {3: 1.0}, SolverOptions(nodes=2**17, estimator="reparametrised")
    )
    rng = np.random.default_rng(1)
    group = plain.nodes.groups[0]
    law = plain.model.law
    u = rng.uniform(size=(law.dimension(3, ["k", "v"]), group.count))
    fields = law.teacher_fields(u, 3, plain.values, ["k", "v"])
    arrays = dict(group.arrays)
    for s in plain.model.sectors:
        arrays[s.teacher.__name__][...] = fields[s.name]
        arrays[s.noise.__name__][...] = rng.normal(size=(3, group.count))
    xi = rng.normal(size=group.count)
    arrays["y"][...] = fields["v"][0] + 0.1 * xi
    hats = []
    for p in (reduced, plain):
        at = p.uniform(point, 2.0)
        found = p.engine.sweep(at, 1e-10, "all")
        rows = np.array([
            list(p.hats({n: float(v[s]) for n, v in found.per_scramble.items()}, at).values())
            + [float(found.per_scramble[n][s]) for n in ("loss", "envelope")]
            for s in range(SCRAMBLES)
        ])
        hats.append((rows.mean(axis=0), rows.std(axis=0, ddof=1) / np.sqrt(SCRAMBLES)))
    z = (hats[0][0] - hats[1][0]) / np.hypot(hats[0][1], hats[1][1])
    assert np.abs(z).max() < 5.5  # eight scrambles: Student's tails
    ratios = hats[0][1] / hats[1][1]
    assert np.exp(np.log(ratios).mean()) < 1  # and half as many nodes know more
