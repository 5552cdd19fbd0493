import json
import math
import re

import pytest
import sympy as sp

import replica
from derivations.own_activation import load_activation, own_activation
from derivations.setting import make_setting
from derivations.slr import single_location
from replica.api import derive_model
from replica.cli import run
from replica.errors import UsageError

GATE = """
[activation]
name = "tanh-gate"
expression = "1 + tanh(beta + x)"
[activation.parameters]
beta = {default = -0.5, min = -3, max = 3}
"""
WEIGHT = """
[activation]
name = "tilted"
expression = "exp(x)*(1 + x**2/10)"
normalised = true
"""
RELU = """
[activation]
name = "relu-gate"
expression = "relu(1 + x)"
kink = 0.001
"""
FILES = {"gate": GATE, "weight": WEIGHT, "relu": RELU}


@pytest.fixture
def own(tmp_path, request):
    path = tmp_path / "mine.toml"
    path.write_text(FILES[request.param])
    return str(path)


every = pytest.mark.parametrize("own", sorted(FILES), indirect=True)


@every
@pytest.mark.parametrize("task", ["spiked", "max"])
def test_every_step_of_the_derivation_is_checked(own, task):
    equations = derive_model(single_location(task, load_activation(own)))
    for step in equations.derivation:
        result = step.run_check()
        assert result.passed, (step.name, result.detail)


@every
def test_theory_has_the_training_loss_as_free_energy(own):
    s = replica.solve(activation=own, nu=2, length=3, alpha=4, reg=1, nodes=2**12)
    assert s.converged
    assert s.free_energy == pytest.approx(s.train_loss, abs=1e-6)


@pytest.mark.slow
@every
def test_theory_and_simulation_agree(own):
    result = replica.validate(
        activation=own, nu=2, length=3, alpha=4, reg=1, dimensions=(100, 200), seeds=16, nodes=2**13
    )
    assert result.passed


def test_a_written_softmax_is_the_built_in_one():
    mine = own_activation("mine", "exp(x)", normalised=True)
    words = {"nu": 2, "length": 3, "alpha": 2, "reg": 0.5, "nodes": 2**12}
    a = replica.solve(activation=mine, **words)
    b = replica.solve(activation="softmax", **words)
    assert a.order_parameters == b.order_parameters


def test_a_written_erf_is_the_built_in_one():
    mine = own_activation("mine", "1 + erf(nu + x)", parameters={"nu": -1.0})
    words = {"nu": 2, "length": 3, "alpha": 4, "reg": 1, "nodes": 2**12}
    a = replica.solve(activation=mine, parameter={"nu": -0.5}, **words)
    b = replica.solve(activation="erf", shift=-0.5, **words)
    for name, value in b.order_parameters.items():
        assert a.order_parameters[name] == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("name", ["nu", "alpha", "m_k", "L", "beta", "y", "l1", "f_k", "lambda"])
def test_parameters_named_like_our_symbols_stay_apart(name):
    mine = own_activation("mine", f"1 + tanh({name} + x)", parameters={name: 0.25})
    ours = {"alpha", "nu", "Delta", "m_k", "q_k", "V_k", "y", "L", "f_k", "l1", "n"}
    assert not {p.symbol.name for p in mine.parameters} & ours
    setting = make_setting(activation=mine, nu=2, length=2, reg=1, parameter=[f"{name}=0.5"])
    assert setting.values()["nu"] == 2
    assert setting.inputs()["parameters"] == {name: 0.5}


def test_the_kink_is_rounded_and_the_replicon_called_a_lower_bound():
    words = {"nu": 2, "length": 3, "alpha": 4, "reg": 1, "nodes": 2**12}
    errors = []
    for width in (1e-2, 1e-3, 1e-4):
        s = replica.solve(activation=own_activation("r", "relu(1 + x)", kink=width), **words)
        assert s.converged
        assert any("lower bound" in m for m in s.messages)
        errors.append(s.test_error)
    assert abs(errors[2] - errors[1]) < 2e-4 < abs(errors[1] - errors[0]) * 10


def test_even_activations_have_no_sign_of_the_key():
    assert own_activation("a", "1 + x**2", normalised=True).even
    assert not own_activation("b", "exp(x)", normalised=True).even
    found = replica.simulate(
        activation=own_activation("a", "1 + x**2", normalised=True), nu=2, length=3, alpha=4, reg=1,
        dimension=60, seeds=6,
    )
    assert all(s.overlaps["m_k"] >= 0 for s in found.per_seed)


HARD = {
    "wiggly": ("1 + tanh(x) + tanh(2*x) + tanh(3*x) + tanh(4*x) + tanh(5*x)", {}),
    "nested": ("tanh(exp(-softplus(x)))", {}),
    "clipped": ("max(0, min(1, 0.5 + x))", {"kink": 0.001}),
    "steep": ("exp(30*x)", {"normalised": True}),
    "product": ("exp(x)*(1 + x**2)**8", {"normalised": True}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(HARD))
def test_checks_of_hard_activations_end_and_pass(name):
    text, words = HARD[name]
    equations = derive_model(single_location("spiked", own_activation("mine", text, **words)))
    for step in equations.derivation:
        result = step.run_check()
        assert result.passed, (step.name, result.detail)


@pytest.mark.parametrize("text", [
    "1+" + "tanh(" * 30 + "x" + ")" * 30, "+".join(f"tanh({k}*x)" for k in range(1, 60)), "x**64",
])
def test_what_would_take_minutes_is_refused_at_once(text):
    with pytest.raises(UsageError):
        own_activation("mine", text)


def test_a_check_that_cannot_be_carried_out_has_failed():
    from replica.derivation.step import Step

    def broken(conclusion):
        raise ValueError("no root")

    result = Step("s", "r", (), {}, broken).run_check()
    assert not result.passed
    assert "no root" in result.detail


BROKEN = [
    ("", "one table [activation]"),
    ("[activation]", "activation.name"),
    ("[activation]\nname = 'a'", "activation.expression"),
    ("[activation]\nname = 'a'\nexpression = 'x'\nextra = 1", "activation.extra"),
    ("[activation]\nname = 'softmax'\nexpression = 'x'", "activation.name"),
    ("[activation]\nname = '../up'\nexpression = 'x'", "activation.name"),
    ("[activation]\nname = 'a'\nexpression = 3", "quotation marks"),
    ("[activation]\nname = 'a'\nexpression = '1'", "in the score x"),
    ("[activation]\nname = 'a'\nexpression = 'relu(x)'", "activation.kink"),
    ("[activation]\nname = 'a'\nexpression = 'relu(x)'\nkink = 5", "activation.kink"),
    ("[activation]\nname = 'a'\nexpression = '1+x'\nkink = 0.01", "no kink"),
    ("[activation]\nname = 'a'\nexpression = 'relu(x)'\nkink = 0.01\nnormalised = true",
     "leaves the normalisation undefined"),
    ("[activation]\nname = 'a'\nexpression = 'x'\nnormalised = true", "positive at every score"),
    ("[activation]\nname = 'a'\nexpression = 'x**2'\nnormalised = true", "positive at every score"),
    ("[activation]\nname = 'a'\nexpression = 'log(x)'", "at x ="),
    ("[activation]\nname = 'a'\nexpression = '1/x'", "at x = 0"),
    ("[activation]\nname = 'a'\nexpression = 'c + x'", "unknown name 'c'"),
    ("[activation]\nname = 'a'\nexpression = 'x'\n[activation.parameters]\nc = 1", "unused"),
    ("[activation]\nname = 'a'\nexpression = 'c+x'\n[activation.parameters]\nc = 'a'", "a number"),
    ("[activation]\nname = 'a'\nexpression = 'c+x'\n[activation.parameters]\nc = nan", "a number"),
    ("[activation]\nname = 'a'\nexpression = 'c+x'\n[activation.parameters]\n"
     "c = {default = 2, max = 1}", "min <= default <= max"),
    ("[activation]\nname = 'a'\nexpression = 'x'\nnormalised = 1", "true or false"),
    ("[activation\n", "TOML"),
    ("a = " + "[" * 5000, "TOML"),
]


@pytest.mark.parametrize(("text", "says"), BROKEN)
def test_broken_files_get_one_line(text, says, tmp_path, capsys):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    for arguments in (["derive"], ["solve", "--nu", "1", "--length", "2", "--alpha", "1", "--reg",
                                   "1"]):
        assert run([*arguments, "--activation", str(path)]) == 2
        printed = capsys.readouterr().err
        assert says in printed
        assert printed.strip().count("\n") == 0


@pytest.mark.parametrize(("value", "says"), [
    ("beta=9", "-3 to 3"), ("beta=nan", "-3 to 3"), ("beta", "NAME=VALUE"), ("c=1", "beta"),
])
def test_parameters_are_checked(value, says, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(GATE)
    with pytest.raises(UsageError, match=says):
        make_setting(activation=str(path), nu=1, length=2, reg=1, parameter=[value])


def test_a_missing_file_and_a_folder_get_one_line(tmp_path):
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(UsageError, match="a file that can be read"):
            load_activation(path)


def test_the_document_says_what_was_solved(tmp_path, capsys):
    path = tmp_path / "mine.toml"
    path.write_text(GATE)
    code = run([
        "solve", "--activation", str(path), "--parameter", "beta=0.5", "--nu", "2", "--length", "2",
        "--alpha", "2", "--reg", "1", "--nodes", "1024", "--json",
    ])
    assert code == 0
    inputs = json.loads(capsys.readouterr().out)["inputs"]
    assert inputs["activation"] == "tanh-gate"
    assert inputs["definition"] == "1 + tanh(beta + x)"
    assert inputs["parameters"] == {"beta": 0.5}


def test_expressions_are_exact():
    mine = own_activation("mine", "0.1*x + 1")
    assert mine.expression == sp.Rational(1, 10) * mine.x + 1
    assert math.isclose(float(mine.expression.subs(mine.x, 2)), 1.2)


@pytest.mark.parametrize(("expression", "normalised", "says"), [
    ("1/(x-0.123)", False, "x = 0.123"), ("sin(x)/cos(x)", False, "denominator without zeros"),
    ("1/(1-cos(x-0.0501))", False, "denominator without zeros"),
    ("acos(cos(x+0.05))", False, "acos"), ("1 + acos(cos(x+0.05))", False, "acos"),
    ("(x-1.55)**2 - 0.0001", True, "positive at every score"),
    ("(x-1.551)**2", True, "finite with two derivatives"),
    ("log((x-0.333)**2)", False, "logarithm"),
    ("((x-0.05)**4)**(1/2)", False, ""), ("((x-0.05)**2+0.01)**(1/2)", False, ""),
    ("1/(1e-6+(x-0.0123)**2)", False, ""), ("(x-1.55)**2 + 0.0001", True, ""),
    ("sqrt((x-0.05)**2)", False, "kinks written as abs"),
    ("x/sqrt(x**2)", False, "kinks written as abs"),
    ("((x-0.05)**2)**(3/2)", False, "kinks written as abs"),
    ("((x**64)**64)**64", False, "powers of powers"),
    ("x + 1e000000000999999999", False, "powers of ten"),
    ("x + 1e0000000000000000000000031", False, "powers of ten"),
])
def test_poles_kinks_and_towers_between_the_grid_points(expression, normalised, says):
    if not says:
        replica.activation("fine", expression, normalised=normalised)
        return
    with pytest.raises(UsageError, match=re.escape(says)):
        replica.activation("wrong", expression, normalised=normalised)


@pytest.mark.parametrize("line", [
    f"expression = \"1+tanh(c+x)\"\n[activation.parameters]\nc = {'9' * 400}",
    f"expression = \"1+relu(x)\"\nkink = {'9' * 400}",
    f"expression = \"1+relu(x)\"\nkink = {'9' * 6000}",
    'expression = "1+tanh(x)"\n"k\\ney" = "1\\n2"',
    'expression = "1+tanh(x)"\n[activation.parameters]\n"c\\nd" = 1',
])
def test_huge_numbers_and_newlines_are_one_short_line(tmp_path, capsys, line):
    path = tmp_path / "own.toml"
    path.write_text(f'[activation]\nname = "own"\n{line}\n')
    assert run(["derive", "--activation", str(path)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert len(err) < 700
