"""One sweep: overlaps in, data averages out, per scramble; the NumPy engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from replica.model import LABEL, Array
from replica.saddle_point import proximal
from replica.saddle_point.kernels import Kernels
from replica.saddle_point.nodes import SCRAMBLES, NodeGroup, NodeSet
from replica.saddle_point.workers import Workers

BLOCK = 2048
RESPONSE_WORK = 2e10
"""Operations to spend on dense responses, which cost the cube of the length."""

Search = Literal["none", "near", "all"]
"""Where other starting points are tried: nowhere, where a rival minimum was close at the last
search, everywhere."""


@dataclass(frozen=True)
class Averages:
    """Means of the integrands per scramble, and what the minimisation reports.

    ``per_scramble`` maps integrand names to ``(scrambles,)``; ``worst_gradient`` is the largest
    relative gradient left, ``moved`` the fraction of nodes where a global search found a lower
    minimum, ``competing`` the fraction with a second minimum within the fluctuation scale.
    Compiled engines count the minimisation steps that nodes needed (``steps``) and those that they
    went through (``executed``: lanes of a block wait for each other).
    """

    per_scramble: Mapping[str, Array]
    worst_gradient: float
    moved: float
    competing: float
    steps: float = 0.0
    executed: float = 0.0

    def pooled(self) -> dict[str, float]:
        return {n: float(v.mean()) for n, v in self.per_scramble.items()}


class NumpyEngine:
    """Evaluates averages over a node set and remembers the minimisers between sweeps."""

    name = "numpy"

    def __init__(
        self, kernels: Kernels, nodes: NodeSet, values: Mapping[str, float],
        workers: Workers | None = None,
    ) -> None:
        self.kernels = kernels
        self.values = values
        self.nodes = nodes
        self.workers = workers or Workers()
        rows = 1 if kernels.eliminated else len(kernels.model.sectors)
        self.close = [self._fluctuation_scale(g) for g in nodes.groups]
        self.state, self.margins, self.norms = [], [], []
        for g in nodes.groups:
            # one block: large enough for huge pages, which are much cheaper to touch first
            block = np.empty((rows * g.length + 2, g.count))
            block[...] = 0.0
            block[-2] = np.inf
            self.state.append(block[:-2])
            self.margins.append(block[-2])
            self.norms.append(block[-1])

    def _fluctuation_scale(self, group: NodeGroup) -> float:
        """5% of the prior energy ``E y^2/2``: a rival minimum closer than this competes."""
        model = self.kernels.model
        names = {n for n, s in self.kernels.cavity.program.inputs if s == "uniform"}
        values = {n: self.values[n] for n in names if n in self.values}
        for s in model.sectors:  # the label's law does not depend on the overlaps
            values |= {s.m.name: 0.0, s.q.name: 1.0}
        inputs = self.block_inputs(group, slice(0, min(group.count, BLOCK)), values)
        return 0.05 * float(np.mean(np.square(inputs[LABEL.name]))) / 2

    def sweep(
        self, values: Mapping[str, float], tolerance: float, search: Search = "none",
        observe: bool = True,
    ) -> Averages:
        """Minimise at every node and average; ``observe`` adds loss, envelope and test error."""
        jobs = [
            (g, state, slice(a, min(a + size, g.count)))
            for g, state in zip(self.nodes.groups, self.state, strict=True)
            for size in [self.block_size(g)]
            for a in range(0, g.count, size)
        ]

        def run(job: tuple[NodeGroup, Array, slice]) -> dict[str, Any]:
            return self._block(*job, values, tolerance, search, observe)

        return self._combine(jobs, self.workers.map(run, jobs))

    def _number(self, group: NodeGroup) -> int:
        return next(i for i, g in enumerate(self.nodes.groups) if g is group)

    def block_size(self, group: NodeGroup) -> int:
        """Nodes per call; a divisor or a multiple of the scramble's size."""
        return min(group.per_scramble, BLOCK if group.length <= 16 else 256)

    def _combine(self, jobs: list[Any], results: list[dict[str, Any]]) -> Averages:
        names = list(results[0]["sums"])
        table = {n: np.zeros(SCRAMBLES) for n in names}
        moved = competing = 0.0
        for (group, _, here), r in zip(jobs, results, strict=True):
            first = here.start // group.per_scramble
            share = group.probability / group.per_scramble
            for n in names:
                sums = r["sums"][n]  # a number, or one for each of several scrambles
                table[n][first : first + np.size(sums)] += share * sums
            moved += group.probability * r["moved"] / group.count
            competing += group.probability * r["competing"] / group.count
        gradients = np.array([r["gradient"] for r in results])
        worst = float(np.inf if np.isnan(gradients).any() else gradients.max())
        steps, executed = (sum(r.get(n, 0.0) for r in results) for n in ("steps", "executed"))
        return Averages(table, worst, moved, competing, steps, executed)

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
        k, L = self.kernels, group.length
        inputs = self.block_inputs(group, here, values)
        count = here.stop - here.start
        moved = competing = 0
        gradient = 0.0
        if k.has_proximal:
            found = proximal.minimise_attention(k, inputs, state[:, here], tolerance, L)
            number = self._number(group)
            margins, close = self.margins[number][here], self.close[number]
            if search != "none":
                wanted = np.flatnonzero((margins < close) | (search == "all"))
                moved = self._search(inputs, found, wanted, tolerance, L, margins, close)
            competing = int(np.count_nonzero(margins < close))
            state[:, here] = found.displacement
            gradient = float(found.gradient.max())
        elif not k.eliminated:
            found = proximal.minimise_fields(k, inputs, state[:, here], tolerance, L)
            state[:, here] = found.displacement
            gradient = float(found.gradient.max())
        inputs |= self.minimisers(inputs, state[:, here], L)
        integrands = k.averages.named(inputs, L)
        if observe:
            integrands |= k.observables.named(inputs, L)
        sums = {n: float(np.sum(np.broadcast_to(v, (count,)))) for n, v in integrands.items()}
        return {"sums": sums, "gradient": gradient, "moved": moved, "competing": competing}

    def block_inputs(
        self, group: NodeGroup, here: Any, values: Mapping[str, float]
    ) -> dict[str, Any]:
        """Named inputs of a block: fields, label, cavity fields and uniform values."""
        inputs: dict[str, Any] = {n: a[..., here] for n, a in group.arrays.items()}
        inputs |= values
        count = next(a[..., here].shape[-1] for a in group.arrays.values())
        for name, value in self.kernels.cavity.named(inputs, group.length).items():
            shape = (count,) if name == LABEL.name else (group.length, count)
            inputs[name] = value if np.shape(value) == shape else np.broadcast_to(value, shape)
        return inputs

    def minimisers(
        self, inputs: Mapping[str, Any], state: Array, length: int
    ) -> dict[str, Any]:
        """Displacements of every sector by name, from the stored state of a block."""
        k, sectors = self.kernels, self.kernels.model.sectors
        if not k.eliminated:
            return {
                s.residual.__name__: state[i * length : (i + 1) * length]
                for i, s in enumerate(sectors)
            }
        found: dict[str, Any] = {}
        if k.has_proximal:
            found[sectors[0].residual.__name__] = state
        readout = k.readout({**inputs, **found}, length)
        found[k.model.readout.residual.__name__] = np.broadcast_to(readout, state.shape)
        return found

    def squared_responses(
        self, group: NodeGroup, state: Array, here: slice, values: Mapping[str, float]
    ) -> Array:
        """Sum over nodes of ``sum_lm (df_al/domega_cm)^2`` for each pair of sectors."""
        size, L = len(self.kernels.model.sectors), group.length
        total = np.zeros((size, size))
        chunk = max(1, int(4e6 / (size * L) ** 2))
        for a in range(here.start, here.stop, chunk):
            part = slice(a, min(a + chunk, here.stop))
            response = self.responses(group, state, part, values)
            total += (response.reshape(-1, size, L, size, L) ** 2).sum(axis=(0, 2, 4))
        return total

    def affordable_responses(self, group: NodeGroup) -> int:
        """How many nodes of a group the replicon may use."""
        size = len(self.kernels.model.sectors) * group.length
        return max(32, int(RESPONSE_WORK / size**3))

    def responses(
        self, group: NodeGroup, state: Array, here: slice, values: Mapping[str, float]
    ) -> Array:
        """``df/domega = -(1 + A V)^-1 A`` per node, ``(nodes, sectors*length, sectors*length)``."""
        L, sectors = group.length, self.kernels.model.sectors
        inputs = self.block_inputs(group, here, values)
        found = self.minimisers(inputs, state[:, here], L)
        displacement = np.concatenate([found[s.residual.__name__] for s in sectors])
        A = proximal.loss_hessian(self.kernels, inputs, displacement, L)
        V = np.repeat([values[s.V.name] for s in sectors], L)
        result: Array = -np.linalg.solve(np.eye(len(V)) + A * V[None, None, :], A)
        return result

    def _search(
        self, inputs: dict[str, Any], found: proximal.Minimum, wanted: Any, tolerance: float,
        length: int, margins: Array, close: float,
    ) -> int:
        """Put global minima of the wanted nodes into ``found`` and ``margins``; count the moved."""
        if not wanted.size:
            return 0
        there = proximal.Minimum(
            found.displacement[:, wanted], found.objective[wanted], found.gradient[wanted]
        )
        best, moved, margins[wanted] = proximal.global_minimum(
            self.kernels, proximal.take(inputs, wanted), there, tolerance, close, length
        )
        found.displacement[:, wanted] = best.displacement
        found.objective[wanted] = best.objective
        found.gradient[wanted] = best.gradient
        return int(np.count_nonzero(moved))
