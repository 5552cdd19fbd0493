import numpy as np
import pytest

from validation.comparison import (
    Estimate,
    agrees,
    compare,
    extrapolate,
    from_samples,
    threshold,
)


def test_mean_and_standard_error():
    e = from_samples([1.0, 2.0, 3.0, 4.0])
    assert e.value == 2.5
    assert e.error == pytest.approx(np.std([1, 2, 3, 4], ddof=1) / 2)
    assert e.freedom == 3


def test_extrapolation_removes_a_one_over_d_bias():
    estimates = [Estimate(1.0 + 5.0 / d, 0.01, 10) for d in (100, 200, 400)]
    assert extrapolate((100, 200, 400), estimates).value == pytest.approx(1.0)


def test_the_error_of_two_dimensions_is_that_of_their_combination():
    found = extrapolate((100, 200), [Estimate(3.0, 0.1, 9), Estimate(2.0, 0.2, 9)])
    assert found.value == pytest.approx(2 * 2.0 - 3.0)
    assert found.error == pytest.approx(np.hypot(2 * 0.2, 0.1))


def test_one_dimension_is_left_as_it_is():
    assert extrapolate((100,), [Estimate(3.0, 0.1, 9)]).value == 3.0


def test_the_criterion_holds_its_false_alarm_rate():
    """Studies made of the null itself reject about as often as stated."""
    rng = np.random.default_rng(0)
    m, studies, rejected = 20, 1500, 0
    for _ in range(studies):
        found = []
        for _ in range(m):
            theory = rng.normal(size=8)
            sample = from_samples(rng.normal(size=12))
            found.append(compare("c", "o", float(theory.mean()),
                                 float(theory.std(ddof=1) / np.sqrt(8)), sample, True))
        rejected += not agrees(found, level=0.05)
    rate = rejected / studies
    assert 0.02 < rate < 0.075


def test_a_deviation_of_many_errors_is_seen():
    sample = from_samples(list(np.random.default_rng(1).normal(0.0, 0.1, 24)))
    far = compare("c", "o", 0.5, 0.01, sample, True)
    near = compare("c", "o", sample.value, 0.01, sample, True)
    assert agrees([near])
    assert not agrees([near, far])


def test_uncounted_comparisons_do_not_decide_and_none_is_no_agreement():
    sample = from_samples([0.0, 0.1, -0.1, 0.05])
    far = compare("c", "o", 5.0, 0.01, sample, False, "outside replica symmetry")
    near = compare("c", "o", 0.0, 0.01, sample, True)
    assert agrees([near, far])
    assert not agrees([far])
    assert not agrees([])


def test_threshold_is_smaller_for_more_comparisons():
    assert threshold(1) == pytest.approx(0.01)
    assert threshold(100) == pytest.approx(1 - 0.99**0.01)
