"""``replica doctor``."""

from __future__ import annotations

from typing import Any

import click

from replica.cli.output import document


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(as_json: bool) -> int:
    """Say what this machine offers, which backends work, and what auto chooses."""
    found = examine()
    if as_json:
        click.echo(document({}, [], found))
        return 0
    for section in ("versions", "compiler", "cuda"):
        click.echo(section)
        for name, value in found[section].items():
            click.echo(f"  {name:<18}{'-' if value is None else value}")
    click.echo("backends")
    for name, state in found["backends"].items():
        click.echo(f"  {name:<18}{'works' if state['works'] else 'no'}: {state['why']}")
    click.echo(f"auto chooses {found['auto']['backend']}: {found['auto']['why']}")
    return 0


def examine() -> dict[str, Any]:
    """Versions, compilers, devices, backends and the choice of ``auto``."""
    import os
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import replica
    from replica.cache import cache_folder
    from replica.codegen.c_compiler import (
        compiler_version,
        find_compilers,
        working_compiler,
    )
    from replica.codegen.cuda import find_device
    from replica.codegen.nvrtc import nvrtc_version

    def installed(name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    works = working_compiler()
    compiler = works or next(iter(find_compilers()), None)
    device, found = find_device()
    compiled = "generated C, compiled once and cached" if works else (
        "no C compiler was found (CC, cc, gcc, clang)" if compiler is None
        else f"{' '.join(compiler)} does not build a shared library with vector extensions"
    )
    auto = {
        "backend": "c" if works else "numpy",
        "why": "a C compiler works; cuda runs when asked for" if works else compiled,
    }
    return {
        "versions": {
            "replica": replica.__version__, "python": platform.python_version(),
            **{n: installed(n) for n in ("numpy", "scipy", "sympy", "mpmath", "cupy-cuda12x",
                                         "cupy-cuda13x")},
            "cores": os.cpu_count(),
        },
        "compiler": {
            "path": " ".join(compiler) if compiler else None,
            "version": compiler_version(compiler) if compiler else None,
            "cache": str(cache_folder()),
        },
        "cuda": {"device": found, "nvrtc": nvrtc_version(), **_driver(device)},
        "backends": {
            "c": {"works": works is not None, "why": compiled},
            "numpy": {"works": True, "why": "always there"},
            "cuda": {"works": device is not None, "why": found},
            "mpmath": {"works": True, "why": "reference for few nodes"},
        },
        "auto": auto,
    }


def _driver(device: Any) -> dict[str, Any]:
    if device is None:
        return {"driver": None, "runtime": None}
    runtime = device.xp.cuda.runtime
    return {"driver": runtime.driverGetVersion(), "runtime": runtime.runtimeGetVersion()}
