"""Several saddle points: long sequences have an informed and an uninformed one."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from derivations.setting import make_setting
from replica.api import derive_model
from replica.cli import run
from replica.errors import UsageError
from replica.saddle_point import branches
from replica.saddle_point.branches import Rivals, branch_curve, saddle_points
from replica.saddle_point.solve import SaddlePointProblem, SolverOptions
from validation.simulate import simulate_setting

LONG = {"activation": "softmax", "task": "max", "nu": "inf", "length": 20, "noise": 0.01,
        "reg": 0.3}
SHORT = {"activation": "softmax", "task": "spiked", "nu": 2, "length": 3, "reg": 0.5}


def problem(words, nodes=2**11, **options):
    s = make_setting(**words)
    return SaddlePointProblem(derive_model(s.model()), s.values(), s.lengths,
                              SolverOptions(nodes=nodes, tolerance=1e-6, **options))


@pytest.fixture(scope="module")
def long():
    return problem(LONG)


def test_two_branches_are_ordered_by_free_energy(long):
    low, high = (saddle_points(long, a) for a in (4.0, 6.0))
    for found in (low, high):
        assert len(found.branches) == 2
        energies = [b.solution.free_energy for b in found.branches]
        assert energies == sorted(energies)
        assert {n for b in found.branches for n in b.starts} >= {"informed", "uninformed"}
        assert any("metastable" in m for m in found.messages())
    # the key is found only where the informed branch is the lower one
    assert "uninformed" in low.branches[0].starts
    assert "informed" in high.branches[0].starts
    assert high.lowest.test_error < 0.7 < low.lowest.test_error


def test_one_saddle_point_is_one_branch():
    found = saddle_points(problem(SHORT, 2**12), 2.0)
    assert len(found.branches) == 1
    assert set(found.branches[0].starts) == {"informed", "uninformed", "wide", "narrow"}
    assert found.messages() == []
    assert not found.failed


def test_a_branch_is_continued_to_where_no_start_leads(long, monkeypatch):
    """With the uninformed start alone the informed branch exists only by continuation."""
    whole = branches.starts

    def one(p, alpha):
        points = whole(p, alpha)
        return {"informed" if alpha > 5.7 else "uninformed": points["informed" if alpha > 5.7
                                                                  else "uninformed"]}

    monkeypatch.setattr(branches, "starts", one)
    *_, last = branch_curve(long, [6.0, 5.5, 4.0])
    assert [f.alpha for f in last] == [6.0, 5.5, 4.0]
    assert [len(f.branches) for f in last] == [2, 2, 2]


def test_starts_that_led_nowhere_are_named(long, monkeypatch):
    whole = SaddlePointProblem._solve_from

    def cycles(self, alpha, start, mixing=1.0):
        found = whole(self, alpha, start, mixing)
        if start is not None and start[0] < 0.1:
            return replace(found, converged=False, feasible=False,
                           messages=("the iteration cycles with residual 1.0e+00",))
        return found

    monkeypatch.setattr(SaddlePointProblem, "_solve_from", cycles)
    found = saddle_points(long, 6.0)
    assert list(found.failed) == ["uninformed"]
    assert found.messages() == ["start uninformed: infeasible overlaps; the iteration cycles with "
                                "residual 1.0e+00"]
    assert found.document()["failed_starts"]["uninformed"].startswith("infeasible")


def test_one_start_says_that_another_leads_elsewhere(long):
    s = long.solve(4.0)
    (message,) = [m for m in Rivals(long).beside(4.0, s).messages if "start" in m]
    assert message.startswith("the uninformed start leads to another saddle point, of lower free")
    assert "this one is metastable" in message
    short = problem(SHORT, 2**12)
    found = short.solve(2.0)
    assert Rivals(short).beside(2.0, found) == found


@pytest.mark.slow
def test_training_from_the_teacher_stays_on_the_metastable_branch(long):
    """The informed saddle point at ``alpha = 4`` is no artefact: simulations reach it."""
    (informed,) = [b.solution for b in saddle_points(long, 4.0).branches if "informed" in b.starts]
    simulated = simulate_setting(make_setting(**LONG), 4.0, 150, 6, start="informed")
    body = simulated.document()
    errors = informed.standard_errors
    for mine, theirs, value, error in (
        (informed.order_parameters["m_k"], errors["order_parameters"]["m_k"],
         body["overlaps"]["m_k"], body["standard_errors"]["overlaps"]["m_k"]),
        (informed.test_error, errors["test_error"],
         body["test_error"], body["standard_errors"]["test_error"]),
    ):
        assert abs(value - mine) < 4 * np.hypot(theirs, error) + 0.02


def test_the_command_lists_every_branch(tmp_path, capsys):
    words = ["solve", "--task", "max", "--nu", "inf", "--length", "20", "--activation", "softmax",
             "--alpha", "4,6", "--reg", "0.3", "--noise", "0.01", "--nodes", "2048",
             "--tolerance", "1e-6", "--start", "all"]
    files = ["--csv", str(tmp_path / "a.csv"), "--plot", str(tmp_path / "a.svg")]
    assert run([*words, *files, "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["inputs"]["start"] == "all"
    for point in body["points"]:
        assert len(point["branches"]) == 2
        assert point["free_energy"] == point["branches"][0]["free_energy"]
        assert point["failed_starts"] == {}
    assert [r["branch"] for r in csv.DictReader((tmp_path / "a.csv").open())] == list("0101")
    assert "metastable" in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize("alpha", [0.0, -1.0, np.inf, np.nan])
def test_bad_ratios(long, alpha):
    with pytest.raises(UsageError, match="alpha"):
        saddle_points(long, alpha)


def test_all_starts_and_optimal_ridge_do_not_go_together(capsys):
    words = ["solve", "--nu", "2", "--length", "3", "--activation", "softmax", "--alpha", "2"]
    assert run([*words, "--reg", "optimal", "--start", "all"]) == 2
    assert "--start" in capsys.readouterr().err
