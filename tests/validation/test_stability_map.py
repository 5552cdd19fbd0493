"""The replicon over a plane: the line where it is 1, and simulations on both sides."""

import json
from dataclasses import replace

import pytest

import replica
from derivations.setting import make_setting, parse_grid
from replica.cli import run
from replica.errors import UsageError
from replica.saddle_point.solve import SolverOptions
from validation import stability_map as maps
from validation.stability_map import MapPoint, Plane, stability_map

OPTIONS = SolverOptions(nodes=2**11, tolerance=1e-6, threads=1)
SETTING = make_setting(activation="softmax", nu=1, length=3, reg=1)


def plane(**words):
    given = {"setting": SETTING, "alpha": 2.0, "x": "alpha", "xs": (2.0, 3.0), "y": "reg",
             "ys": (0.1, 0.5), "options": OPTIONS, "workers": 1}
    return Plane(**{**given, **words})


def test_the_line_is_where_the_replicon_is_one():
    found, interrupted = stability_map(plane())
    assert not interrupted
    assert [(p.x, p.y) for p in found.points] == [(2, 0.1), (2, 0.5), (3, 0.1), (3, 0.5)]
    assert [p.stable for p in found.points] == [False, True, False, True]
    assert [c.x for c in found.line] == [2.0, 3.0]
    for c in found.line:
        assert 0.1 < c.y < 0.5
        assert 0 < c.standard_error < 0.1
        there = replica.solve(activation="softmax", nu=1, length=3, alpha=c.x, reg=c.y,
                              nodes=2**13, tolerance=1e-6)
        steep = 1.5  # |d replicon / d log r| is near 1.4 here
        error = there.standard_errors["replicon"] + steep * c.standard_error / c.y
        assert abs(there.replicon - 1) < 4 * error


def test_every_point_is_the_point_of_solve():
    found, _ = stability_map(plane(x="nu", xs=(0.5, 2.0), y="reg_k", ys=(0.8, 1.6)))
    for p in found.points:
        s = replica.solve(activation="softmax", nu=p.x, length=3, alpha=2, reg_k=p.y, reg_v=1,
                          nodes=2**11, tolerance=1e-6)
        assert p.test_error == pytest.approx(s.test_error, rel=1e-4)
        assert p.replicon == pytest.approx(s.replicon, rel=1e-2)
    assert found.line == ()


@pytest.mark.parametrize("words", [{"x": "noise", "xs": (0.1, 0.4)}, {"y": "noise", "ys": (0, 1)},
                                   {"x": "reg", "xs": (0.5, 1.0), "y": "alpha", "ys": (1, 2)}])
def test_any_two_axes(words):
    found, _ = stability_map(plane(**words))
    assert len(found.points) == 4
    assert len({p.replicon for p in found.points}) == 4


@pytest.mark.parametrize(("words", "field"), [
    ({"x": "length"}, "x"), ({"y": "alpha"}, "y"), ({"x": "reg", "y": "reg_k"}, "y"),
    ({"xs": (1.0,)}, "alpha"), ({"xs": (1.0, 1.0)}, "alpha"), ({"ys": (0.0, 1.0)}, "reg"),
    ({"xs": (-1.0, 1.0)}, "alpha"), ({"ys": (float("inf"), 1.0)}, "reg"),
    ({"dimension": 5}, "dimension"), ({"dimension": 100, "seeds": 1}, "seeds"),
])
def test_bad_planes(words, field):
    with pytest.raises(UsageError) as caught:
        plane(**words)
    assert caught.value.field == field


def test_what_parts():
    p = MapPoint(1, 1, 0.5, 0.01, 1.0, 0.01, True, simulated=1.05, simulated_error=0.01)
    assert not p.parts  # 3% are finite size, then four standard errors
    assert replace(p, simulated=1.09).parts
    assert not replace(p, simulated=1.09, simulated_error=0.02).parts
    assert not replace(p, simulated=None, simulated_error=None).parts


@pytest.mark.slow
def test_theory_and_simulation_part_where_the_replicon_exceeds_one():
    """Low signal and low regularisation, and the same plane higher up."""
    found, _ = stability_map(plane(xs=(3.3, 4.0), ys=(0.03, 0.46), workers=2, dimension=200,
                                   seeds=6))
    assert [p.stable for p in found.points] == [False, True, False, True]
    assert [p.parts for p in found.points] == [True, False, True, False]


def test_the_command(tmp_path, capsys):
    words = ["phase", "--nu", "1", "--length", "3", "--activation", "softmax", "--alpha", "2,3",
             "--reg", "0.1:0.5:2:log", "--nodes", "2048", "--plot", str(tmp_path / "a.svg")]
    assert run([*words, "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["x"], body["y"]) == ("alpha", "reg")
    assert len(body["points"]) == 4
    assert len(body["line"]) == 2
    assert body["inputs"]["reg_k"] == body["inputs"]["reg_v"] == [0.1, 0.5]
    assert body["inputs"]["alpha"] == [2.0, 3.0]
    assert "replicon" in (tmp_path / "a.svg").read_text()
    assert run(words) == 0
    assert "replicon 1 at alpha = 2: reg = 0." in capsys.readouterr().out


@pytest.mark.parametrize(("words", "field"), [
    (["--x", "beta"], "--x"), (["--alpha", "2"], "--alpha"), (["--reg", "0:1:3:log"], "--reg"),
    (["--reg", "0.1:1:3:lin"], "--reg"), (["--x", "nu", "--nu", "1,2"], "--alpha"),
    (["--nu", "1,2"], "--nu"), (["--plot", "a.b"], "--plot"), (["--reg", "1,nan"], "--reg"),
])
def test_bad_words_are_one_line(capsys, words, field):
    given = ["phase", "--nu", "1", "--length", "3", "--activation", "softmax", "--alpha", "2,3",
             "--reg", "0.1,0.5"]
    assert run([*given, *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"replica: {field}: ")
    assert err.count("\n") == 1


def test_an_interrupt_keeps_finished_columns(capsys, monkeypatch):
    whole = maps.run_jobs
    monkeypatch.setattr(maps, "run_jobs", lambda work, jobs, workers=None, progress=None: (
        whole(work, jobs[:1], 1, progress)[0], True
    ))
    words = ["phase", "--nu", "1", "--length", "3", "--activation", "softmax", "--alpha", "2,3",
             "--reg", "0.8,1", "--nodes", "512", "--json"]
    assert run(words) == 130
    body = json.loads(capsys.readouterr().out)
    assert body["interrupted"] is True
    assert [p["x"] for p in body["points"]] == [2.0, 2.0]


def test_logarithmic_grids():
    numbers, many = parse_grid("reg", "0.01:1:3:log", "")
    assert many
    assert numbers == pytest.approx((0.01, 0.1, 1.0))
