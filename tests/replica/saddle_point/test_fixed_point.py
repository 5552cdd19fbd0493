import numpy as np

from replica.saddle_point.fixed_point import iterate


def anything(x):
    return True


def test_a_contraction_converges():
    found = iterate(lambda x, _: np.cos(x), np.array([1.0]), anything, 1e-10, 100)
    assert found.converged
    assert abs(found.x[0] - 0.7390851332151607) < 1e-9


def test_a_two_cycle_of_the_plain_iteration_is_solved_and_not_called_converged_there():
    found = iterate(lambda x, _: -np.tanh(3 * x), np.array([0.7]), anything, 1e-10, 200)
    assert found.converged
    assert abs(found.x[0]) < 1e-9


def test_no_fixed_point_is_reported():
    found = iterate(lambda x, _: x + 1.0, np.array([0.0]), anything, 1e-10, 30)
    assert not found.converged
    assert found.message


def test_a_map_that_is_not_finite_is_reported():
    found = iterate(lambda x, _: x * np.nan, np.array([1.0]), anything, 1e-10, 30)
    assert not found.converged


def test_infeasible_points_are_not_visited():
    seen = []

    def step(x, _):
        seen.append(float(x[0]))
        return 0.5 * x + 0.55 * np.sign(x - 0.05)

    iterate(step, np.array([2.0]), lambda x: bool(x[0] > 1.0), 1e-12, 50)
    assert min(seen) > 1.0
