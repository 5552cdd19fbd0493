"""A CUDA device made of the CPU: generated CUDA compiled as C++, threads run one after another.

It executes the very text that NVRTC compiles, with the launch shape as loops, so what a kernel
computes is tested where there is no GPU. What it cannot see is what needs a GPU: races and speed.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

SHIM = r"""
#include <cmath>
#include <cstring>
#include <cstdint>
using std::fabs; using std::sqrt; using std::sin; using std::cos; using std::acos;
#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
struct shape { unsigned x; };
static shape gridDim, blockDim, blockIdx, threadIdx;
static inline long long __double_as_longlong(double x) {
    long long w; std::memcpy(&w, &x, 8); return w; }
static inline double __longlong_as_double(long long w) {
    double x; std::memcpy(&x, &w, 8); return x; }
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)(((unsigned long long)a * b) >> 32); }
static inline void sincospi(double x, double *s, double *c) {
    *s = std::sin(M_PI * x); *c = std::cos(M_PI * x); }
"""


def compiler() -> str | None:
    return shutil.which("g++") or shutil.which("clang++")


class EmulatedDevice:
    """The interface of ``replica.codegen.cuda.Device`` with NumPy arrays."""

    xp = np

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.count = 0

    def compile(self, source: str):
        launchers = []
        for name, arguments in re.findall(
            r'extern "C" __global__ void (\w+)\(([^)]*)\)', source
        ):
            types = [" ".join(a.split()[:-1]) + "*" * a.count("*", a.rindex(" "))
                     for a in arguments.split(",")]
            values = ", ".join(f"*({t} *)a[{k}]" for k, t in enumerate(types))
            launchers.append(
                f'extern "C" void run_{name}(unsigned blocks, unsigned threads, void **a) {{\n'
                "    gridDim.x = blocks; blockDim.x = threads;\n"
                "    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)\n"
                "        for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x)\n"
                f"            {name}({values});\n}}\n"
            )
        self.count += 1
        code = Path(self.folder.name) / f"kernel{self.count}.cpp"
        code.write_text(SHIM + source + "\n".join(launchers))
        library = code.with_suffix(".so")
        subprocess.run(
            [compiler(), "-O2", "-std=c++17", "-ffp-contract=off", "-Wno-unknown-pragmas",
             "-fpermissive", "-w", "-shared", "-fPIC", "-o", str(library), str(code)], check=True,
        )
        return ctypes.CDLL(str(library))

    def launch(self, module, name, blocks, threads, arguments):
        held = []
        for a in arguments:
            if isinstance(a, np.ndarray):
                assert a.flags.c_contiguous
                held.append(ctypes.c_void_p(a.ctypes.data))
            else:
                held.append(np.ctypeslib.as_ctypes_type(a.dtype)(a))
        pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(h) for h in held))
        getattr(module, f"run_{name}")(ctypes.c_uint(blocks), ctypes.c_uint(threads), pointers)

    def pointer(self, array) -> int:
        return array.ctypes.data

    def host(self, array):
        return array
