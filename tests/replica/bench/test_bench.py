"""The bench runs and its counts are counts; timings are never asserted."""

import pytest

from replica.api import derive
from replica.bench.machine import OPERATIONS, measure_machine
from replica.bench.measure import Bench, load_baselines
from replica.bench.operations import count_newton, count_program, count_step
from replica.codegen.c_compiler import find_compilers
from replica.saddle_point.solve import SolverOptions
from tests.conftest import programs_of


def test_operations_are_counted_per_token():
    programs = programs_of("softmax")
    one, three = (count_program(programs.proximal, n) for n in (1, 3))
    assert one["exp"] == 1
    assert three["exp"] == 3
    assert one["sqrt"] == three["sqrt"] == 1
    assert three["arithmetic"] < 3 * one["arithmetic"]
    assert count_program(programs_of("erf").proximal, 2)["erfc"] == 2


def test_a_step_grows_linearly_with_the_length():
    programs = programs_of("softplus")
    a, b, c = (count_step(programs, n)["arithmetic"] for n in (10, 20, 30))
    assert c - b == b - a > 0
    assert count_newton(5, 3, 2)["division"] == 8


@pytest.mark.skipif(not find_compilers(), reason="no C compiler")
def test_every_operation_has_a_cost():
    machine = measure_machine()
    assert set(machine.seconds) == set(OPERATIONS)
    assert all(s > 0 for s in machine.seconds.values())
    assert machine.bandwidth > 0


@pytest.mark.slow
@pytest.mark.skipif(not find_compilers(), reason="no C compiler")
def test_engine_and_baselines_find_the_same_saddle_point():
    said = []
    bench = Bench(derive("softmax"), SolverOptions(nodes=2**14), 1, said.append)
    found = bench.saddle_point(2**12)
    ends = found["order_parameters"]
    assert {"everything", "iteration", "NumPy backend"} <= set(ends)
    assert load_baselines() is None or {"scalar baseline", "NumPy baseline"} <= set(ends)
    for name, x in ends.items():
        assert x == pytest.approx(ends["everything"], abs=0.02), name
    assert found["ratio_to_iteration"]["iteration"] == 1.0
    assert bench.proximal()["steps_per_solve"] <= bench.proximal()["executed_steps_per_solve"]
