"""Compile generated CUDA without a GPU: NVIDIA's run-time compiler through ctypes.

The library comes from NVIDIA's wheel, from CuPy's dependencies, or from the system.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from functools import cache
from pathlib import Path
from typing import Any

from replica.errors import ReplicaError

OPTIONS = ("--std=c++14", "--fmad=true", "-default-device")


class CudaCompileError(ReplicaError):
    """The generated CUDA did not compile; the message is the compiler's log."""


@cache
def find_nvrtc() -> Any | None:
    """The loaded library, or ``None``."""
    for folder in _wheel_folders():
        for builtins in sorted(folder.glob("libnvrtc-builtins.so.*")):
            _load(str(builtins))
        for library in sorted(folder.glob("libnvrtc.so.*")):
            found = _load(str(library))
            if found is not None:
                return found
    name = ctypes.util.find_library("nvrtc")
    return _load(name) if name else None


def _wheel_folders() -> list[Path]:
    try:
        import nvidia  # a namespace package shared by NVIDIA's wheels
    except ImportError:
        return []
    folders: list[Path] = []
    for root in nvidia.__path__:
        folders += sorted(Path(root).glob("*/lib"), reverse=True)
    return folders


def _load(path: str) -> Any | None:
    try:
        return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return None


def nvrtc_version() -> str | None:
    """Version of the run-time compiler, or ``None`` if there is none."""
    library = find_nvrtc()
    if library is None:
        return None
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def compile_cubin(source: str, architecture: str) -> bytes:
    """Machine code for an architecture such as ``sm_90``.

    Raises
    ------
    CudaCompileError
        With the compiler's log, or if there is no run-time compiler.
    """
    return _compile(source, architecture, "CUBIN")


def compile_ptx(source: str, architecture: str) -> str:
    """PTX for a virtual architecture such as ``compute_80``; raises as :func:`compile_cubin`."""
    return _compile(source, architecture, "PTX").rstrip(b"\0").decode()


def _compile(source: str, architecture: str, kind: str) -> bytes:
    library = find_nvrtc()
    if library is None:
        raise CudaCompileError("no CUDA run-time compiler (libnvrtc) was found")
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), b"replica.cu", 0, None, None
    )
    try:
        options = [o.encode() for o in (*OPTIONS, f"--gpu-architecture={architecture}")]
        status = library.nvrtcCompileProgram(
            program, len(options), (ctypes.c_char_p * len(options))(*options)
        )
        if status != 0:
            raise CudaCompileError(_log(library, program))
        size = ctypes.c_size_t()
        getattr(library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size))
        result = ctypes.create_string_buffer(size.value)
        getattr(library, f"nvrtcGet{kind}")(program, result)
        return result.raw
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _log(library: Any, program: Any) -> str:
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(max(1, size.value))
    library.nvrtcGetProgramLog(program, log)
    return log.value.decode(errors="replace")
