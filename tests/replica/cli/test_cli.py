import json
import os
import subprocess
import sys

import pytest

import replica
from replica.cli import run

MODEL = ["--nu", "2", "--length", "3", "--activation", "softmax", "--alpha", "2", "--reg", "0.5"]
SMALL = ["--nodes", "512"]


def call(capsys, *arguments):
    code = run(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def strict(text):
    def refuse(name):
        raise AssertionError(f"{name} in JSON")

    return json.loads(text, parse_constant=refuse)


def test_solve_json_has_the_documented_keys(capsys):
    code, out, _ = call(capsys, "solve", *MODEL, *SMALL, "--json")
    found = strict(out)
    assert code == 0
    names = {"m_k", "q_k", "V_k", "m_v", "q_v", "V_v"}
    assert set(found["order_parameters"]) == names
    assert set(found["conjugates"]) == names
    assert {"order_parameters", "conjugates", "test_error", "replicon"} <= set(
        found["standard_errors"]
    )
    assert {
        "schema_version", "inputs", "warnings", "test_error", "excess_risk", "train_loss",
        "free_energy", "residual", "converged", "feasible", "sweeps", "replicon", "stable",
        "competing_minima", "nodes", "seed", "backend", "seconds",
    } <= set(found)
    assert found["inputs"]["length"] == {"3": 1.0}
    assert found["inputs"]["alpha"] == 2.0
    assert found["excess_risk"] == pytest.approx(found["test_error"] - 0.01)


def test_infinity_is_a_string(capsys):
    words = ["--nu", "inf", "--task", "max", "--length", "2", "--activation", "linear", "--alpha",
             "2", "--reg", "1"]
    _, out, _ = call(capsys, "solve", *words, *SMALL, "--json")
    assert strict(out)["inputs"]["nu"] == "inf"


def test_a_grid_gives_points_and_files(capsys, tmp_path):
    words = [w if w != "2" or MODEL[i - 1] != "--alpha" else "1:2:2" for i, w in enumerate(MODEL)]
    plot, table = tmp_path / "c.svg", tmp_path / "c.csv"
    code, out, _ = call(capsys, "solve", *words, *SMALL, "--json", "--plot", str(plot), "--csv",
                        str(table))
    found = strict(out)
    assert code == 0
    assert [p["alpha"] for p in found["points"]] == [1.0, 2.0]
    assert "<svg" in plot.read_text()
    lines = table.read_text().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("alpha,m_k,m_k_se")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.csv", "c.svg"]


def test_the_table_shows_errors(capsys):
    code, out, err = call(capsys, "solve", *MODEL, *SMALL)
    assert code == 0
    assert "test error" in out
    assert "(" in out
    assert err == ""


def test_simulate_json(capsys):
    code, out, _ = call(capsys, "simulate", *MODEL, "--dimension", "30", "--seeds", "3", "--json")
    found = strict(out)
    assert code == 0
    assert set(found["overlaps"]) == {"m_k", "m_v", "q_k", "q_v", "m_kv", "m_vk", "q_kv"}
    assert len(found["per_seed"]) == 3
    assert {"test_error", "test_error_sampled", "excess_risk", "train_loss", "standard_errors",
            "converged_fraction", "gradient_norm"} <= set(found)


def test_derive_writes_and_names_its_file(capsys, tmp_path):
    code, out, _ = call(capsys, "derive", "--activation", "linear", "--format", "latex",
                        "--output", str(tmp_path / "new"))
    target = tmp_path / "new" / "erm-spiked-linear.tex"
    assert code == 0
    assert out.strip() == str(target)
    assert target.read_text().startswith(r"\documentclass")


def test_derive_json_and_checks(capsys):
    code, out, err = call(capsys, "derive", "--activation", "softmax", "--json", "--check")
    found = strict(out)
    assert code == 0
    assert all(c["passed"] for c in found["checks"])
    assert "ok" in err
    conjugates = next(s for s in found["steps"] if s["name"] == "conjugate equations")
    assert set(conjugates["conclusion"]["mhat_k"]) == {"srepr", "latex", "text"}


def test_derive_for_a_given_length(capsys):
    _, symbolic, _ = call(capsys, "derive", "--activation", "linear")
    _, explicit, _ = call(capsys, "derive", "--activation", "linear", "--length", "2")
    assert "sum_l" in symbolic
    assert "sum_l" not in explicit
    assert "chi_star[2]" in explicit


WRONG = [
    (["--activation", "foo"], "--activation"), (["--alpha", "-1"], "--alpha"),
    (["--alpha", "nan"], "--alpha"), (["--length", "0"], "--length"),
    (["--length", "1:0.5,2:0.4"], "--length"), (["--reg", "0"], "--reg"),
    (["--nu", "inf"], "--nu"), (["--plot", "/does/not/exist/x.svg"], "--plot"),
    (["--plot", "x.gif"], "--plot"), (["--nodes", "many"], "--nodes"), (["--bogus"], "--bogus"),
    (["--csv", "/proc/nowhere/x.csv"], "--csv"), (["--task", "min"], "--task"),
]


@pytest.mark.parametrize(("words", "field"), WRONG)
def test_bad_input_is_one_line_and_code_two(capsys, words, field):
    code, out, err = call(capsys, "solve", *MODEL, *words)
    assert code == 2
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    assert field in err


@pytest.mark.parametrize(
    "words",
    [["validate"], ["validate", "--preset", "huge"], ["derive", "--activation", "nope"],
     ["derive", "--activation", "erf", "--format", "word"], ["frobnicate"],
     ["derive", "--activation", "erf", "--output", "/proc/nowhere"],
     ["validate", "--preset", "quick", "--output", "/proc/nowhere"],
     ["validate", "--preset", "quick", "--nu", "2"], ["simulate", *MODEL, "--seeds", "0"]],
)
def test_every_command_refuses_in_one_line(capsys, words):
    code, _, err = call(capsys, *words)
    assert code == 2
    assert len(err.strip().splitlines()) == 1


def test_a_folder_with_other_things_is_refused_before_computing(capsys, tmp_path):
    (tmp_path / "thesis.tex").write_text("important")
    code, _, err = call(capsys, "validate", "--preset", "quick", "--output", str(tmp_path))
    assert code == 2
    assert "earlier report" in err
    assert (tmp_path / "thesis.tex").read_text() == "important"


def test_a_point_that_did_not_converge_exits_one(capsys, monkeypatch):
    monkeypatch.setattr("replica.saddle_point.solve.MAX_SWEEPS", 1)
    code, out, _ = call(capsys, "solve", *MODEL, *SMALL, "--json")
    found = strict(out)
    assert code == 1
    assert found["converged"] is False
    assert found["replicon"] is not None
    assert any("not converged" in w for w in found["warnings"])


def test_an_interrupt_keeps_what_is_done(capsys, monkeypatch):
    from replica.saddle_point.solve import SaddlePointProblem

    solve, seen = SaddlePointProblem.solve, []

    def second_fails(self, alpha, start=None):
        if seen:
            raise KeyboardInterrupt
        seen.append(alpha)
        return solve(self, alpha, start)

    monkeypatch.setattr(SaddlePointProblem, "solve", second_fails)
    words = [w if w != "2" or MODEL[i - 1] != "--alpha" else "1,2" for i, w in enumerate(MODEL)]
    code, out, _ = call(capsys, "solve", *words, *SMALL, "--json")
    found = strict(out)
    assert code == 130
    assert found["interrupted"] is True
    assert [p["alpha"] for p in found["points"]] == [1.0]


def test_help_loads_nothing_heavy():
    script = (
        "import sys; from replica.cli import run; run(['--help']);"
        "print([m for m in ('sympy', 'numpy', 'scipy', 'rich', 'matplotlib') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                           check=True, env=os.environ)
    assert found.stdout.strip().splitlines()[-1] == "[]"


def test_devices_and_folders_are_not_replaced_and_links_are_followed(capsys, tmp_path):
    for path in ("/dev/null", str(tmp_path)):
        code, _, err = call(capsys, "solve", *MODEL, *SMALL, "--csv", path)
        assert code == 2
        assert "--csv" in err
    target, link = tmp_path / "real.csv", tmp_path / "link.csv"
    link.symlink_to(target)
    assert call(capsys, "solve", *MODEL, *SMALL, "--csv", str(link))[0] == 0
    assert link.is_symlink()
    assert target.read_text().startswith("alpha,")


def test_plot_and_csv_must_differ(capsys, tmp_path):
    same = str(tmp_path / "x.svg")
    assert call(capsys, "solve", *MODEL, *SMALL, "--csv", same, "--plot", same)[0] == 2


def test_a_full_disk_is_one_line():
    with open("/dev/full", "w") as full:
        found = subprocess.run(
            [sys.executable, "-m", "replica", "derive", "--activation", "linear"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )
    assert found.returncode == 2
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize(
    "words",
    [["--nodes", "3"], ["--dimensions", "99999,999999"], ["--alpha", "0.01"],
     ["--dimensions", "1,2"], ["--output", "."]],
)
def test_validate_refuses_before_it_starts(capsys, words):
    code, _, err = call(capsys, "validate", *MODEL, *words)
    assert code == 2
    assert len(err.strip().splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("delay", [2.0, 6.0])
def test_ctrl_c_stops_a_validation(tmp_path, delay):
    import signal
    import time

    script = [sys.executable, "-m", "replica", "validate", *MODEL, "--dimensions", "100,200",
              "--seeds", "60", "--threads", "2", "--json"]
    running = subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
    time.sleep(delay)
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=20)
    assert running.returncode == 130
    assert "Traceback" not in err
    if out:
        assert strict(out)["interrupted"] is True
    time.sleep(1.0)
    with pytest.raises(ProcessLookupError):  # no worker is left in the group
        os.killpg(running.pid, 0)


def test_doctor_names_every_backend_and_the_choice(capsys):
    code, out, _ = call(capsys, "doctor", "--json")
    found = strict(out)
    assert code == 0
    assert set(found["backends"]) == {"c", "numpy", "cuda", "mpmath"}
    assert found["backends"]["numpy"]["works"] is True
    assert found["auto"]["backend"] == ("c" if found["backends"]["c"]["works"] else "numpy")
    assert all(b["why"] for b in found["backends"].values())
    code, out, _ = call(capsys, "doctor")
    assert code == 0
    assert "auto chooses" in out


def test_doctor_says_what_is_missing(capsys, monkeypatch):
    monkeypatch.setattr("replica.codegen.c_compiler.find_compilers", lambda: ())
    code, out, _ = call(capsys, "doctor", "--json")
    found = strict(out)
    assert code == 0
    assert found["auto"]["backend"] == "numpy"
    assert "no C compiler" in found["backends"]["c"]["why"]


@pytest.mark.parametrize("target", ["c", "cuda", "numpy", "mpmath"])
def test_codegen_prints_or_writes(capsys, tmp_path, target):
    words = ["codegen", "--activation", "linear", "--length", "2", "--target", target]
    code, out, _ = call(capsys, *words)
    assert code == 0
    assert "from step" in out
    file = tmp_path / "kernel.txt"
    code, printed, _ = call(capsys, *words, "--output", str(file))
    assert code == 0
    assert printed.strip() == str(file)
    assert file.read_text().strip() == out.strip()


@pytest.mark.parametrize(
    ("words", "named"),
    [(["codegen", "--activation", "linear", "--target", "fortran"], "fortran"),
     (["codegen", "--activation", "unheard"], "unheard"),
     (["codegen", "--activation", "linear", "--length", "0"], "0"),
     (["codegen", "--activation", "linear", "--output", "/no/such/folder/x"], "output"),
     (["bench", "--nodes", "1"], "nodes"), (["bench", "--backend", "abacus"], "abacus"),
     (["simulate", *MODEL, "--backend", "c"], "backend")],
)
def test_bad_words_of_the_new_commands(capsys, words, named):
    code, out, err = call(capsys, *words)
    assert code == 2
    assert out == ""
    assert named in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.slow
def test_bench_writes_one_document(capsys, tmp_path):
    file = tmp_path / "bench.json"
    code, out, _ = call(capsys, "bench", "--quick", "--nodes", "8192", "--numpy-nodes", "1024",
                        "--repeat", "1", "--json", "--output", str(file))
    found = strict(out)
    assert code == 0
    assert strict(file.read_text()) == found
    assert found["saddle_point"]["ratio_to_iteration"]["iteration"] == 1.0
    assert found["curve"]["converged"] is True


def test_solve_says_how_many_variables_a_node_has(capsys):
    code, out, _ = call(capsys, "solve", *MODEL, *SMALL, "--json")
    found = strict(out)
    assert code == 0
    assert found["dimension"] == 6
    assert any("shift" in r for r in found["reductions"])


def test_derive_prints_each_check_with_its_time(capsys):
    code, _, err = call(capsys, "derive", "--chain", "bayes", "--task", "max", "--check")
    assert code == 0
    lines = [x for x in err.splitlines() if x.startswith("ok  ")]
    assert len(lines) == len(replica.derive(task="max", chain="bayes").derivation.steps)
    assert all(" s  " in x for x in lines)
    assert f"{len(lines)} steps passed" in err


def test_a_failed_check_exits_1_and_is_named(capsys, monkeypatch):
    from replica.derivation import bayes
    from replica.derivation.step import CheckResult, Step

    wrong = bayes.heat_lemma()
    monkeypatch.setattr(bayes, "heat_lemma", lambda: Step(
        wrong.name, wrong.rule, wrong.premises, wrong.conclusion,
        lambda c: CheckResult(False, "planted"),
    ))
    code, _, err = call(capsys, "derive", "--chain", "bayes", "--check")
    assert code == 1
    assert "failed: growth of the entropy" in err


@pytest.mark.parametrize(("words", "says"), [
    (["--chain", "other"], "erm, bayes, population, flow"), ([], "activation"),
    (["--activation", "softmax", "--graph", "x.png"], ".svg"),
    (["--activation", "softmax", "--graph", "/no/such/folder/x.svg"], "graph"),
])
def test_derive_refuses_in_one_line(capsys, words, says):
    code, _, err = call(capsys, "derive", *words)
    assert code == 2
    assert says in err
    assert err.strip().count("\n") == 0


def test_derive_writes_chain_and_graph(capsys, tmp_path):
    code, out, _ = call(
        capsys, "derive", "--chain", "bayes", "--task", "spiked", "--format", "latex", "--output",
        str(tmp_path), "--graph", str(tmp_path / "g.svg"),
    )
    assert code == 0
    assert out.strip().endswith("bayes-spiked.tex")
    assert (tmp_path / "g.svg").read_text().startswith("<svg")
