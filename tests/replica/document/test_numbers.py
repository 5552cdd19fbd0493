import math

import pytest

from replica.document.numbers import clean, with_error


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [(0.33291, 0.00021, "0.33291(21)"), (0.3329, 0.004, "0.333(4)"),
     (1.7e-6, 1.8e-6, "1.7(18)e-06"),
     (2.0, None, "2"), (12.0, 3.0, "12(3)"), (0.0, 0.01, "0.000(10)"), (3e9, 2e8, "3.00(20)e+09"),
     (math.nan, 0.1, "-")],
)
def test_errors_in_units_of_the_last_digits(value, error, text):
    assert with_error(value, error) == text


def test_numbers_that_json_cannot_hold():
    assert clean({"a": math.inf, "b": [math.nan, -math.inf], 3: True}) == {
        "a": "inf", "b": [None, "-inf"], "3": True
    }
