"""The compiled engine: the same sweeps as the NumPy engine, by generated C."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from replica.codegen.kernel_source import COUNTERS, LANES, KernelSource
from replica.model import Array
from replica.saddle_point import proximal
from replica.saddle_point.kernels import Kernels
from replica.saddle_point.nodes import NodeGroup, NodeSet
from replica.saddle_point.sweep import NumpyEngine, Search
from replica.saddle_point.workers import Workers

MINIMISE, SEARCH, SEARCH_ALL, AVERAGE, OBSERVE = 1, 2, 4, 8, 16
SEARCH_MODES: dict[Search, int] = {"none": 0, "near": SEARCH, "all": SEARCH_ALL}
STEPS = 40
"""Nodes that still move after this many steps are finished by Newton's method in NumPy."""
CHUNK = 8192

_DOUBLES = ctypes.POINTER(ctypes.c_double)


def _pointer(array: Array) -> Any:
    return array.ctypes.data_as(_DOUBLES)


class CEngine(NumpyEngine):
    """Sweeps in compiled blocks of lanes; results do not depend on the number of threads."""

    name = "c"

    def __init__(
        self, kernels: Kernels, nodes: NodeSet, values: Mapping[str, float], library: Any,
        source: KernelSource, workers: Workers | None,
    ) -> None:
        super().__init__(kernels, nodes, values, workers)
        self.library, self.source = library, source
        self.fields = []
        for g in nodes.groups:
            arrays = [g.arrays[n] for n, _ in source.fields]
            self.fields.append((_DOUBLES * max(1, len(arrays)))(*(_pointer(a) for a in arrays)))

    @classmethod
    def build(
        cls, kernels: Kernels, nodes: NodeSet, values: Mapping[str, float],
        workers: Workers | None = None,
    ) -> CEngine | None:
        """The engine, or ``None`` if the model or the machine does not allow it."""
        if kernels.compiled is None:
            return None
        source, library = kernels.compiled
        return cls(kernels, nodes, values, library, source, workers)

    def block_size(self, group: NodeGroup) -> int:
        chunk = CHUNK if group.length <= 16 else 1024
        return min(chunk, group.count)  # powers of two

    def _block(
        self,
        group: NodeGroup,
        state: Array,
        here: slice,
        values: Mapping[str, float],
        tolerance: float,
        search: Search,
        observe: bool,
    ) -> dict[str, Any]:
        wanted = AVERAGE | (OBSERVE if observe else 0)
        minimise = MINIMISE | SEARCH_MODES[search] if self.source.has_proximal else 0
        columns = self._sweep(group, state, here, values, tolerance, minimise | wanted)
        gradient = 0.0
        counts = dict(zip(COUNTERS, columns[:, -len(COUNTERS):].sum(axis=0).tolist(), strict=True))
        if self.source.has_proximal:
            norms = self.norms[self._number(group)]
            slow = here.start + np.flatnonzero(~(norms[here] <= tolerance))
            if slow.size:
                inputs = self.block_inputs(group, slow, values)
                found = proximal.minimise_attention(
                    self.kernels, inputs, state[:, slow], tolerance, group.length
                )
                state[:, slow] = found.displacement
                norms[slow] = found.gradient
                columns = self._sweep(group, state, here, values, tolerance, wanted)
            gradient = float(norms[here].max())
        names = self.source.columns(observe)
        return {
            "sums": dict(zip(names, columns.T, strict=False)),
            "gradient": gradient, **counts,
        }

    def _sweep(
        self, group: NodeGroup, state: Array, here: slice, values: Mapping[str, float],
        tolerance: float, mode: int,
    ) -> Array:
        """Sums over the nodes of each scramble: averages, observables, counters."""
        number = self._number(group)
        first, last = here.start // LANES, here.stop // LANES
        sums = np.zeros((last - first, len(self.source.averages) + len(COUNTERS)))
        self.library.replica_sweep(
            *self._where(group, first, last), *self._inputs(number, values), _pointer(state),
            _pointer(self.norms[number]), _pointer(self.margins[number]),
            ctypes.c_double(tolerance), ctypes.c_int(STEPS), ctypes.c_double(self.close[number]),
            ctypes.c_int(mode), _pointer(sums), self._memory(group),
        )
        scrambles = max(1, (here.stop - here.start) // group.per_scramble)
        total: Array = sums.reshape(scrambles, -1, sums.shape[1]).sum(axis=1)
        return total

    def squared_responses(
        self, group: NodeGroup, state: Array, here: slice, values: Mapping[str, float]
    ) -> Array:
        if not self.source.has_response:
            return super().squared_responses(group, state, here, values)
        size = len(self.kernels.model.sectors)
        first, last = here.start // LANES, here.stop // LANES
        sums = np.zeros((last - first, size * size))
        self.library.replica_response(
            *self._where(group, first, last), *self._inputs(self._number(group), values),
            _pointer(state), _pointer(sums), self._memory(group),
        )
        total: Array = sums.sum(axis=0).reshape(size, size)
        return total

    def affordable_responses(self, group: NodeGroup) -> int:
        return group.count if self.source.has_response else super().affordable_responses(group)

    def _where(self, group: NodeGroup, first: int, last: int) -> tuple[Any, ...]:
        return (ctypes.c_int64(first), ctypes.c_int64(last), ctypes.c_int64(group.count),
                ctypes.c_int(group.length))

    def _inputs(self, number: int, values: Mapping[str, float]) -> tuple[Any, ...]:
        uniform = np.array([values[n] for n in self.source.uniform] or [0.0])
        return self.fields[number], _pointer(uniform)

    def _memory(self, group: NodeGroup) -> Any:
        return ctypes.create_string_buffer(self.library.replica_workspace(group.length))
