"""Learners side by side: verdicts, curves, the command."""

import csv
import json
import math

import pytest

import replica
from replica.cli import run
from replica.errors import UsageError
from validation import learners
from validation.learners import (
    ALGORITHMIC,
    OPTIMAL,
    Panel,
    Point,
    Request,
    compare_learners,
    difference,
    warnings,
)


def point(value, error=0.01, converged=True, stable=True, alpha=1.0):
    return Point(alpha, value, error, converged, stable, replicon=0.5 if stable else 1.5)


@pytest.mark.parametrize(("mine", "theirs", "verdict"), [
    (point(0.5), point(0.6), "below"), (point(0.6), point(0.5), "above"),
    (point(0.5), point(0.54), "within errors"), (point(0.5), point(0.45, 0.02), "within errors"),
    (point(0.5, converged=False), point(0.9), "not compared"),
    (point(0.5), point(0.9, stable=False), "not compared"),
])
def test_a_verdict_counts_both_errors_and_soundness(mine, theirs, verdict):
    d = difference("a", mine, "b", theirs)
    assert d.verdict == verdict
    assert d.standard_error == pytest.approx(math.hypot(mine.standard_error,
                                                        theirs.standard_error))


def test_statements_name_every_alpha_once():
    mine = tuple(point(v, alpha=a) for a, v in ((1, 0.9), (2, 0.5), (4, 0.4), (8, 0.1)))
    theirs = (point(0.9, alpha=1), point(0.7, alpha=2), point(0.2, alpha=4),
              point(0.5, stable=False, alpha=8))
    panel = Panel("spiked", 1.0, {"softmax": mine, "linear": theirs})
    (sentence,) = panel.statements()
    assert sentence == (
        "softmax against linear: below at alpha 2; above at alpha 4; within errors at alpha 1 "
        "(0.000(14)); not compared at alpha 8"
    )
    assert warnings([panel]) == ["spiked nu=1 linear alpha 8: replicon 1.5 > 1, not compared"]


WORDS = {"length": 3, "reg": "optimal", "reg_k": None, "reg_v": None, "noise": 0.1, "shift": -0.5}


def test_curves_are_those_of_solve_and_bayes():
    request = Request((("spiked", 2.0),), ("softmax", "erf"), (0.5, 4.0), WORDS, nodes=2**11,
                      workers=1)
    (panel,), interrupted = compare_learners(request)
    assert not interrupted
    assert list(panel.curves) == ["softmax", "erf", ALGORITHMIC, OPTIMAL]
    alone = replica.solve(activation="erf", nu=2, length=3, alpha=[0.5, 4.0], reg="optimal",
                          shift=-0.5, nodes=2**11)
    for p, s in zip(panel.curves["erf"], alone, strict=True):
        assert p.test_error == pytest.approx(s.test_error, rel=1e-9)
        assert p.ridge == s.ridge
    best = replica.bayes(nu=2, length=3, alpha=4.0, nodes=2**11)
    assert panel.curves[OPTIMAL][1].test_error == pytest.approx(
        best.fixed_points[best.information_theoretic].test_error, rel=1e-6
    )
    verdicts = {(d.other, d.alpha): d.verdict for d in panel.differences()}
    assert verdicts["erf", 4.0] == "below"
    assert verdicts["erf", 0.5] != "below"  # few samples favour the simpler rule
    assert verdicts[OPTIMAL, 0.5] == verdicts[OPTIMAL, 4.0] == "above"


def test_the_command(tmp_path, capsys):
    words = ["compare", "--nu", "1,2", "--length", "3", "--alpha", "4", "--activation", "softmax",
             "--activation", "linear", "--reg", "0.5", "--nodes", "1024"]
    files = ["--plot", str(tmp_path / "a.svg"), "--csv", str(tmp_path / "a.csv")]
    assert run([*words, *files, "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["inputs"]["reg_k"] == 0.5
    assert [p["nu"] for p in body["panels"]] == [1.0, 2.0]
    for panel in body["panels"]:
        assert set(panel) == {"task", "nu", "curves", "differences", "statements"}
        assert list(panel["curves"]) == ["softmax", "linear", ALGORITHMIC, OPTIMAL]
        assert panel["curves"]["softmax"][0]["ridge"] == {"r_k": 0.5, "r_v": 0.5}
    rows = list(csv.DictReader((tmp_path / "a.csv").open()))
    assert len(rows) == 8
    assert (tmp_path / "a.svg").read_text().count("<svg") == 1
    assert run(words) == 0
    out = capsys.readouterr().out
    assert "softmax against linear: below at alpha 4" in out
    assert "softmax against Bayes optimal: above at alpha 4" in out


@pytest.mark.parametrize(("words", "field"), [
    ([], "--nu"), (["--preset", "best"], "--preset"), (["--preset", "paper", "--nu", "1"], "--nu"),
    (["--nu", "1,1", "--length", "3", "--alpha", "1"], "--activation"),
    (["--nu", "1", "--length", "3", "--alpha", "1", "--noise", "0"], "--noise"),
    (["--nu", "1", "--length", "3", "--alpha", "1", "--reg", "-1"], "--reg"),
    (["--nu", "inf", "--length", "3", "--alpha", "1"], "--nu"),
    (["--nu", "1", "--length", "3", "--alpha", "1", "--nodes", "3"], "--nodes"),
    (["--nu", "1", "--length", "3", "--alpha", "1", "--activation", "none"], "--activation"),
    (["--preset", "paper", "--plot", "a.txt"], "--plot"),
])
def test_bad_words_are_one_line(capsys, words, field):
    assert run(["compare", *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"replica: {field}: ")
    assert err.count("\n") == 1


def test_an_interrupt_keeps_finished_curves(capsys, monkeypatch):
    whole = learners.run_jobs

    def stopped(work, jobs, workers=None, progress=None):
        return whole(work, jobs[:1], 1, progress)[0], True

    monkeypatch.setattr(learners, "run_jobs", stopped)
    words = ["compare", "--nu", "2", "--length", "3", "--alpha", "1", "--reg", "1", "--nodes",
             "512", "--json"]
    assert run(words) == 130
    body = json.loads(capsys.readouterr().out)
    assert body["interrupted"] is True
    assert list(body["panels"][0]["curves"]) == ["softmax"]


def test_a_request_without_activations():
    with pytest.raises(UsageError, match="activation"):
        Request((("spiked", 1.0),), (), (1.0,), WORDS)
