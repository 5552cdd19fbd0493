"""A folder of results that can be made again: compiled kernels, written derivations."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def cache_folder() -> Path:
    """``$REPLICA_CACHE``, or ``replica`` in the user's cache folder. Safe to delete."""
    chosen = os.environ.get("REPLICA_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "replica"


def remembered(
    words: Mapping[str, Any], packages: tuple[str, ...], make: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """What ``make`` returns, read from the cache where the same words were asked before.

    The key holds the words, the source of the named packages and SymPy's version, so that a
    change of the code is a change of the key. A torn or missing entry is made again; without a
    writable folder nothing is kept. Errors are not remembered.
    """
    key = hashlib.sha256(
        json.dumps([words, _sources(packages), _sympy_version()], sort_keys=True).encode()
    ).hexdigest()[:32]
    target = cache_folder() / f"{key}.json"
    try:
        digest, _, text = target.read_text(encoding="utf-8").partition("\n")
        if hashlib.sha256(text.encode()).hexdigest() == digest:
            found: dict[str, Any] = json.loads(text)
            return found
    except (OSError, UnicodeDecodeError):
        pass
    made = make()
    text = json.dumps(made)
    try:
        from replica.document.files import write_atomically

        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")
    except OSError:
        pass
    return made


def _sources(packages: tuple[str, ...]) -> str:
    """A hash of every module of the packages."""
    from importlib.util import find_spec

    whole = hashlib.sha256()
    for package in packages:
        spec = find_spec(package)
        folders = (spec.submodule_search_locations if spec else None) or ()
        for path in sorted(p for f in folders for p in Path(f).rglob("*.py")):
            whole.update(path.name.encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


def _sympy_version() -> str:
    from importlib.metadata import version

    return version("sympy")
