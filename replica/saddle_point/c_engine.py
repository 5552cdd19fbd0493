"""The compiled engine: the same sweeps as the NumPy engine, by generated C."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from replica.codegen.c_compiler import compile_c
from replica.codegen.c_source import LANES, c_source
from replica.errors import UnsupportedNodeError
from replica.model import Array
from replica.saddle_point import proximal
from replica.saddle_point.kernels import Kernels
from replica.saddle_point.nodes import NodeGroup, NodeSet
from replica.saddle_point.sweep import NumpyEngine

MINIMISE, SEARCH, AVERAGE = 1, 2, 4
GAUSS_NEWTON_STEPS = 40
"""Nodes that still move after this many steps are finished by Newton's method in NumPy."""

_DOUBLES = ctypes.POINTER(ctypes.c_double)


def _pointer(array: Array) -> Any:
    return array.ctypes.data_as(_DOUBLES)


class CEngine(NumpyEngine):
    """Sweeps in compiled blocks of lanes; results do not depend on the number of threads."""

    name = "c"

    def __init__(
        self, kernels: Kernels, nodes: NodeSet, values: Mapping[str, float], library: Any,
        source: Any, threads: int | None,
    ) -> None:
        super().__init__(kernels, nodes, values, threads)
        self.library, self.source = library, source
        self.norms = [np.zeros(g.count) for g in nodes.groups]

    @classmethod
    def build(
        cls, kernels: Kernels, nodes: NodeSet, values: Mapping[str, float], threads: int | None
    ) -> CEngine | None:
        """The engine, or ``None`` if the model or the machine does not allow it."""
        try:
            source = c_source(kernels.model, kernels.programs)
        except UnsupportedNodeError:
            return None
        library = compile_c(source.text)
        if library is None:
            return None
        library.replica_workspace.restype = ctypes.c_int64
        library.replica_workspace.argtypes = [ctypes.c_int]
        library.replica_sweep.restype = None
        return cls(kernels, nodes, values, library, source, threads)

    def block_size(self, group: NodeGroup) -> int:
        """Whole blocks of lanes, a share of one scramble, enough work for one call."""
        size = group.per_scramble
        while size > 4096 and size % (2 * LANES) == 0:
            size //= 2
        return size

    def _block(
        self,
        group: NodeGroup,
        state: Array,
        here: slice,
        values: Mapping[str, float],
        tolerance: float,
        search: bool,
    ) -> dict[str, Any]:
        norms = self.norms[self._number(group)]
        counts = np.zeros(2, dtype=np.int64)
        gradient = 0.0
        if self.source.has_proximal:
            mode = MINIMISE | (SEARCH if search else 0)
            self._call(group, state, norms, here, values, tolerance, mode, counts)
            slow = here.start + np.flatnonzero(~(norms[here] <= tolerance))
            if slow.size:
                inputs = self.block_inputs(group, slow, values)
                found = proximal.minimise_attention(
                    self.kernels, inputs, state[:, slow], tolerance, group.length
                )
                state[:, slow] = found.displacement
                norms[slow] = found.gradient
            gradient = float(norms[here].max())
        sums = self._call(group, state, norms, here, values, tolerance, AVERAGE, counts)
        totals = sums.sum(axis=0)
        return {
            "sums": dict(zip(self.source.averages, map(float, totals), strict=True)),
            "gradient": gradient, "moved": int(counts[0]), "competing": int(counts[1]),
        }

    def _call(
        self, group: NodeGroup, state: Array, norms: Array, here: slice,
        values: Mapping[str, float], tolerance: float, mode: int, counts: Any,
    ) -> Array:
        arrays = [group.arrays[n] for n, _ in self.source.fields]
        fields = (_DOUBLES * len(arrays))(*(_pointer(a) for a in arrays))
        uniform = np.array([values[n] for n in self.source.uniform] or [0.0])
        first, last = here.start // LANES, here.stop // LANES
        sums = np.empty((last - first, len(self.source.averages)))
        memory = np.empty(self.library.replica_workspace(group.length) // 8)
        self.library.replica_sweep(
            ctypes.c_int64(first), ctypes.c_int64(last), ctypes.c_int64(group.count),
            ctypes.c_int(group.length), fields, _pointer(uniform), _pointer(state),
            _pointer(norms), ctypes.c_double(tolerance), ctypes.c_int(GAUSS_NEWTON_STEPS),
            ctypes.c_double(self.close[self._number(group)]), ctypes.c_int(mode), _pointer(sums),
            counts.ctypes.data_as(ctypes.POINTER(ctypes.c_int64)), _pointer(memory),
        )
        return sums
