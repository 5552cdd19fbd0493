"""The reference engine: minimisers and averages with many digits on the same nodes.

Nodes are doubles and enter exactly, as dyadic rationals. The minimiser that double precision finds
is refined by Newton steps with a double-precision Hessian and a gradient of full precision, each of
which adds about ten digits. Slow: for checks on few nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mpmath as mp
import numpy as np

from replica.codegen.mpmath_printer import compile_mpmath
from replica.model import LABEL, Array
from replica.saddle_point import proximal
from replica.saddle_point.kernels import Kernels
from replica.saddle_point.nodes import NodeGroup, NodeSet
from replica.saddle_point.sweep import NumpyEngine, Search
from replica.saddle_point.workers import Workers

MAX_NODES = 2**12
DIGITS = 40
REFINEMENTS = 4


class MpmathEngine(NumpyEngine):
    """Averages at :data:`DIGITS` digits, rounded to doubles at the end."""

    name = "mpmath"

    def __init__(
        self, kernels: Kernels, nodes: NodeSet, values: Mapping[str, float],
        workers: Workers | None = None,
    ) -> None:
        super().__init__(kernels, nodes, values, Workers(1))  # the precision is a global setting
        p = kernels.programs
        self.programs = {
            q.name: (q, compile_mpmath(q))
            for q in (p.label, p.cavity, p.proximal, p.averages, p.observables, p.loss)
            if q is not None
        }

    def _block(
        self, group: NodeGroup, state: Array, here: slice, values: Mapping[str, float],
        tolerance: float, search: Search, observe: bool,
    ) -> dict[str, Any]:
        # double precision finds the basin, the minimiser to its own precision, and the counts
        found = super()._block(group, state, here, values, 1e-13, search, observe)
        inputs = self.block_inputs(group, here, values)
        with mp.workdps(DIGITS):
            inverse = self._inverse_curvature(inputs, state[:, here], group.length)
            sums: dict[str, Any] = {}
            for node in range(here.start, here.stop):
                local = node - here.start
                exact = self._exact_inputs(group, node, values)
                self._refine(exact, state[:, node], None if inverse is None else inverse[local],
                             group.length)
                pieces = ("averages", "observables") if observe else ("averages",)
                for piece in pieces:
                    for name, value in self._run(piece, exact, group.length).items():
                        sums[name] = sums.get(name, mp.mpf(0)) + value
        return {**found, "sums": {n: float(v) for n, v in sums.items()}}

    def _run(self, piece: str, exact: Mapping[str, Any], length: int) -> dict[str, Any]:
        program, function = self.programs[piece]
        found = function(*(exact[n] for n, _ in program.inputs), length)
        return dict(zip(program.outputs, found, strict=True))

    def _exact_inputs(
        self, group: NodeGroup, node: int, values: Mapping[str, float]
    ) -> dict[str, Any]:
        """Doubles as exact numbers; cavity fields and label computed from them."""
        exact: dict[str, Any] = {n: mp.mpf(v) for n, v in values.items()}
        for name, a in group.arrays.items():
            column = a[..., node]
            exact[name] = (
                [mp.mpf(float(u)) for u in column] if np.ndim(column) else mp.mpf(float(column))
            )
        for name, value in self._run("cavity", exact, group.length).items():
            token = name != LABEL.name and not isinstance(value, list)
            exact[name] = [value] * group.length if token else value
        return exact

    def _inverse_curvature(
        self, inputs: dict[str, Any], state: Array, length: int
    ) -> Array | None:
        """Inverse Hessian of the proximal objective by the displacements, double precision."""
        k = self.kernels
        if k.eliminated and not k.has_proximal:
            return None
        if k.eliminated:
            name = k.model.sectors[0].residual.__name__
            schur = proximal.reduced_hessian(k, {**inputs, name: state}, length)
        else:
            V = np.repeat([float(inputs[s.V.name]) for s in k.model.sectors], length)
            schur = np.eye(len(V)) + V * proximal.loss_hessian(k, inputs, state, length)
        return np.asarray(np.linalg.inv(schur))

    def _refine(
        self, exact: dict[str, Any], start: Array, inverse: Array | None, length: int
    ) -> None:
        """Put the refined displacements into ``exact``."""
        if inverse is None:
            return
        sectors = self.kernels.model.sectors
        size = len(start)
        d = [mp.mpf(float(u)) for u in start]
        for _ in range(REFINEMENTS):
            g = self._gradient(exact, d, length)
            scale = max(abs(x) for x in g)
            if scale == 0:
                break
            step = inverse @ np.array([float(x / scale) for x in g])
            d = [d[i] - scale * mp.mpf(float(step[i])) for i in range(size)]
        names = [sectors[0]] if self.kernels.eliminated else list(sectors)
        for i, s in enumerate(names):
            exact[s.residual.__name__] = d[i * length : (i + 1) * length]

    def _gradient(self, exact: dict[str, Any], d: list[Any], length: int) -> list[Any]:
        """Gradient by the fields at displacements ``d``."""
        sectors = self.kernels.model.sectors
        if self.kernels.eliminated:
            at = {**exact, sectors[0].residual.__name__: d}
            gradient = self._run("proximal", at, length)["gradient"]
            return gradient if isinstance(gradient, list) else [gradient] * length
        at = dict(exact)
        for i, s in enumerate(sectors):
            own = d[i * length : (i + 1) * length]
            omega, V = exact[s.cavity.__name__], exact[s.V.name]
            at[s.field_name] = [w + V * u for w, u in zip(omega, own, strict=True)]
        slopes = list(self._run("loss", at, length).values())[1:]
        flat = [x for g in slopes for x in (g if isinstance(g, list) else [g] * length)]
        return [a + b for a, b in zip(flat, d, strict=True)]
