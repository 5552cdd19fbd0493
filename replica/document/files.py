"""Files written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from replica.errors import UsageError


def is_writable(folder: Path) -> bool:
    """Whether something can be made in an existing folder; permissions alone do not tell."""
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".replica."):
            return True
    except OSError:
        return False


def check_folder(field: str, folder: Path) -> None:
    """Raise ``UsageError`` unless the folder exists or can be made, and can be written."""
    existing = folder
    try:
        while not existing.exists() and existing.parent != existing:
            existing = existing.parent
        usable = existing.is_dir() and is_writable(existing)
    except OSError as error:  # a name too long
        allowed = f"a folder that can be written ({error.strerror})"
        raise UsageError(field, folder, allowed) from None
    if not usable:
        raise UsageError(field, folder, "a folder that can be written")


def check_file(field: str, path: str) -> Path:
    """The file to write, links followed. Devices, folders and the like are refused."""
    target = Path(os.path.realpath(path))
    folder = target.parent
    try:
        usable = not target.is_symlink() and (target.is_file() or not target.exists())
    except OSError as error:  # a name too long
        raise UsageError(field, path, f"a file that can be written ({error.strerror})") from None
    if not (usable and folder.is_dir() and is_writable(folder)):
        raise UsageError(field, path, "a file in an existing folder that can be written")
    return target


def write_atomically(target: Path, text: str) -> None:
    """Write a whole file or nothing."""
    # the temporary name must not be too long where the target's is not
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:60]}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        umask = os.umask(0)
        os.umask(umask)
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~umask
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
