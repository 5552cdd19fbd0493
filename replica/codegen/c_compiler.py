"""Compile generated C once and keep it: cached by content, safe with many processes."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from replica.cache import cache_folder

FLAGS = (
    "-O3", "-march=native", "-std=gnu11", "-ffp-contract=fast", "-fno-math-errno",
    "-fno-trapping-math", "-Wno-psabi", "-shared", "-fPIC",
)


Command = tuple[str, ...]
"""A compiler's path, and the arguments that ``$CC`` gives it."""


def find_compilers() -> tuple[Command, ...]:
    """``$CC`` with its arguments, ``cc``, ``gcc`` and ``clang``: those that exist."""
    try:
        wanted = shlex.split(os.environ.get("CC", ""))
    except ValueError:  # a quotation that does not end
        wanted = []
    found = [
        (path, *arguments)
        for name, *arguments in ([wanted] if wanted else []) + [["cc"], ["gcc"], ["clang"]]
        if (path := shutil.which(name))
    ]
    return tuple(dict.fromkeys(found))


def working_compiler() -> Command | None:
    """The first compiler that builds generated C which loads here."""
    probe = (
        "typedef double vector __attribute__((vector_size(64)));\n"
        "void replica_probe(vector *x) { *x = *x + 1.0; }\n"
    )
    return next((c for c in find_compilers() if _compile(probe, c) is not None), None)


def compile_c(source: str) -> ctypes.CDLL | None:
    """The library by the first compiler that builds and loads it, or ``None``.

    The cache key is a hash of the source, the flags, the compiler and its version, and the
    processor (``-march=native``). A cold cache filled by two processes at once is filled twice
    with the same content and renamed into place. A library whose content does not match the hash
    kept beside it is built again.
    """
    for compiler in find_compilers():
        library = _compile(source, compiler)
        if library is not None:
            return library
    return None


def _compile(source: str, compiler: Command) -> ctypes.CDLL | None:
    try:
        key = hashlib.sha256(
            "\0".join([source, *FLAGS, *compiler, _version(compiler), _processor()]).encode()
        ).hexdigest()[:32]
        try:
            folder = cache_folder()
            folder.mkdir(parents=True, exist_ok=True)
            target = folder / f"{key}.so"
            if not _intact(target):
                _build(compiler, source, folder, target)
            return ctypes.CDLL(str(target))
        except OSError:  # no cache to be had: build where only this process looks
            with tempfile.TemporaryDirectory() as private:
                target = Path(private) / f"{key}.so"
                _build(compiler, source, Path(private), target)
                return ctypes.CDLL(str(target))
    except (OSError, subprocess.SubprocessError):
        return None


def _intact(target: Path) -> bool:
    """Whether a cached library is whole; loading a torn one would end the process."""
    try:
        expected = target.with_suffix(".sha256").read_text(encoding="ascii").strip()
        return hashlib.sha256(target.read_bytes()).hexdigest() == expected
    except (OSError, UnicodeDecodeError):
        return False


def _build(compiler: Command, source: str, folder: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as work:
        code, library, digest = (Path(work) / n for n in ("kernel.c", "kernel.so", "kernel.sha256"))
        code.write_text(source, encoding="utf-8")
        subprocess.run(
            [*compiler, *FLAGS, "-o", str(library), str(code), "-lm"], check=True,
            capture_output=True, timeout=300,
        )
        digest.write_text(hashlib.sha256(library.read_bytes()).hexdigest(), encoding="ascii")
        os.replace(library, target)
        os.replace(digest, target.with_suffix(".sha256"))


def compiler_version(compiler: Command) -> str:
    """First line of what the compiler says of itself."""
    try:
        return next(iter(_version(compiler).splitlines()), "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _version(compiler: Command) -> str:
    found = subprocess.run(
        [compiler[0], "--version"], capture_output=True, text=True, check=False, timeout=60,
        errors="replace",
    )
    return found.stdout


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            return next((line for line in stream if line.startswith("flags")), "")
    except OSError:
        import platform

        return platform.processor()
