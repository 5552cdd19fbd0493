"""mpmath source from a program: one sample, tokens are lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy as sp

from replica.codegen.names import mangle
from replica.errors import UnsupportedNodeError
from replica.ir.program import Instruction, Program
from replica.ir.table import BY_NAME

_BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_SUBSCRIPT = {"uniform": "", "node": "", "token": "[l]", "row": "[l]", "col": "[m]",
              "pair": "[l][m]"}


def print_mpmath(program: Program, describe: Callable[[Any], str] | None = None) -> str:
    """Source of a function ``program.name(inputs..., L)`` that returns the outputs in order.

    ``describe`` gives the comment for an expression.
    """
    arguments = ", ".join([mangle(n) for n, _ in program.inputs] + ["L"])
    lines = [f"def {program.name}({arguments}):"]
    for i in program.instructions:
        origin = program.origins.get(i.id)
        note = "" if describe is None or origin is None else describe(origin)
        lines.append(f"    t{i.id} = {_line(program, i)}" + (f"  # {note}" if note else ""))
    lines.append("    return (" + "".join(f"t{v}, " for v in program.outputs.values()) + ")")
    return "\n".join(lines) + "\n"


def _line(program: Program, i: Instruction) -> str:
    whole = [f"t{k}" for k in i.args]
    if i.op == "const":
        return _constant(i.data)
    if i.op == "input":
        return mangle(i.data)
    if i.op in ("softmax", "centre"):
        return f"{i.op}({', '.join(whole)})"
    if i.op == "logsumexp":
        return f"logsumexp({whole[0]})"
    if i.op == "token_sum":
        return f"total({whole[0]})"
    if i.op == "pick":
        return f"{whole[0]}[0]"
    if i.op in ("row", "col"):
        return whole[0]
    if i.op == "length":
        return "rational(L, 1)"
    if i.op == "relevant":
        return "[rational(int(l == 0), 1) for l in range(L)]"
    if i.op == "eye":
        return "[[rational(int(l == m), 1) for m in range(L)] for l in range(L)]"
    a = [f"t{k}{_SUBSCRIPT[program.instructions[k].shape]}" for k in i.args]
    if i.op in _BINARY:
        text = f"{a[0]} {_BINARY[i.op]} {a[1]}"
    elif i.op == "neg":
        text = f"-{a[0]}"
    elif i.op == "sqrt":
        text = f"sqrt({a[0]})"
    elif i.op in ("maximum", "minimum"):
        text = f"{i.op}({a[0]}, {a[1]})"
    elif i.op == "call":
        text = f"{BY_NAME[i.data].mpmath}({a[0]})"
    else:
        raise UnsupportedNodeError(i.op)
    if i.shape == "token":
        return f"[{text} for l in range(L)]"
    if i.shape in ("pair", "row", "col"):
        if i.shape == "pair":
            return f"[[{text} for m in range(L)] for l in range(L)]"
        return f"[{text} for {'l' if i.shape == 'row' else 'm'} in range(L)]"
    return text


def _constant(value: Any) -> str:
    value = sp.sympify(value)
    if value.is_Rational:
        return f"rational({value.p}, {value.q})"
    if value is sp.pi:
        return "+pi"
    if value is sp.E:
        return "exp(rational(1, 1))"
    raise UnsupportedNodeError(value)


def compile_mpmath(program: Program) -> Callable[..., tuple[Any, ...]]:
    """The generated function; it works at mpmath's precision at the time of the call."""
    import mpmath as mp

    from replica.codegen import mpmath_runtime

    namespace: dict[str, Any] = {n: getattr(mpmath_runtime, n) for n in mpmath_runtime.__all__}
    namespace["pi"] = mp.pi
    exec(
        compile(print_mpmath(program), f"<generated {program.name}>", "exec"), namespace
    )
    function: Callable[..., tuple[Any, ...]] = namespace[program.name]
    return function
