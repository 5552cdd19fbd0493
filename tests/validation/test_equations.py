"""Equations written by hand: right ones pass, every planted error is found."""

import json
from dataclasses import replace

import pytest

from replica.cli import run
from replica.errors import UsageError
from validation.equations import check_equations, read_equations

RIGHT = {
    "m_k": "mhat_k/(r_k + Vhat_k)",
    "q_k": "(mhat_k**2 + qhat_k)/(r_k + Vhat_k)**2",
    "V_k": "1/(r_k + Vhat_k)",
    "m_v": "mhat_v/(r_v + Vhat_v)",
    "q_v": "(mhat_v**2 + qhat_v)/(r_v + Vhat_v)**2",
    "V_v": "1/(r_v + Vhat_v)",
    "mhat_k": "alpha*E(sum(f_k*(chi_star - m_k*zeta_k/sqrt(q_k - m_k**2))))",
    "qhat_k": "alpha*E(sum(f_k**2))",
    "Vhat_k": "-alpha*E(sum(f_k*zeta_k))/sqrt(q_k - m_k**2)",
    "mhat_v": "alpha*E(sum(f_v*(z_star - m_v*zeta_v/sqrt(q_v - m_v**2))))",
    "qhat_v": "alpha*E(sum(f_v**2))",
    "Vhat_v": "-alpha*E(sum(f_v*zeta_v))/sqrt(q_v - m_v**2)",
}
WRONG = {
    "m_k": "1.02*mhat_k/(r_k + Vhat_k)",
    "q_k": "(mhat_k**2 - qhat_k)/(r_k + Vhat_k)**2",
    "V_k": "1/(r_k + 2*Vhat_k)",
    "m_v": "mhat_v/(r_v - Vhat_v)",
    "q_v": "(mhat_v**2 + 1.02*qhat_v)/(r_v + Vhat_v)**2",
    "V_v": "1/(1.02*r_v + Vhat_v)",
    "mhat_k": "alpha*E(sum(f_k*(chi_star + m_k*zeta_k/sqrt(q_k - m_k**2))))",
    "qhat_k": "1.02*alpha*E(sum(f_k**2))",
    "Vhat_k": "-alpha*E(sum(f_k*zeta_k))/sqrt(q_k - 1.02*m_k**2)",
    "mhat_v": "alpha*E(sum(f_v*(1.02*z_star - m_v*zeta_v/sqrt(q_v - m_v**2))))",
    "qhat_v": "alpha*E(sum(f_v**2) + 0.02*rel(f_v)**2)",
    "Vhat_v": "alpha*E(sum(f_v*zeta_v))/sqrt(q_v - m_v**2)",
}


def file_of(tmp_path, equations, activation="softmax", extra="", symbols=""):
    path = tmp_path / "equations.toml"
    lines = [f'{n} = "{e}"' for n, e in equations.items()]
    path.write_text("\n".join([
        "[model]", f'activation = "{activation}"', extra, "[symbols]", symbols, "[equations]",
        *lines,
    ]))
    return path


def verdicts(path, nodes=2**13):
    return {c.name: c for c in check_equations(read_equations(path), nodes)}


def test_the_right_equations_are_equal(tmp_path, activation):
    found = verdicts(file_of(tmp_path, RIGHT, activation))
    assert {c.verdict for c in found.values()} == {"equal"}
    assert len(found) == 12


@pytest.mark.parametrize("name", sorted(WRONG))
def test_an_error_in_any_of_the_twelve_is_found(tmp_path, name):
    (check,) = verdicts(file_of(tmp_path, {name: WRONG[name]}), 2**16).values()
    assert check.verdict == "different"
    assert check.difference != "0"
    assert check.example["yours"] != pytest.approx(check.example["derived"], rel=1e-4)


def test_forms_that_are_equal_after_algebra_say_so(tmp_path):
    found = verdicts(file_of(tmp_path, {
        "q_k": "V_k**2*mhat_k**2 + qhat_k*V_k**2",
        "mhat_k": "sqrt(nu)*alpha*E(rel(f_k))",
        "Vhat_k": "(m_k*mhat_k - alpha*E(sum(f_k*omega_k)))/q_k",
        "qhat_v": "E(sum(alpha*f_v*f_v))",
    }))
    assert {c.verdict for c in found.values()} == {"equal"}
    assert "V = 1/(r + Vhat)" in found["q_k"].how
    assert "smaller errors" in found["mhat_k"].how


def test_what_needs_the_minimiser_is_equal_numerically(tmp_path):
    found = verdicts(file_of(tmp_path, {
        "qhat_v": "alpha*E(sum(sigma**2)*(y - sum(sigma*omega_v))**2/(1 + V_v*sum(sigma**2))**2)",
        "mhat_v": "alpha*E(rel(f_v)*(y - rel(omega_v)*m_v/q_v))/(1 + Delta**2 - m_v**2/q_v)"
                  " + alpha*E(y*xi - Delta*xi**2)",
    }), 2**15)
    assert found["qhat_v"].verdict == "equal numerically"
    assert "standard error" in found["qhat_v"].how
    assert found["mhat_v"].verdict == "equal numerically"


def test_max_data_with_a_share_of_tokens(tmp_path):
    path = file_of(tmp_path, {
        "mhat_k": "alpha*nu*E(rel(f_k) - sum(f_k*softmax(nu*chi_star)))",
    }, extra='task = "max"')
    assert verdicts(path)["mhat_k"].verdict == "equal"


def test_your_names_are_translated(tmp_path):
    path = file_of(tmp_path, {"R": "rhat/(lambda + chat)"}, symbols=(
        'R = "m_k"\nrhat = "mhat_k"\nlambda = "r_k"\nchat = "Vhat_k"'
    ))
    assert verdicts(path)["m_k"].verdict == "equal"


def test_your_own_activation(tmp_path):
    (tmp_path / "mine.toml").write_text(
        '[activation]\nname = "gate"\nexpression = "1 + tanh(c + x)"\n[activation.parameters]\n'
        "c = -0.5\n"
    )
    path = file_of(tmp_path, {
        "qhat_v": "alpha*E(sum(sigma**2)*(y - sum(sigma*omega_v))**2/(1 + V_v*sum(sigma**2))**2)",
    }, activation="mine.toml")
    assert verdicts(path)["qhat_v"].verdict == "equal numerically"


def test_the_command_exits_1_for_a_difference_and_0_without(tmp_path, capsys):
    path = file_of(tmp_path, {"V_k": RIGHT["V_k"], "q_v": WRONG["q_v"]})
    assert run(["check", str(path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [e["verdict"] for e in found["equations"]] == ["equal", "different"]
    assert run(["check", str(file_of(tmp_path, {"V_k": RIGHT["V_k"]}))]) == 0
    assert "1 of 1 equations agree" in capsys.readouterr().out


@pytest.mark.parametrize(("equations", "says"), [
    ({"V_k": "1/(r_k + "}, "column"),
    ({"V_k": "f_k"}, "inside sum"),
    ({"V_k": "E(f_k)"}, "sum(...) or rel(...)"),
    ({"V_k": "sum(alpha)"}, "token field"),
    ({"V_k": "__import__(1)"}, "unknown function"),
    ({"foo": "1"}, "m_k"),
    ({}, "at least one"),
    ({"qhat_k": "y*E(sum(f_k**2))"}, "one value for all samples"),
])
def test_broken_files_get_one_line(tmp_path, equations, says, capsys):
    path = file_of(tmp_path, equations)
    assert run(["check", str(path), "--nodes", "512"]) == 2
    printed = capsys.readouterr().err
    assert says in printed
    assert printed.strip().count("\n") == 0


def test_unknown_tables_names_and_files(tmp_path):
    path = tmp_path / "x.toml"
    for text, says in (("[model", "TOML"), ("[other]\na=1", "tables"), ("[model]\nb=1", "model.b"),
                       ("[model]\n", "model.activation"),
                       ('[model]\nactivation="softmax"\n[symbols]\na="nothing"', "symbols.a")):
        path.write_text(text)
        with pytest.raises(UsageError, match=says):
            read_equations(path)
    with pytest.raises(UsageError, match="can be read"):
        read_equations(tmp_path / "none.toml")


def test_expressions_that_would_explode_are_compared_by_value(tmp_path):
    import time

    clock = time.perf_counter()
    found = verdicts(file_of(tmp_path, {
        "V_k": "1/(r_k + Vhat_k) + (m_k + q_k + m_v + q_v + alpha)**64*((q_v + nu)**64 - 1)",
    }))
    assert found["V_k"].verdict == "different"
    assert time.perf_counter() - clock < 20


@pytest.mark.parametrize(("name", "equation"), [
    ("qhat_k", "nu*E(sum(f_k**2))"), ("qhat_k", "2*E(sum(f_k**2))"),
    ("qhat_k", "alpha*nu*E(sum(f_k**2))/2"), ("mhat_k", "alpha*sqrt(alpha)*E(rel(f_k))"),
    ("qhat_v", "alpha*E(sum(f_v**2))*r_k/r_v"), ("qhat_v", "nu*E(sum(f_v**2))"),
])
@pytest.mark.parametrize("extra", ["", "nu = 2\nalpha = 2\nreg = 0.5"])
def test_parameters_that_happen_to_be_equal_hide_nothing(tmp_path, name, equation, extra):
    """Also where the file's own values make the wrong equation right."""
    (check,) = verdicts(file_of(tmp_path, {name: equation}, extra=extra), 2**13).values()
    assert check.verdict == "different"


def test_consequences_hold_and_noise_is_not_called_a_difference(tmp_path):
    found = verdicts(file_of(tmp_path, {
        "Vhat_k": "1/V_k - r_k", "mhat_v": "m_v/V_v", "qhat_k": "qhat_k",
        "qhat_v": "3*alpha*E(rel(f_v)**2)",
    }), 2**10)
    assert [found[n].verdict for n in ("Vhat_k", "mhat_v", "qhat_k")] == ["equal numerically"] * 3
    noisy = verdicts(file_of(tmp_path, {
        "qhat_k": "alpha*E(sum(f_k**2)) + E(xi*y**2*rel(chi_star))"
    }), 2**10)
    assert noisy["qhat_k"].verdict == "undecided"


def test_without_a_saddle_point_the_rest_is_still_said(tmp_path, capsys, monkeypatch):
    from replica.saddle_point.solve import SaddlePointProblem

    whole = SaddlePointProblem.solve
    monkeypatch.setattr(SaddlePointProblem, "solve", lambda self, alpha: replace(
        whole(self, alpha), converged=False
    ))
    path = file_of(tmp_path, {"V_k": RIGHT["V_k"], "m_k": WRONG["m_k"], "qhat_k": "E(sum(f_k))"})
    assert run(["check", str(path), "--nodes", "512"]) == 1
    out = capsys.readouterr().out
    assert "V_k: equal" in out
    assert "m_k: different" in out
    assert "qhat_k: undecided (no saddle point" in out
    assert "1 of 3 equations agree; different: m_k; undecided: qhat_k" in out


@pytest.mark.parametrize(("extra", "symbols", "names"), [
    ('alpha = "x"', "", "model.alpha"), ("alpha = [1]", "", "model.alpha"),
    ("parameters = 3", "", "model.parameters"), ("", "a = [1]", "symbols.a"),
    ("", 'a = {b = "q_k"}', "symbols.a"),
])
def test_wrong_types_are_one_line(tmp_path, capsys, extra, symbols, names):
    path = file_of(tmp_path, {"V_k": RIGHT["V_k"]}, extra=extra, symbols=symbols)
    assert run(["check", str(path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"replica: {names}: ")
    assert err.count("\n") == 1


def test_a_fixed_length_has_a_value(tmp_path):
    found = verdicts(file_of(tmp_path, {"qhat_k": "L*alpha*E(rel(f_k)**2)"}), 2**10)
    assert found["qhat_k"].verdict == "different"
