"""Identifiers that no target reserves, one to one with the names of the symbols."""

from __future__ import annotations


def mangle(name: str) -> str:
    """``in_`` and the name; characters outside [A-Za-z0-9_] and doubled underscores are coded."""
    out = []
    for ch in name:
        if ch.isascii() and ch.isalnum():
            out.append(ch)
        elif ch == "_":
            out.append("_")
        else:
            out.append(f"_u{ord(ch):x}_")
    text = "".join(out)
    # a literal "_u41_" in the name must not read as a coded character
    return ("in_" if text == name and "_u" not in name else f"in{len(name)}_") + text
