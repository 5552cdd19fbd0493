"""Which engine runs a problem, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replica.errors import UsageError
from replica.saddle_point.kernels import Kernels
from replica.saddle_point.nodes import NodeSet
from replica.saddle_point.sweep import NumpyEngine
from replica.saddle_point.workers import Workers

BACKENDS = ("auto", "c", "numpy", "cuda", "mpmath")


@dataclass(frozen=True)
class Choice:
    """An engine's name and, where it is not the expected one, a line for the user."""

    name: str
    note: str = ""


def choose(kernels: Kernels, wanted: str, nodes: int) -> Choice:
    """The engine for a model on this machine.

    ``auto`` is generated C where a compiler works and NumPy elsewhere. CUDA runs only when asked
    for: no figures from a device say yet where it is the faster one.

    Raises
    ------
    UsageError
        If the wanted engine cannot be had here; it says why.
    """
    if wanted not in BACKENDS:
        raise UsageError("backend", wanted, ", ".join(BACKENDS))
    if wanted == "mpmath":
        from replica.saddle_point.mpmath_engine import MAX_NODES

        if nodes > MAX_NODES:
            raise UsageError("nodes", nodes, f"at most {MAX_NODES} with the mpmath backend")
        return Choice("mpmath")
    if wanted == "numpy":
        return Choice("numpy")
    if kernels.source is None:
        if wanted == "auto":
            return Choice("numpy")
        raise UsageError("backend", wanted, "numpy: the readout of this model is not eliminated")
    if wanted == "cuda":
        from replica.codegen.cuda import find_device

        device, found = find_device()
        if device is None:
            raise UsageError("backend", wanted, f"c or numpy here: {found}")
        return Choice("cuda")
    if kernels.compiled is not None:
        return Choice("c")
    if wanted == "c":
        raise UsageError("backend", wanted, "numpy: no C compiler works here (CC, cc, gcc, clang)")
    return Choice("numpy", "no C compiler works here: NumPy is used, which is much slower")


def build(
    choice: Choice, kernels: Kernels, nodes: NodeSet, values: Mapping[str, float],
    workers: Workers,
) -> NumpyEngine:
    """The chosen engine on a node set."""
    if choice.name == "c":
        from replica.saddle_point.c_engine import CEngine

        engine: NumpyEngine | None = CEngine.build(kernels, nodes, values, workers)
    elif choice.name == "cuda":
        from replica.codegen.cuda import find_device
        from replica.saddle_point.cuda_engine import CudaEngine

        device, _ = find_device()
        assert device is not None
        engine = CudaEngine.build(kernels, nodes, values, device)
    elif choice.name == "mpmath":
        from replica.saddle_point.mpmath_engine import MpmathEngine

        engine = MpmathEngine(kernels, nodes, values, workers)
    else:
        engine = NumpyEngine(kernels, nodes, values, workers)
    assert engine is not None
    return engine
