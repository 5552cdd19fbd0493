import math

import numpy as np
import pytest

from replica.errors import UsageError
from validation.data import draw, teachers


def test_teachers_are_orthogonal_and_scaled():
    key, value = teachers(50, np.random.default_rng(0))
    assert key @ value == pytest.approx(0, abs=1e-10)
    assert key @ key == pytest.approx(50)
    assert value @ value == pytest.approx(50)


def test_seeds_repeat_and_differ():
    first, again, other = (draw("spiked", 1.0, {2: 1.0}, 0.1, 20, 30, s) for s in (3, 3, 4))
    assert np.array_equal(first.batches[0].tokens, again.batches[0].tokens)
    assert not np.array_equal(first.batches[0].tokens, other.batches[0].tokens)


def test_fresh_samples_keep_the_teachers_and_differ():
    train = draw("spiked", 1.0, {2: 1.0}, 0.1, 20, 30, 3)
    fresh = draw("spiked", 1.0, {2: 1.0}, 0.1, 20, 30, 3, given=(train.key, train.value), stream=1)
    assert np.array_equal(train.key, fresh.key)
    assert not np.array_equal(train.batches[0].tokens, fresh.batches[0].tokens)


def scores(data):
    (batch,) = data.batches
    return batch, batch.tokens @ data.key / math.sqrt(len(data.key))


def test_spiked_tokens_are_shifted_along_the_key():
    batch, chi = scores(draw("spiked", 4.0, {3: 1.0}, 0.1, 40, 20000, 0))
    relevant = chi[np.arange(len(chi)), batch.location]
    assert relevant.mean() == pytest.approx(2.0, abs=0.05)
    assert (chi.sum(axis=1) - relevant).mean() == pytest.approx(0.0, abs=0.05)


def test_the_largest_token_is_relevant_at_infinite_signal():
    batch, chi = scores(draw("max", math.inf, {3: 1.0}, 0.1, 40, 500, 0))
    assert np.array_equal(batch.location, chi.argmax(axis=1))


def test_finite_signal_follows_the_softmax_law():
    batch, chi = scores(draw("max", 1.5, {2: 1.0}, 0.1, 40, 40000, 0))
    expected = 1 / (1 + np.exp(-1.5 * (chi[:, 0] - chi[:, 1])))
    assert (batch.location == 0).mean() == pytest.approx(expected.mean(), abs=0.01)
    split = chi[:, 0] > chi[:, 1]
    assert (batch.location[split] == 0).mean() == pytest.approx(expected[split].mean(), abs=0.01)


def test_lengths_follow_their_distribution():
    data = draw("max", 1.0, {1: 0.25, 3: 0.75}, 0.1, 10, 4000, 0)
    counts = {b.length: len(b.labels) for b in data.batches}
    assert data.samples == 4000
    assert counts[3] == pytest.approx(3000, abs=150)


def test_labels_are_the_relevant_value_plus_noise():
    data = draw("spiked", 1.0, {2: 1.0}, 0.5, 30, 5000, 0)
    (batch,) = data.batches
    z = batch.tokens[np.arange(5000), batch.location] @ data.value / math.sqrt(30)
    assert np.std(batch.labels - z) == pytest.approx(0.5, rel=0.05)


def test_a_data_set_that_does_not_fit_is_refused_with_the_size():
    with pytest.raises(UsageError, match="needs"):
        draw("spiked", 1.0, {3: 1.0}, 0.1, 20000, 100000, 0)
