"""A single program compiled from C and called on whole arrays, like its NumPy twin."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import numpy as np

from replica.codegen.c_compiler import compile_c
from replica.codegen.c_printer import print_c
from replica.codegen.c_source import LANES
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
            calls.append(f"arrays[{arrays.index((n, s))}]")
    outputs = [f"out[{k}]" for k in range(len(f.outputs))]
    text = "\n".join([
        f"#define LANES {LANES}", '#define VECTOR _Pragma("GCC ivdep")',
        files("replica.codegen").joinpath("c_runtime.h").read_text(encoding="utf-8"),
        f.source,
        "void run(const double *const *arrays, const double *numbers, double *const *out, int L,"
        " double *scratch) {",
        "    (void)arrays; (void)numbers;",
        f"    {f.name}({', '.join([*calls, *outputs, 'L', 'scratch'])});",
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
        scratch = np.empty(max(1, f.scratch_arrays) * length * LANES)
        results = [np.empty((length, count) if s == "token" else count) for _, s in f.outputs]
        for a in range(0, count, LANES):
            width = min(LANES, count - a)
            blocks = []
            for n, s in arrays:
                block = np.ones((length, LANES) if s == "token" else (1, LANES))
                block[:, :width] = np.atleast_2d(named[n])[:, a : a + width]
                blocks.append(block)
            outs = [np.empty((length if s == "token" else 1, LANES)) for _, s in f.outputs]
            library.run(
                (_DOUBLES * max(1, len(blocks)))(*(_at(b) for b in blocks)), _at(uniform),
                (_DOUBLES * len(outs))(*(_at(o) for o in outs)), ctypes.c_int(length), _at(scratch),
            )
            for result, o in zip(results, outs, strict=True):
                np.atleast_2d(result)[:, a : a + width] = o[:, :width]
        return tuple(results)

    function.__name__ = mangle(program.name)
    return function


def _at(array: Any) -> Any:
    return array.ctypes.data_as(_DOUBLES)
