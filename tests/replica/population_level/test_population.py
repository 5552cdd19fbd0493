"""Population level: published numbers, and every quadrature against an independent route."""

import json
import math

import mpmath as mp
import numpy as np
import pytest
import sympy as sp

import replica
from derivations.setting import make_setting
from replica.cli import run
from replica.derivation.population import closed_moments
from replica.errors import ReplicaError, UsageError
from replica.model import SIGNAL
from replica.population_level import exact
from replica.population_level.independent import Token, normalised_moments
from replica.population_level.moments import Moments, mixture
from replica.population_level.precise import PreciseProblem
from replica.population_level.risk import PopulationProblem
from replica.symbolic.primitives import owens_t
from replica.symbolic.tokens import LENGTH
from validation.population import population_error
from validation.simulate import attention_kernel


def problem(**words):
    setting = make_setting(reg=1, **words)
    return PopulationProblem(setting.model(), setting.values(), setting.lengths)


@pytest.mark.parametrize(("length", "nu", "bayes", "linear"), [
    (2, 1, 0.324943, 0.4), (2, 2, 0.224800, 1 / 3), (2, 5, 0.084397, 2 / 9),
    (3, 1, 0.481126, 6 / 11), (3, 2, 0.352423, 6 / 13), (3, 5, 0.145244, 6 / 19),
])
def test_published_numbers_on_the_spiked_task(length, nu, bayes, linear):
    found = replica.population(activation="softmax", nu=nu, length=length)
    assert found.excess_risk == pytest.approx(bayes, abs=6e-7)
    assert found.gap == 0
    assert found.scale_k == pytest.approx(math.sqrt(nu))
    other = replica.population(activation="linear", nu=nu, length=length)
    assert other.excess_risk == pytest.approx(linear, rel=1e-12)
    assert other.method == "closed form"
    assert other.bayes_excess_risk == pytest.approx(found.excess_risk, rel=1e-12)


@pytest.mark.parametrize(("nu", "expected"), [(1, 0.4873), (2, 0.3698), (5, 0.1946)])
def test_softplus_at_its_best_scale(nu, expected):
    found = replica.population(activation="softplus", nu=nu, length=3)
    assert found.excess_risk == pytest.approx(expected, abs=6e-5)
    assert found.gap > 0


@pytest.mark.parametrize(("length", "expected"), [
    (2, 0.3408), (3, 0.4279), ({1: 1 / 3, 2: 1 / 3, 3: 1 / 3}, 0.3895),
])
def test_linear_attention_where_the_largest_score_is_relevant(length, expected):
    found = replica.population(activation="linear", task="max", nu="inf", length=length)
    lengths = length if isinstance(length, dict) else {length: 1.0}
    largest = {1: 0.0, 2: 1 / math.sqrt(math.pi), 3: 1.5 / math.sqrt(math.pi)}
    e = sum(p * largest[k] for k, p in lengths.items())
    closed = 1 - (1 + e * e) / sum(k * p for k, p in lengths.items())
    assert found.excess_risk == pytest.approx(closed, abs=1e-12)
    assert found.excess_risk == pytest.approx(expected, abs=6e-5)


def test_linear_attention_at_a_random_length():
    lengths = {1: 0.25, 2: 0.5, 3: 0.25}
    found = replica.population(activation="linear", nu=2, length=lengths)
    assert found.excess_risk == pytest.approx(1 / (1 + 1 / (2 - 1) + 2 / 2), rel=1e-12)


@pytest.mark.parametrize("words", [
    {"activation": "softmax", "nu": 2, "length": {1: 0.25, 2: 0.5, 3: 0.25}},
    {"activation": "softplus", "nu": 2, "length": 4},
    {"activation": "erf", "nu": 2, "length": 3},
    {"activation": "softmax", "nu": 2, "length": 3, "task": "max"},
    {"activation": "linear", "nu": 2, "length": 3, "task": "max"},
    {"activation": "erf", "nu": 1.5, "length": 4, "task": "max"},
    {"activation": "softplus", "nu": 2, "length": 3, "task": "max"},
    {"activation": "softplus", "nu": "inf", "length": 3, "task": "max"},
    {"activation": "erf", "nu": "inf", "length": 3, "task": "max"},
])
def test_risk_of_a_wide_key_agrees_with_quasi_monte_carlo(words):
    """A key partly off the teacher, and the best value vector: sampled over all fields."""
    mine = problem(**words)
    setting = make_setting(reg=1, **words)
    model = setting.model()
    m, q = 0.9, 1.3
    moments, _ = mine.moments(m, q)
    v = moments.s1 / moments.s2
    overlaps = {"m_k": m, "q_k": q, "m_v": v, "q_v": v * v, "m_kv": 0.0, "m_vk": 0.0, "q_kv": 0.0}
    draws = [
        population_error(model, attention_kernel(model, setting), overlaps, setting.values(),
                         setting.lengths, 0.0, power=13, seed=seed) for seed in range(6)
    ]
    error = np.std(draws, ddof=1) / math.sqrt(len(draws))
    tolerance = 4 * error + (2e-3 if mine.sampled else 0.0)
    assert abs(np.mean(draws) - moments.excess) < tolerance
    assert error < 6e-4


def test_the_best_scale_is_a_minimum_and_erf_has_two():
    mine = problem(activation="erf", nu=2, length=3)
    scales = mine.minima()
    assert len(scales) == 2
    for s in scales:
        assert s.excess == pytest.approx(mine.excess(s.m, s.q), abs=1e-12)
        for factor in (0.98, 1.02):
            assert mine.excess(s.m * factor, s.q * factor**2) > s.excess
        assert mine.excess(s.m, s.q * 1.02) > s.excess
    best = mine.best_parameters()
    assert best.minima()[0].excess < scales[0].excess - 1e-3
    for other in (-0.7, -0.73):
        values = {**best.values, "c": other}
        shifted = PopulationProblem(best.model, values, best.lengths)
        assert shifted.minima()[0].excess > best.minima()[0].excess - 1e-12


@pytest.mark.parametrize(("nu", "ratio"), [(100, 0.977), (200, 0.988), (10000, 0.99975)])
def test_strong_signal_without_underflow(nu, ratio):
    found = replica.population(activation="softmax", nu=nu, length=2)
    law = math.log(math.sqrt(math.pi) / 2) - 0.5 * math.log(nu) - nu / 4
    assert math.exp(found.log_excess_risk - law) == pytest.approx(ratio, abs=6e-4)
    if nu == 10000:
        assert found.excess_risk == 0.0  # below the doubles, as its logarithm says


def test_many_tokens_cost_nothing_and_agree_with_sampling():
    found = replica.population(activation="softmax", nu=10, length=4096)
    rng = np.random.default_rng(3)
    chi = math.sqrt(10) * rng.standard_normal((2000, 4096))
    chi[:, 0] += 10
    p = np.exp(chi - chi.max(axis=1, keepdims=True))
    squares = 1 - ((p / p.sum(axis=1, keepdims=True)) ** 2).sum(axis=1)
    assert abs(squares.mean() - found.excess_risk) < 4 * squares.std() / math.sqrt(2000)


def test_bayes_bounds_every_activation_and_zero_signal_knows_nothing():
    for name in ("softplus", "erf", "linear"):
        for task, nu in (("spiked", 3), ("max", 3)):
            found = replica.population(activation=name, task=task, nu=nu, length=3)
            slack = 4 * found.standard_errors["excess_risk"]
            assert found.excess_risk > found.bayes_excess_risk - slack
    found = replica.population(activation="softmax", nu=0, length={1: 0.5, 4: 0.5})
    assert found.excess_risk == pytest.approx(0.5 * 0.75)
    assert replica.population(activation="softmax", nu=2, length=1).log_excess_risk == -math.inf


def test_softmax_reaches_zero_where_the_largest_score_is_relevant():
    found = replica.population(activation="softmax", task="max", nu="inf", length=5)
    assert found.scale_k == math.inf
    assert found.excess_risk == 0.0
    strong = replica.population(activation="softmax", task="max", nu=200, length=5)
    assert 0 < strong.excess_risk < 0.05


def test_certified_digits_by_two_routes():
    """Two tokens: the difference of the scores, and the Laplace variable of the normalisation."""
    with mp.workdps(38):
        root = mp.sqrt(2)
        one = exact.two_tokens(mp.mpf(2), 2 * mp.mpf(1), 30)
        two = exact.normalised_pair(lambda x: x, (mp.mpf(2), root), (mp.mpf(0), root), 2, 30,
                                    exact.first_spacing(30))
        for a, b in zip(one, two, strict=True):
            assert abs(a / b - 1) < mp.mpf(10) ** -28
    found = replica.population(activation="softmax", nu=2, length=2, precision=30)
    assert found.numbers["excess_risk"].startswith("0.22479975460333641485584025")
    doubles = replica.population(activation="softmax", nu=2, length=2)
    assert float(found.numbers["excess_risk"]) == pytest.approx(doubles.excess_risk, rel=1e-14)


def test_certified_erf_against_its_closed_moments():
    """The derived moments with Owen's function, which is another integral."""
    found = replica.population(activation="erf", nu=2, length=3, precision=25)
    model = make_setting(activation="erf", nu=2, length=3, reg=1).model()
    closed = closed_moments(model).conclusion
    with mp.workdps(32):
        m = mp.mpf(found.numbers["scale_k"])
        q = mp.mpf(found.numbers["q_k"])
        k = model.sectors[0]

        def owen(h, a):
            return mp.quad(
                lambda t: mp.exp(-h * h * (1 + t * t) / 2) / (1 + t * t), [0, a / 2, a]
            ) / (2 * mp.pi)

        at = {k.m: sp.Float(m, 32), k.q: sp.Float(q, 32), LENGTH: 3, SIGNAL: 2}
        shift = {s: -1 for s in closed["s_1"].free_symbols if s.name == "c"}
        for name in ("s1", "s2"):
            expr = closed[f"s_{name[1]}"].xreplace(at).xreplace(shift)
            held = {
                t: sp.Float(owen(*(mp.mpf(str(sp.N(a, 32))) for a in t.args)), 32)
                for t in expr.atoms(owens_t)
            }
            value = mp.mpf(str(sp.N(expr.xreplace(held), 32)))
            assert abs(value / mp.mpf(found.numbers[name]) - 1) < mp.mpf(10) ** -23


@pytest.mark.parametrize("words", [
    {"activation": "linear", "nu": 2, "length": 3},
    {"activation": "linear", "task": "max", "nu": "inf", "length": 3},
    {"activation": "softmax", "task": "max", "nu": 2, "length": 3},
    {"activation": "softplus", "nu": 1, "length": 2},
])
def test_certified_digits_agree_with_doubles(words):
    digits = 14
    found = replica.population(precision=digits, **words)
    doubles = replica.population(**words)
    for name in ("excess_risk", "bayes_excess_risk", "s1", "s2"):
        assert float(found.numbers[name]) == pytest.approx(getattr(doubles, name), rel=2e-7)
    assert float(found.numbers["excess_risk"]) == pytest.approx(doubles.excess_risk, rel=1e-11)


def test_a_rough_integrand_is_not_certified():
    with mp.workdps(20), pytest.raises(ReplicaError, match="digits were not reached"):
        exact.normal_average(lambda x: mp.mpf(abs(x - 0.3)), mp.mpf(0), mp.mpf(1), 12)


def test_quadrature_error_is_reported_not_hidden():
    moments, error = normalised_moments(
        lambda x: np.log1p(np.abs(x)), Token(0.3, 1.0), Token(0.0, 1.0), 3
    )
    assert 0 < moments.excess < 1
    assert error > 1e-9  # a kink: the rule converges slowly, and says so


def test_mixture_of_lengths_averages_the_moments():
    parts = {1: Moments.certain(), 3: Moments(0.5, 0.4, math.log(0.5), math.log(0.4))}
    pooled = mixture(parts, {1: 0.5, 3: 0.5})
    assert pooled.s1 == pytest.approx(0.75)
    assert pooled.excess == pytest.approx(1 - 0.75**2 / 0.7)


@pytest.mark.parametrize(("words", "field"), [
    ({"activation": "softplus", "task": "max", "nu": "inf", "length": 3, "precision": 20},
     "precision"),
    ({"activation": "softmax", "nu": 1, "length": 3, "precision": 0}, "precision"),
    ({"activation": "softmax", "nu": -1, "length": 3}, "nu"),
    ({"activation": "softmax", "nu": 1, "length": 0}, "length"),
    ({"activation": "softmax", "nu": 1, "length": 3, "shift": "optimal"}, "shift"),
])
def test_bad_input_names_its_field(words, field):
    with pytest.raises(UsageError) as caught:
        replica.population(**words)
    assert caught.value.field == field


def test_command_prints_the_documented_keys_and_draws(tmp_path, capsys):
    figure = tmp_path / "curve.svg"
    words = ["population", "--activation", "linear", "--nu", "1:4:3", "--length", "2,3", "--json"]
    assert run([*words, "--plot", str(figure)]) == 0
    body = json.loads(capsys.readouterr().out)
    assert len(body["points"]) == 6
    assert set(body["points"][0]) >= {
        "excess_risk", "log_excess_risk", "bayes_excess_risk", "gap", "scale_k", "q_k", "scale_v",
        "s1", "s2", "method", "standard_errors", "nu", "length",
    }
    assert "excess risk" in figure.read_text()
    assert run(["population", "--activation", "softmax", "--nu", "1", "--length", "2",
                "--precision", "20", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["excess_risk"] == "0.32494329766243459284"
    assert run(["population", "--activation", "softmax", "--nu", "x", "--length", "2"]) == 2
    assert "--nu: x is not allowed" in capsys.readouterr().err


def test_precise_problem_refuses_what_has_no_quadrature():
    with pytest.raises(UsageError):
        PreciseProblem(problem(activation="softplus", task="max", nu=2, length=3), 10)
