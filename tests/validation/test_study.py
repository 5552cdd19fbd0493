import json
import re
from dataclasses import replace

import pytest

import derivations.setting
from replica.errors import UsageError
from validation import report
from validation.study import quick_study, run_study, single_study, study_of


@pytest.fixture(scope="module")
def small():
    study = single_study(
        activation="softmax", nu=2, length=2, alpha=2, reg=1.0, dimensions=(30, 60), seeds=6,
        nodes=1024,
    )
    return run_study(replace(study, curve_nodes=256, workers=2))


def test_theory_and_simulation_agree(small):
    assert small.passed
    assert len(small.comparisons) == 9
    assert all(c.counted for c in small.comparisons)


def test_a_planted_error_is_detected(small):
    """A factor in one overlap moves the theory away from the simulation."""
    wrong = []
    for c in small.comparisons:
        shift = 30 * c.simulation_error if c.observable == "m_v" else 0.0
        wrong.append(replace(c, theory=c.theory + shift))
    from validation.comparison import Estimate, agrees, compare

    again = [
        compare(c.case, c.observable, c.theory, c.theory_error,
                Estimate(c.simulation, c.simulation_error, 10), c.counted) for c in wrong
    ]
    assert not agrees(again)


def test_unstable_points_are_shown_and_not_counted(small):
    from validation.study import _case_result, _Job

    r = small.cases[0]
    job = _Job("theory", 0, r.case.setting, (r.case.alpha,))
    unstable = replace(r.theory, replicon=1.7, stable=False)
    done = [(job, (unstable,), 0.0)]
    for d, seeds in r.simulated.items():
        done.append((_Job("simulation", 0, r.case.setting, (r.case.alpha,), d), seeds, 0.0))
    found = _case_result(small.study, 0, r.case, done)
    assert not any(c.counted for c in found.comparisons)
    assert "replica symmetry" in found.comparisons[0].reason


def test_the_page_is_self_contained(small, tmp_path):
    page, data = report.write_report(small, tmp_path / "out")
    text = page.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert "<script" not in text
    assert not re.findall(r'(?:src|href)="(?!#)[^"]*"', text)
    assert "Theory and simulation agree" in text
    assert text.count("<math") > 10
    assert 'role="img"' in text
    found = json.loads(data.read_text())
    assert found["passed"] is True
    assert found["schema_version"] == 1
    sizes = [abs(c["z"]) for c in found["comparisons"]]
    assert sizes == sorted(sizes, reverse=True)
    identifiers = re.findall(r' id="([^"]*)"', text)
    assert len(identifiers) == len(set(identifiers))


def test_an_earlier_report_is_replaced_and_anything_else_kept(small, tmp_path):
    out = tmp_path / "out"
    report.write_report(small, out)
    report.write_report(small, out)
    assert sorted(p.name for p in out.iterdir()) == ["report.html", "report.json"]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    (out / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="earlier report"):
        report.write_report(small, out)
    assert (out / "notes.txt").read_text() == "mine"


def test_quick_covers_activations_tasks_and_dimensions():
    study = quick_study()
    pairs = {(c.setting.task, c.setting.activation.name) for c in study.cases}
    assert len(pairs) == 8
    assert len(study.dimensions) == 2


@pytest.mark.parametrize(
    ("field", "preset", "words"),
    [("preset", "enormous", {}), ("nu", "quick", {"nu": 2}),
     ("dimensions", None, {"dimensions": (3, 60)}), ("seeds", None, {"seeds": 1})],
)
def test_studies_are_checked(field, preset, words):
    base = {} if preset else {"activation": "linear", "nu": 1, "length": 2, "alpha": 1, "reg": 1}
    with pytest.raises(UsageError) as caught:
        study_of(preset, **{**base, **words})
    assert caught.value.field == field


def test_settings_travel_between_processes():
    import pickle

    setting = derivations.setting.make_setting(activation="softplus", nu=1, length=2, reg=1)
    assert pickle.loads(pickle.dumps(setting)) == setting
