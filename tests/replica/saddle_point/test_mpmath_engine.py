"""The reference engine against double precision, on the same nodes."""

import numpy as np
import pytest

from derivations.classical import logistic
from derivations.slr import single_location
from replica.api import derive_model
from replica.errors import UsageError
from replica.saddle_point.solve import SaddlePointProblem, SolverOptions

VALUES = {"nu": 2.0, "Delta": 0.1, "r_k": 0.5, "r_v": 0.5}
POINT = np.array([0.3, 0.4, 1.2, 0.6, 0.7, 0.9])


@pytest.mark.parametrize("backend", ["c", "numpy"])
@pytest.mark.parametrize("task", ["spiked", "max"])
def test_averages_agree_to_twelve_digits(activation, task, backend):
    equations = derive_model(single_location(task, activation))
    found = []
    for name in ("mpmath", backend):
        try:
            p = SaddlePointProblem(
                equations, VALUES, {1: 0.3, 3: 0.7}, SolverOptions(nodes=256, backend=name)
            )
        except UsageError as error:
            pytest.skip(str(error))
        found.append(p.engine.sweep(p.uniform(POINT, 2.0), 1e-13, "all").per_scramble)
    for name, exact in found[0].items():
        assert np.allclose(found[1][name], exact, rtol=1e-12, atol=1e-12), name


def test_a_loss_whose_readout_is_not_eliminated():
    equations = derive_model(logistic())
    found = []
    for name in ("mpmath", "numpy"):
        p = SaddlePointProblem(
            equations, {"r_w": 0.1}, {1: 1.0}, SolverOptions(nodes=128, backend=name)
        )
        point = np.array([1.0, 2.0, 1.5])
        found.append(p.engine.sweep(p.uniform(point, 2.0), 1e-13).pooled())
    for name, exact in found[0].items():
        assert found[1][name] == pytest.approx(exact, rel=1e-12), name


def test_many_nodes_are_refused():
    equations = derive_model(single_location("spiked", "softmax"))
    with pytest.raises(UsageError) as caught:
        SaddlePointProblem(
            equations, VALUES, {3: 1.0}, SolverOptions(nodes=2**14, backend="mpmath")
        )
    assert caught.value.field == "nodes"
