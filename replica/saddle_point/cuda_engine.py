"""The CUDA engine: nodes and minimisers stay on the device, a few sums come back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from replica.codegen.cuda import Device
from replica.codegen.kernel_source import COUNTERS, KernelSource
from replica.model import Array
from replica.saddle_point import proximal
from replica.saddle_point.c_engine import (
    AVERAGE,
    MINIMISE,
    OBSERVE,
    SEARCH_MODES,
    STEPS,
)
from replica.saddle_point.kernels import Kernels
from replica.saddle_point.nodes import NodeGroup, NodeSet
from replica.saddle_point.sweep import Averages, NumpyEngine, Search
from replica.saddle_point.workers import Workers

CHUNK = 2**21
"""Nodes of one launch: their sums are kept per node until they are added up."""
THREADS = 128
LONGEST_FIXED = 16
"""Up to this many tokens the length is compiled in and a thread works in its own registers."""
WORKSPACE = 2**31
"""Bytes of device memory for the working arrays of longer sequences."""


class CudaEngine(NumpyEngine):
    """Sweeps on a device. Sums over nodes are taken in an order that only the nodes determine."""

    name = "cuda"

    def __init__(
        self, kernels: Kernels, nodes: NodeSet, values: Mapping[str, float], device: Device,
        source: KernelSource,
    ) -> None:
        super().__init__(kernels, nodes, values, Workers(1))
        self.device, self.source = device, source
        xp = device.xp
        self.state = [xp.asarray(s) for s in self.state]
        self.margins = [xp.asarray(m) for m in self.margins]
        self.norms = [xp.asarray(n) for n in self.norms]
        self.arrays = [
            [xp.asarray(g.arrays[n]) for n, _ in source.fields] for g in nodes.groups
        ]
        self.fields = [
            xp.asarray(np.array([device.pointer(a) for a in arrays] or [0], dtype=np.uint64))
            for arrays in self.arrays
        ]
        self.modules: dict[int | None, Any] = {}

    @classmethod
    def build(
        cls, kernels: Kernels, nodes: NodeSet, values: Mapping[str, float], device: Device
    ) -> CudaEngine | None:
        """The engine, or ``None`` if the model's readout is not eliminated."""
        return None if kernels.source is None else cls(
            kernels, nodes, values, device, kernels.source
        )

    def sweep(
        self, values: Mapping[str, float], tolerance: float, search: Search = "none",
        observe: bool = True,
    ) -> Averages:
        wanted = AVERAGE | (OBSERVE if observe else 0)
        minimise = MINIMISE | SEARCH_MODES[search] if self.source.has_proximal else 0
        names = self.source.columns(observe)
        jobs, results = [], []
        for number, group in enumerate(self.nodes.groups):
            whole = slice(0, group.count)
            columns = self._launch(number, group, values, tolerance, minimise | wanted)
            counts = dict(
                zip(COUNTERS, columns[-len(COUNTERS):].sum(axis=1).tolist(), strict=True)
            )
            gradient = 0.0
            if self.source.has_proximal:
                if self._finish_slow(number, group, values, tolerance):
                    columns = self._launch(number, group, values, tolerance, wanted)
                gradient = float(self.norms[number].max())
            jobs.append((group, self.state[number], whole))
            results.append({
                "sums": dict(zip(names, columns, strict=False)), "gradient": gradient,
                **counts,
            })
        return self._combine(jobs, results)

    def _finish_slow(
        self, number: int, group: NodeGroup, values: Mapping[str, float], tolerance: float
    ) -> bool:
        """Nodes that still move are finished on the host."""
        slow = self.device.host((~(self.norms[number] <= tolerance)).nonzero()[0])
        if not slow.size:
            return False
        state, there = self.state[number], self.device.xp.asarray(slow)
        found = proximal.minimise_attention(
            self.kernels, self.block_inputs(group, slow, values),
            self.device.host(state[:, there]), tolerance, group.length,
        )
        state[:, there] = self.device.xp.asarray(found.displacement)
        self.norms[number][there] = self.device.xp.asarray(found.gradient)
        return True

    def _launch(
        self, number: int, group: NodeGroup, values: Mapping[str, float], tolerance: float,
        mode: int,
    ) -> Array:
        """Sums per scramble, ``(columns, scrambles)``."""
        columns = len(self.source.averages) + len(COUNTERS)

        def arguments(sums: Any) -> list[Any]:
            return [
                self.state[number], self.norms[number], self.margins[number],
                np.float64(tolerance), np.int32(STEPS), np.float64(self.close[number]),
                np.int32(mode), sums,
            ]

        return self._summed("replica_sweep", number, group, slice(0, group.count), values, columns,
                            arguments)

    def squared_responses(
        self, group: NodeGroup, state: Array, here: slice, values: Mapping[str, float]
    ) -> Array:
        if not self.source.has_response:
            return super().squared_responses(group, self.device.host(state), here, values)
        size = len(self.kernels.model.sectors)
        sums = self._summed(
            "replica_response", self._number(group), group, here, values, size * size,
            lambda sums: [state, sums],
        )
        total: Array = sums.sum(axis=1).reshape(size, size)
        return total

    def affordable_responses(self, group: NodeGroup) -> int:
        return group.count if self.source.has_response else super().affordable_responses(group)

    def _summed(
        self, kernel: str, number: int, group: NodeGroup, here: slice,
        values: Mapping[str, float], columns: int, arguments: Any,
    ) -> Array:
        """Launch over chunks of nodes and add up each scramble, ``(columns, scrambles)``."""
        xp = self.device.xp
        fixed = group.length if group.length <= LONGEST_FIXED else None
        if fixed not in self.modules:
            self.modules[fixed] = self.device.compile(self.source.for_cuda(fixed))
        uniform = xp.asarray(np.array([values[n] for n in self.source.uniform] or [0.0]))
        chunk = min(CHUNK, here.stop - here.start)
        threads_at_once = chunk
        workspace = xp.empty(1)
        if fixed is None:
            per_thread = 8 * max(1, self.source.token_arrays) * group.length
            threads_at_once = max(THREADS, min(chunk, WORKSPACE // per_thread))
        blocks = -(-threads_at_once // THREADS)
        if fixed is None:
            workspace = xp.empty(blocks * THREADS * self.source.token_arrays * group.length)
        sums = xp.zeros((columns, chunk))
        total = np.zeros((columns, max(1, (here.stop - here.start) // group.per_scramble)))
        for first in range(here.start, here.stop, chunk):
            last = min(first + chunk, here.stop)
            self.device.launch(self.modules[fixed], kernel, blocks, THREADS, [
                np.int64(first), np.int64(last), np.int64(group.count), np.int32(group.length),
                self.fields[number], uniform, *arguments(sums), workspace,
            ])
            parts = max(1, (last - first) // group.per_scramble)
            found = self.device.host(
                sums[:, : last - first].reshape(columns, parts, -1).sum(axis=2)
            )
            at = (first - here.start) // group.per_scramble
            total[:, at : at + parts] += found
        return total
