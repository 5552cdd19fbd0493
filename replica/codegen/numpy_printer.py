"""NumPy source from a program: whole arrays, tokens on axis 0, samples on the last axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy as sp

from replica.codegen.names import mangle
from replica.errors import UnsupportedNodeError
from replica.ir.program import Instruction, Program
from replica.ir.table import BY_NAME

_BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def print_numpy(program: Program, describe: Callable[[Any], str] | None = None) -> str:
    """Source of a function ``program.name(inputs..., L)`` that returns the outputs in order.

    ``describe`` gives the comment for an expression.
    """
    arguments = ", ".join([mangle(n) for n, _ in program.inputs] + ["L"])
    lines = [f"def {program.name}({arguments}):"]
    for i in program.instructions:
        origin = program.origins.get(i.id)
        note = "" if describe is None or origin is None else describe(origin)
        lines.append(f"    t{i.id} = {_expression(program, i)}" + (f"  # {note}" if note else ""))
    lines.append("    return (" + "".join(f"t{v}, " for v in program.outputs.values()) + ")")
    return "\n".join(lines) + "\n"


def _expression(program: Program, i: Instruction) -> str:
    a = [f"t{k}" for k in i.args]
    if i.op in _BINARY:
        return f"{a[0]} {_BINARY[i.op]} {a[1]}"
    if i.op == "const":
        return repr(float(i.data.evalf(20))) if isinstance(i.data, sp.Expr) else repr(i.data)
    if i.op == "input":
        return mangle(i.data)
    if i.op == "neg":
        return f"-{a[0]}"
    if i.op in ("maximum", "minimum"):
        return f"{i.op}({a[0]}, {a[1]})"
    if i.op in ("sqrt", "softmax", "logsumexp"):
        return f"{i.op}({a[0]})"
    if i.op == "call":
        return f"{BY_NAME[i.data].numpy}({a[0]})"
    if i.op == "token_sum":
        return f"{a[0]}.sum(axis=0)"
    if i.op == "row_sum":
        return f"{a[0]}.sum(axis=0)"
    if i.op == "centre":
        return f"centre({a[0]}, {a[1]})"
    if i.op == "pick":
        return f"{a[0]}[0]"
    if i.op == "row":
        return f"{a[0]}[:, None, :]"
    if i.op == "col":
        return f"{a[0]}[None, :, :]"
    if i.op == "length":
        return "float(L)"
    if i.op == "relevant":
        return "(arange(L) == 0)[:, None] * 1.0"
    if i.op == "eye":
        return "eye(L)[:, :, None]"
    raise UnsupportedNodeError(i.op)


def compile_numpy(program: Program, xp: Any = None, special: Any = None) -> Callable[
    ..., tuple[Any, ...]
]:
    """The generated function, ready to call on arrays of the module ``xp`` (NumPy if omitted).

    ``special`` is the module of special functions that goes with ``xp``.
    """
    from replica.codegen.numpy_runtime import namespace

    if xp is None:
        import numpy
        import scipy.special

        xp, special = numpy, scipy.special
    names = namespace(xp, special)
    source = print_numpy(program)
    exec(compile(source, f"<generated {program.name}>", "exec"), names)
    function: Callable[..., tuple[Any, ...]] = names[program.name]
    return function
