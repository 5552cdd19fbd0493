"""Every generated CUDA kernel compiles for two architectures, with no GPU in sight."""

import pytest

from derivations.slr import single_location
from replica.api import derive_model
from replica.codegen.kernel_source import kernel_source
from replica.codegen.nvrtc import CudaCompileError, compile_cubin, compile_ptx, find_nvrtc
from tests.conftest import programs_of

pytestmark = pytest.mark.skipif(find_nvrtc() is None, reason="no CUDA run-time compiler")
ARCHITECTURES = ("sm_80", "sm_90")


def source_of(activation, task="spiked"):
    model = derive_model(single_location(task, activation)).model
    return kernel_source(model, programs_of(activation, task))


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("single", [False, True], ids=["double", "single"])
@pytest.mark.parametrize("task", ["spiked", "max"])
def test_every_kernel_compiles(activation, task, single, architecture):
    source = source_of(activation, task)
    for length in (None, 3) if task == "spiked" else (3,):
        cubin = compile_cubin(source.for_cuda(length, single), architecture)
        assert cubin.startswith(b"\x7fELF")
        assert b"replica_sweep" in cubin
        assert b"replica_response" in cubin


def test_single_precision_stays_single(activation):
    ptx = compile_ptx(source_of(activation).for_cuda(2, single=True), "compute_80")
    assert ".f32" in ptx
    assert ".f64" not in ptx


def test_no_headers_and_no_named_constants(activation):
    source = source_of(activation).for_cuda()
    assert "#include" not in source
    for name in ("M_PI", "M_E", "INFINITY", "NAN", "pow("):
        assert name not in source.replace("INFINITE", "")


def test_a_broken_kernel_is_an_error_with_the_compilers_log():
    with pytest.raises(CudaCompileError, match="unheard"):
        compile_cubin('extern "C" __global__ void f(double *x) { *x = unheard; }', "sm_80")
