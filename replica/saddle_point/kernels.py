"""Compiled NumPy kernels of a model, called with named inputs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from replica.codegen.c_compiler import compile_c
from replica.codegen.kernel_source import KernelSource, kernel_source
from replica.codegen.numpy_printer import compile_numpy
from replica.codegen.programs import Programs
from replica.errors import UnsupportedNodeError
from replica.ir.program import Program
from replica.model import Model


@dataclass(frozen=True)
class Compiled:
    """A program and its compiled function."""

    program: Program
    function: Callable[..., tuple[Any, ...]]

    @classmethod
    def of(cls, program: Program) -> Compiled:
        return cls(program, compile_numpy(program))

    def on(self, xp: Any, special: Any) -> Compiled:
        """The same program on arrays of another module (CuPy)."""
        return Compiled(self.program, compile_numpy(self.program, xp, special))

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(n for n, _ in self.program.inputs)

    def __call__(self, values: Mapping[str, Any], length: int) -> tuple[Any, ...]:
        # fields may overflow on the way to a minimum; a bad trial is rejected by its objective
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            return self.function(*(values[n] for n in self.input_names), length)

    def named(self, values: Mapping[str, Any], length: int) -> dict[str, Any]:
        return dict(zip(self.program.outputs, self(values, length), strict=True))


class Kernels:
    """The generated pieces of one model, ready to call."""

    def __init__(self, model: Model, programs: Programs) -> None:
        self.model = model
        self.programs = programs
        self.label = Compiled.of(programs.label) if programs.label else None
        self.cavity = Compiled.of(programs.cavity)
        self.averages = Compiled.of(programs.averages)
        self.conjugates = Compiled.of(programs.conjugates)
        self.overlaps = Compiled.of(programs.overlaps)
        self.free_energy = Compiled.of(programs.free_energy)
        self.observables = Compiled.of(programs.observables)
        self.risk = Compiled.of(programs.risk)
        self._loss = Compiled.of(programs.loss)
        self._hessian = Compiled.of(programs.hessian)
        self._proximal = Compiled.of(programs.proximal) if programs.proximal else None
        self._readout = Compiled.of(programs.readout) if programs.readout else None

    @property
    def node_inputs(self) -> set[str]:
        """Names of everything random that the kernels read."""
        p = self.programs
        used = [p.cavity, p.averages, p.observables, p.readout, p.proximal, p.label]
        return {n for program in used if program for n, s in program.inputs if s != "uniform"}

    @property
    def has_proximal(self) -> bool:
        return self._proximal is not None

    @property
    def eliminated(self) -> bool:
        return self._readout is not None

    @cached_property
    def compiled(self) -> tuple[KernelSource, Any] | None:
        """The kernel source and its library; ``None`` if model or machine do not allow it."""
        source = self.source
        library = None if source is None else compile_c(source.for_cpu())
        if source is None or library is None:
            return None
        library.replica_workspace.restype = ctypes.c_int64
        library.replica_workspace.argtypes = [ctypes.c_int]
        library.replica_sweep.restype = library.replica_response.restype = None
        return source, library

    @cached_property
    def source(self) -> KernelSource | None:
        """The kernel source; ``None`` where the readout is not eliminated."""
        try:
            return kernel_source(self.model, self.programs)
        except UnsupportedNodeError:
            return None

    def proximal(self, inputs: Mapping[str, Any], length: int) -> tuple[Any, Any, Any]:
        assert self._proximal is not None
        objective, gradient, direction = self._proximal(inputs, length)
        shape = inputs[self.model.sectors[0].cavity.__name__].shape
        return objective, _filled(gradient, shape), _filled(direction, shape)

    def readout(self, inputs: Mapping[str, Any], length: int) -> Any:
        assert self._readout is not None
        return self._readout(inputs, length)[0]

    def loss(self, inputs: Mapping[str, Any], length: int) -> tuple[Any, ...]:
        return self._loss(inputs, length)

    def hessian(self, inputs: Mapping[str, Any], length: int) -> dict[str, Any]:
        """Blocks by sector names, each of shape ``(nodes, length, length)``."""
        nodes = inputs[self.model.sectors[0].field_name].shape[-1]
        named = self._hessian.named(inputs, length)
        return {
            n.removeprefix("hessian_"): np.ascontiguousarray(
                np.broadcast_to(v, (length, length, nodes)).transpose(2, 0, 1)
            )
            for n, v in named.items()
        }


def _filled(value: Any, shape: tuple[int, ...]) -> Any:
    """A writable array of the full shape; generated code may leave constants unbroadcast."""
    return value if np.shape(value) == shape else np.broadcast_to(value, shape).copy()
