"""The GPU through CuPy: whether there is one, arrays on it, and launches of generated kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from replica.codegen.nvrtc import OPTIONS


class Device(Protocol):
    """What the CUDA engine needs of a device; tests provide one that runs on the CPU."""

    xp: Any
    """Array module (CuPy, or NumPy in tests)."""

    def compile(self, source: str) -> Any:
        """A module of kernels."""
        ...

    def launch(
        self, module: Any, name: str, blocks: int, threads: int, arguments: Sequence[Any]
    ) -> None:
        """Run a kernel; arguments are device arrays and NumPy scalars."""
        ...

    def pointer(self, array: Any) -> int:
        """Address of a device array."""
        ...

    def host(self, array: Any) -> Any:
        """A NumPy copy of a device array."""
        ...


class CupyDevice:
    """The current CUDA device."""

    def __init__(self, cupy: Any) -> None:
        self.xp = cupy

    def compile(self, source: str) -> Any:
        options = tuple(o for o in OPTIONS if o != "-default-device")
        return self.xp.RawModule(code=source, backend="nvrtc", options=options)

    def launch(
        self, module: Any, name: str, blocks: int, threads: int, arguments: Sequence[Any]
    ) -> None:
        module.get_function(name)((blocks,), (threads,), tuple(arguments))

    def pointer(self, array: Any) -> int:
        return int(array.data.ptr)

    def host(self, array: Any) -> Any:
        return self.xp.asnumpy(array) if not isinstance(array, np.ndarray) else array


def find_device() -> tuple[CupyDevice | None, str]:
    """The device, or ``None``, and one line that says what was found.

    CuPy imports and even builds kernels without a driver; only counting devices tells.
    """
    try:
        import cupy
    except ImportError:
        return None, "CuPy is not installed (extras cuda12 or cuda13)"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # CuPy's own error class exists only where CuPy does
        return None, f"CuPy {cupy.__version__}, no usable driver: {' '.join(str(error).split())}"
    if count == 0:
        return None, f"CuPy {cupy.__version__}, no CUDA device"
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    name = properties["name"].decode()
    return CupyDevice(cupy), f"{name}, CuPy {cupy.__version__}"
