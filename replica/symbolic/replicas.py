"""Algebra of replica-symmetric matrices with a symbolic number of replicas.

``A = P (x) I_n + S (x) 11^T`` with ``P, S`` square blocks over the weight sectors. ``11^T`` has the
eigenvalue ``n`` once and ``0`` (n-1) times, hence the determinant as a function of ``n``;
:meth:`ReplicaMatrix.explicit` writes the matrix out so that it can be checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy as sp


@dataclass(frozen=True)
class ReplicaMatrix:
    """``P (x) I_n + S (x) 11^T``: ``single`` is ``P`` (S x S), ``common`` is ``S`` (S x S)."""

    single: sp.ImmutableMatrix
    common: sp.ImmutableMatrix

    def log_determinant(self, n: Any) -> Any:
        """``(n-1) log det P + log det(P + n S)``."""
        total = (self.single + n * self.common).det(method="berkowitz")
        return (n - 1) * sp.log(self.single.det(method="berkowitz")) + sp.log(total)

    def trace_product(self, other: ReplicaMatrix, n: Any) -> Any:
        """``Tr(A B^T)`` over sectors and replicas."""
        p, s, u, t = self.single, self.common, other.single, other.common
        return n * ((p * u.T).trace() + (p * t.T + s * u.T).trace()) + n**2 * (s * t.T).trace()

    def explicit(self, n: int) -> sp.Matrix:
        """The full matrix for ``n`` replicas; rows ordered replica by replica."""
        size = self.single.shape[0]

        def entry(i: int, j: int) -> Any:
            (a, u), (b, w) = divmod(i, size), divmod(j, size)
            return (self.single[u, w] if a == b else 0) + self.common[u, w]

        return sp.Matrix(n * size, n * size, entry)
