import math

import pytest

from derivations.setting import make_setting, parse_alphas, parse_length
from replica.errors import UsageError

GOOD = {"activation": "softmax", "nu": 2, "length": 3, "reg": 0.5}


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("activation", {"activation": "relu6"}), ("task", {"task": "min"}),
        ("nu", {"nu": -1}), ("nu", {"nu": "nan"}), ("nu", {"nu": "inf"}), ("nu", {"nu": "two"}),
        ("length", {"length": 0}), ("length", {"length": "1:0.5,2:0.4"}),
        ("length", {"length": "1:0.5,1:0.5"}), ("length", {"length": "2:0,3:1"}),
        ("length", {"length": "3.5"}), ("length", {"length": "1:x"}),
        ("length", {"length": "9" * 30}),
        ("reg", {"reg": 0}), ("reg_k", {"reg_k": -1}), ("reg_v", {"reg_v": "inf"}),
        ("reg", {"reg": None}), ("noise", {"noise": -0.1}), ("noise", {"noise": "nan"}),
        ("shift", {"shift": 1}), ("shift", {"activation": "erf", "shift": "inf"}),
    ],
)
def test_wrong_words_name_the_field(field, words):
    with pytest.raises(UsageError) as caught:
        make_setting(**{**GOOD, **words})
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


def test_inputs_have_both_ridges_and_a_map_of_lengths():
    inputs = make_setting(**{**GOOD, "reg_v": 0.2}).inputs()
    assert inputs["reg_k"] == 0.5
    assert inputs["reg_v"] == 0.2
    assert inputs["length"] == {"3": 1.0}


def test_max_takes_infinite_signal():
    setting = make_setting(**{**GOOD, "task": "max", "nu": "inf"})
    assert math.isinf(setting.nu)
    assert setting.model().sampling_only
    assert "nu" not in setting.values()


def test_erf_has_a_shift():
    assert make_setting(**{**GOOD, "activation": "erf"}).values()["c"] == -1.0
    assert make_setting(**{**GOOD, "activation": "erf", "shift": 0.5}).values()["c"] == 0.5


def test_lengths():
    assert parse_length("1:0.25,2:0.5,3:0.25") == {1: 0.25, 2: 0.5, 3: 0.25}
    assert parse_length(4) == {4: 1.0}


@pytest.mark.parametrize(
    ("text", "values", "many"),
    [("2", (2.0,), False), ("1:3:3", (1.0, 2.0, 3.0), True), ("1,4", (1.0, 4.0), True),
     ([2.0], (2.0,), True), (0.5, (0.5,), False), ("2:2:1", (2.0,), True)],
)
def test_sample_ratios(text, values, many):
    assert parse_alphas(text) == (values, many)


@pytest.mark.parametrize(
    "text", ["-1", "nan", "0", "inf", "1:2", "1:2:0", "1:2:1", "a", "", "1,,2"]
)
def test_wrong_sample_ratios(text):
    with pytest.raises(UsageError) as caught:
        parse_alphas(text)
    assert caught.value.field == "alpha"
