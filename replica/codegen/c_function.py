"""A single program compiled from C and called on whole arrays, like its NumPy twin."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from replica.codegen.c_compiler import compile_c
from replica.codegen.c_printer import print_c
from replica.codegen.kernel_source import LANES, cpu_platform
from replica.codegen.names import mangle
from replica.ir.program import Program

_DOUBLES = ctypes.POINTER(ctypes.c_double)


def compile_c_function(program: Program) -> Callable[..., tuple[Any, ...]] | None:
    """``f(inputs..., L)`` as in :func:`replica.codegen.numpy_printer.compile_numpy`.

    Returns ``None`` where there is no working compiler.
    """
    f = print_c(program)
    arrays = [(n, s) for n, s in f.inputs if s != "uniform"]
    numbers = [n for n, s in f.inputs if s == "uniform"]
    calls = []
    for n, s in f.inputs:
        if s == "uniform":
            calls.append(f"numbers[{numbers.index(n)}]")
        else:
            place = f"arrays[{arrays.index((n, s))}]"
            calls.append(f"(const real *){place}" if s == "token" else f"rp_load({place})")
    outputs = [f"(real *)out[{k}]" for k in range(len(f.outputs))]
    text = "\n".join([
        cpu_platform(), f.source,
        "void run(const scalar *const *arrays, const scalar *numbers, scalar *const *out,"
        " int length, scalar *scratch) {",
        "    (void)arrays; (void)numbers;",
        f"    {f.name}({', '.join([*calls, *outputs, 'length', '(real *)scratch'])});",
        "}",
    ])
    library = compile_c(text)
    if library is None:
        return None

    def function(*values: Any) -> tuple[Any, ...]:
        *given, length = values
        named = dict(zip((n for n, _ in f.inputs), given, strict=True))
        count = max((np.shape(named[n])[-1] for n, _ in arrays), default=1)
        uniform = np.array([float(named[n]) for n in numbers] or [0.0])
        scratch = _aligned(max(1, f.scratch_arrays) * length)
        results = [np.empty((length, count) if s == "token" else count) for _, s in f.outputs]
        for a in range(0, count, LANES):
            width = min(LANES, count - a)
            blocks = []
            for n, s in arrays:
                block = _aligned(length if s == "token" else 1)
                block[...] = 1.0
                block[:, :width] = np.atleast_2d(named[n])[:, a : a + width]
                blocks.append(block)
            outs = [_aligned(length if s == "token" else 1) for _, s in f.outputs]
            library.run(
                (_DOUBLES * max(1, len(blocks)))(*(_at(b) for b in blocks)), _at(uniform),
                (_DOUBLES * len(outs))(*(_at(o) for o in outs)), ctypes.c_int(length), _at(scratch),
            )
            for result, o in zip(results, outs, strict=True):
                np.atleast_2d(result)[:, a : a + width] = o[:, :width]
        return tuple(results)

    function.__name__ = mangle(program.name)
    return function


def _aligned(rows: int) -> Any:
    """Uninitialised ``(rows, LANES)`` at an address that vector loads accept."""
    raw = np.empty(rows * LANES + LANES)
    skip = (-raw.ctypes.data // 8) % LANES
    return raw[skip : skip + rows * LANES].reshape(rows, LANES)


def _at(array: Any) -> Any:
    return array.ctypes.data_as(_DOUBLES)
