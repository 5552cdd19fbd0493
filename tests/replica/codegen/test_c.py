import os
import subprocess
import sys

import numpy as np
import pytest
import sympy as sp

from replica.cache import cache_folder
from replica.codegen.c_compiler import compile_c, find_compilers
from replica.codegen.c_function import compile_c_function
from replica.codegen.c_printer import literal, print_c
from replica.errors import UnsupportedNodeError
from replica.ir.lower import lower
from replica.symbolic import primitives as prim
from tests.conftest import programs_of
from tests.expressions import INPUTS, x

pytestmark = pytest.mark.skipif(not find_compilers(), reason="no C compiler")

def test_exponential_over_its_whole_range():
    function = compile_c_function(lower("f", {"out": sp.exp(x)}, INPUTS))
    grid = np.concatenate([np.linspace(-745, 709.7, 20001), [-800.0, 0.0, 1e-300, -1e-17]])
    mine = function(grid, 1)[0]
    assert np.allclose(mine, np.exp(grid), rtol=4e-16, atol=5e-324)
    assert function(np.array([1000.0]), 1)[0][0] == np.inf


def test_literals_are_typed_and_complete():
    assert literal(sp.Integer(3)) == "C(3.0)"
    assert float(literal(sp.pi)[2:-1]) == np.pi
    assert literal(sp.Rational(1, 3)) == "C(0.33333333333333331)"


def test_no_headers_macros_or_pow_in_generated_bodies():
    for piece in ("proximal", "readout", "averages"):
        source = print_c(getattr(programs_of("erf"), piece)).source
        assert "#include" not in source
        assert "M_PI" not in source
        assert "pow(" not in source


def test_pairs_of_tokens_are_refused():
    with pytest.raises(UnsupportedNodeError):
        print_c(programs_of("softmax").hessian)


def test_the_same_source_is_built_once(tmp_path, monkeypatch):
    monkeypatch.setenv("REPLICA_CACHE", str(tmp_path))
    text = "double f(void) { return 1.5; }"
    assert compile_c(text) is not None
    built = list(tmp_path.glob("*.so"))
    stamp = built[0].stat().st_mtime_ns
    assert compile_c(text) is not None
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".sha256", ".so"]
    assert built[0].stat().st_mtime_ns == stamp
    assert cache_folder() == tmp_path


def test_many_processes_fill_a_cold_cache(tmp_path):
    script = (
        "from replica.codegen.c_compiler import compile_c;"
        "print(compile_c('double f(double x) { return 2.0 * x; }') is not None)"
    )
    env = {**os.environ, "REPLICA_CACHE": str(tmp_path)}
    running = [
        subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    assert [p.communicate()[0].strip() for p in running] == ["True"] * 6
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".sha256", ".so"]


def script(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_compilers_that_fail_are_no_compilers(tmp_path, monkeypatch):
    for name in ("cc", "gcc", "clang"):
        script(tmp_path, name, "exit 1")
    monkeypatch.setenv("CC", "cc")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("REPLICA_CACHE", str(tmp_path / "cache"))
    assert len(find_compilers()) == 3
    assert compile_c("double f(void) { return 1.0; }") is None


def test_after_a_compiler_that_fails_comes_the_next(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", str(script(tmp_path, "broken", "exit 1")))
    monkeypatch.setenv("REPLICA_CACHE", str(tmp_path / "cache"))
    assert compile_c("double f(void) { return 1.0; }") is not None


def test_the_chosen_compiler_keeps_its_arguments(tmp_path, monkeypatch):
    real, seen = find_compilers()[0][0], tmp_path / "seen"
    chosen = script(tmp_path, "mine", f'echo "$@" >> "{seen}"; exec "{real}" "$@"')
    monkeypatch.setenv("CC", f"{chosen} -O2 -DTHREE=3.0")
    monkeypatch.setenv("REPLICA_CACHE", str(tmp_path / "cache"))
    assert compile_c("double f(void) { return THREE; }") is not None
    assert "-O2 -DTHREE=3.0" in seen.read_text()


@pytest.mark.parametrize("command", ["gcc 'unfinished", "   ", "no-such-compiler -O2"])
def test_a_compiler_variable_that_means_nothing_is_passed_over(command, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    usual = find_compilers()
    monkeypatch.setenv("CC", command)
    assert find_compilers() == usual

def test_a_torn_library_is_built_again(tmp_path, monkeypatch):
    monkeypatch.setenv("REPLICA_CACHE", str(tmp_path))
    text = "double g(void) { return 2.5; }"
    compile_c(text)
    (library,) = tmp_path.glob("*.so")
    whole = library.read_bytes()
    library.unlink()  # a new file: the loaded one stays mapped
    library.write_bytes(whole[: len(whole) // 2])
    assert compile_c(text) is not None
    assert library.read_bytes() == whole or len(library.read_bytes()) > len(whole) // 2


@pytest.mark.parametrize("content", [b"no program", b"#!/bin/sh\nprintf '\\377\\376'; exit 1\n"])
def test_a_compiler_that_is_no_program_is_no_compiler(tmp_path, monkeypatch, content):
    for name in ("cc", "gcc", "clang"):
        fake = tmp_path / name
        fake.write_bytes(content)
        fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert compile_c("double f(void) { return 1.0; }") is None


def test_an_unusable_cache_folder_is_no_obstacle(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("REPLICA_CACHE", str(blocked / "below"))
    assert compile_c("double f(void) { return 3.0; }") is not None


def test_nan_and_infinity_pass_through():
    for expr in (prim.softplus(x), prim.log_softplus(x), sp.log(x), sp.exp(x)):
        function = compile_c_function(lower("f", {"out": expr}, INPUTS))
        found = function(np.array([np.nan, np.inf]), 1)[0]
        assert np.isnan(found[0])
        assert found[1] == np.inf
