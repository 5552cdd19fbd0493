"""Readable listings that still compile and run."""

import pytest

from replica.codegen.c_compiler import compile_c, find_compilers
from replica.codegen.listing import TARGETS, listing
from replica.codegen.nvrtc import compile_cubin, find_nvrtc
from replica.document.text_printer import to_text
from replica.errors import UsageError
from tests.conftest import derived


def text_of(target, name="softplus", length=3):
    return listing(derived(name), target, length, to_text)


@pytest.mark.parametrize("target", TARGETS)
def test_lines_say_which_equation_they_come_from(target):
    text = text_of(target)
    assert "from step 'attention field'" in text
    assert "sum_l(omega_v[l]*sigma[l])" in text
    mark = ";  /* " if target in ("c", "cuda") else "  # "
    commented = [line for line in text.splitlines() if mark in line and " = " in line]
    assert len(commented) > 60  # and at the lines that compute it
    assert any("sigma[" in line.split(mark)[1] for line in commented)
    assert "mhat_k = " in text


@pytest.mark.skipif(not find_compilers(), reason="no C compiler")
def test_the_c_listing_compiles(activation):
    assert compile_c(text_of("c", activation)) is not None


@pytest.mark.skipif(find_nvrtc() is None, reason="no CUDA run-time compiler")
def test_the_cuda_listing_compiles():
    assert compile_cubin(text_of("cuda"), "sm_80")


def test_the_python_listings_run():
    for target in ("numpy", "mpmath"):
        names = {}
        exec(compile(text_of(target), target, "exec"), names)
        for function in ("cavity", "proximal", "averages", "conjugates", "overlaps"):
            assert callable(names[function])


def test_an_unknown_target_is_refused():
    with pytest.raises(UsageError) as caught:
        text_of("fortran")
    assert caught.value.field == "target"
