"""The Hessian as diagonal plus low rank."""

import pytest
import sympy as sp

from replica.derivation.curvature import rank_of, split_pairs
from replica.symbolic.tokens import index
from tests.conftest import derived

i, j = index("i"), index("j")
A, B = sp.Function("A", real=True), sp.Function("B", real=True)
x = sp.Symbol("x", real=True)
DELTA = sp.KroneckerDelta(i, j)


def test_terms_go_to_the_diagonal_or_to_pairs():
    diagonal, pairs = split_pairs(
        x * DELTA * A(j) * B(i) + 2 * A(j) * B(i) - x * A(j) * A(i) + 3, j, i
    )
    assert sp.simplify(diagonal - x * A(j) * B(j)) == 0
    assert sp.expand(pairs[A(j)] - (2 * B(i) - x * A(i))) == 0
    assert pairs[sp.S.One] == 3


def test_factors_in_sums_are_separated():
    expr = (A(j) + B(i) + DELTA) * A(i)
    diagonal, pairs = split_pairs(expr, j, i)
    total = diagonal.xreplace({j: 1}) + sum(
        (left * right for left, right in pairs.items()), sp.S.Zero
    ).xreplace({j: 1, i: 1})
    assert sp.expand(total - expr.xreplace({j: sp.Integer(1), i: sp.Integer(1)}).doit()) == 0


def test_a_coupling_of_another_kind_is_left_dense():
    assert split_pairs(sp.exp(A(j) * A(i)), j, i) is None
    assert split_pairs(sp.Abs(A(j) - A(i)), j, i) is None


@pytest.mark.parametrize(
    ("name", "rank"), [("softmax", 3), ("linear", 2), ("erf", 2), ("softplus", 3)]
)
def test_the_rank_does_not_grow_with_the_length(name, rank):
    step = derived(name).derivation["curvature"]
    assert rank_of(step.conclusion) == rank
    assert step.run_check().passed


def test_a_wrong_factor_fails_the_check():
    step = derived("softmax").derivation["curvature"]
    wrong = {**step.conclusion, "right_0_k": 2 * step.conclusion["right_0_k"]}
    assert not step.check(wrong).passed
