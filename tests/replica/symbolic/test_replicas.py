import pytest
import sympy as sp

from replica.symbolic.replicas import ReplicaMatrix

n = sp.Symbol("n", positive=True)
a, b = sp.symbols("a b", positive=True)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_determinant_for_any_number_of_replicas(count):
    single = sp.ImmutableMatrix([[3, 1], [1, 4]])
    common = sp.ImmutableMatrix([[sp.Rational(1, 2), sp.Rational(-1, 3)], [sp.Rational(-1, 3), 2]])
    matrix = ReplicaMatrix(single, common)
    direct = sp.log(matrix.explicit(count).det())
    assert abs(sp.N(matrix.log_determinant(n).subs(n, count) - direct, 30)) < 1e-25


@pytest.mark.parametrize("count", [1, 2, 3])
def test_trace_of_a_product(count):
    first = ReplicaMatrix(
        sp.ImmutableMatrix([[1, 2], [3, 5]]), sp.ImmutableMatrix([[2, 0], [1, 7]])
    )
    second = ReplicaMatrix(
        sp.ImmutableMatrix([[4, 1], [1, 1]]), sp.ImmutableMatrix([[1, 3], [0, 2]])
    )
    direct = (first.explicit(count) * second.explicit(count).T).trace()
    assert first.trace_product(second, n).subs(n, count) == direct


def test_slope_at_no_replicas_is_the_textbook_one():
    matrix = ReplicaMatrix(sp.ImmutableMatrix([[a]]), sp.ImmutableMatrix([[b]]))
    slope = sp.diff(matrix.log_determinant(n), n).subs(n, 0)
    assert sp.simplify(slope - sp.log(a) - b / a) == 0
