"""Kernel source from a program: a function on ``real`` values, tokens in loops.

``real`` is a vector of lanes on the CPU and one number on the GPU, so one body serves both. The
number of tokens is a run-time argument. Token values are arrays over tokens. Instructions are
ordered by *level*: the number of reductions over tokens that must be complete before they can run.
Each level is one loop over tokens; what a later level needs is stored in scratch memory.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import sympy as sp

from replica.codegen.names import mangle
from replica.errors import UnsupportedNodeError
from replica.ir.program import Instruction, Program
from replica.ir.table import BY_NAME

_BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


@dataclass(frozen=True)
class CFunction:
    """A generated function: its source, argument names in order, and scratch arrays it needs.

    Arguments: inputs (``const real *`` for token, ``real`` for node, ``scalar`` for uniform), then
    outputs (``real *``), then ``int length`` and ``real *scratch`` of ``scratch_arrays`` token
    arrays.
    """

    name: str
    source: str
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    scratch_arrays: int


@dataclass
class _Level:
    """Statements of one level."""

    node: list[str] = field(default_factory=list)
    token: list[str] = field(default_factory=list)


Describe = Callable[[Any], str]
"""Text of an expression, for comments; empty for none."""


def print_c(program: Program, describe: Describe | None = None) -> CFunction:
    """Print one program, with comments if ``describe`` is given.

    Raises ``UnsupportedNodeError`` for values over pairs of tokens.
    """
    return _Printer(program, describe).run()


class _Printer:
    def __init__(self, program: Program, describe: Describe | None = None) -> None:
        self.program = program
        self.describe = describe
        self.level: dict[int, int] = {}
        self.scratch: dict[str, int] = {}
        self.stages: dict[int, _Level] = {}
        self.declarations: list[str] = []
        self.uniform: list[str] = []

    def run(self) -> CFunction:
        p = self.program
        for i in p.instructions:
            self.level[i.id] = self._level(i)
        self.needed_later = self._stored()
        for i in p.instructions:
            self._emit(i)
        outputs = []
        for name, number in p.outputs.items():
            i = p.instructions[number]
            shape = "token" if i.shape == "token" else "node"
            outputs.append((name, shape))
            stage = self._stage(self.level[number])
            target = f"out_{mangle(name)}"
            if shape == "token":
                stage.token.append(f"{target}[AT(l)] = {self._real(number)};")
            else:
                stage.node.append(f"*{target} = {self._real(number)};")
        return CFunction(
            p.name, self._source(outputs), tuple((n, s) for n, s in p.inputs), tuple(outputs),
            len(self.scratch),
        )

    # -- levels ----------------------------------------------------------------------------------

    def _level(self, i: Instruction) -> int:
        below = max((self.level[a] for a in i.args), default=0)
        if i.op in ("softmax", "centre", "logsumexp"):
            return below + 2
        if i.op in ("token_sum", "pick"):
            return below + 1
        if i.shape in ("row", "col", "pair"):
            raise UnsupportedNodeError(i.op)
        return below

    def _stored(self) -> set[int]:
        """Token values that a later level reads."""
        found = set()
        for i in self.program.instructions:
            for a in i.args:
                argument = self.program.instructions[a]
                if argument.shape != "token" or argument.op == "input":
                    continue
                used_until = self.level[i.id]
                if i.op in ("token_sum", "pick"):
                    used_until -= 1
                elif i.op in ("softmax", "centre", "logsumexp"):
                    used_until -= 1  # its second pass
                if used_until > self.level[a]:
                    found.add(a)
        return found

    def _stage(self, level: int) -> _Level:
        return self.stages.setdefault(level, _Level())

    # -- instructions ----------------------------------------------------------------------------

    def _slot(self, name: str) -> str:
        """A scratch array, addressed at the current token."""
        number = self.scratch.setdefault(name, len(self.scratch))
        return f"scratch[AT({number}*TOKENS + l)]"

    def _value(self, number: int, level: int | None = None) -> str:
        """How an instruction's value is read in the loops of ``level``."""
        i = self.program.instructions[number]
        if i.shape == "uniform":
            return f"t{number}" if i.op != "input" else mangle(i.data)
        if i.shape == "node":
            return mangle(i.data) if i.op == "input" else f"t{number}"
        if i.op == "input":
            return f"{mangle(i.data)}[AT(l)]"
        if level is not None and level > self.level[number]:
            return self._slot(f"t{number}")
        return f"t{number}"

    def _real(self, number: int, level: int | None = None) -> str:
        """The value as a ``real``, whatever its shape."""
        value = self._value(number, level)
        return f"rp_splat({value})" if self.program.instructions[number].shape == "uniform" else (
            value
        )

    def _note(self, i: Instruction) -> str:
        """A comment with the expression that an instruction computes."""
        origin = self.program.origins.get(i.id)
        text = "" if self.describe is None or origin is None else self.describe(origin)
        return f"  /* {text} */" if text else ""

    def _emit(self, i: Instruction) -> None:
        level = self.level[i.id]
        if i.op == "input":
            return
        if i.shape == "uniform":
            self.uniform.append(
                f"const scalar t{i.id} = {self._expression(i, 0)};{self._note(i)}"
            )
            return
        if i.shape == "node":
            self._emit_node(i, level)
            return
        if i.op == "softmax":
            self._softmax(i, level)
        elif i.op == "centre":
            self._centre(i, level)
        else:
            stage = self._stage(level)
            stage.token.append(
                f"const real t{i.id} = {self._expression(i, level)};{self._note(i)}"
            )
        if i.id in self.needed_later:
            self._stage(level).token.append(f"{self._slot(f't{i.id}')} = t{i.id};")

    def _emit_node(self, i: Instruction, level: int) -> None:
        if i.op == "logsumexp":
            self._normaliser(i, level)
            self._stage(level).node.append(f"const real t{i.id} = top{i.id} + rp_log(norm{i.id});")
        elif i.op == "token_sum":
            self.declarations.append(f"real t{i.id} = rp_splat({_ZERO});")
            value = self._value(i.args[0], level - 1)
            self._stage(level - 1).token.append(f"t{i.id} = t{i.id} + {value};{self._note(i)}")
        elif i.op == "pick":
            self.declarations.append(f"real t{i.id} = rp_splat({_ZERO});")
            value = self._value(i.args[0], level - 1)
            self._stage(level - 1).token.append(f"if (l == 0) t{i.id} = {value};")
        else:
            self._stage(level).node.append(
                f"const real t{i.id} = {self._expression(i, level)};{self._note(i)}"
            )

    def _softmax(self, i: Instruction, level: int) -> None:
        n, weight = i.id, self._slot(f"e{i.id}")
        self._normaliser(i, level)
        self._stage(level - 1).token.append(f"{weight} = e{n};")
        self._stage(level).node.append(f"const real inverse{n} = {literal(1)} / norm{n};")
        self._stage(level).token.append(
            f"const real t{n} = {weight} * inverse{n};{self._note(i)}"
        )

    def _normaliser(self, i: Instruction, level: int) -> None:
        """The largest score, then exponentials from there and their sum."""
        u, n = i.args[0], i.id
        self.declarations += [f"real top{n} = rp_splat(-INFINITE);",
                              f"real norm{n} = rp_splat({_ZERO});"]
        score = self._value(u, level - 2)
        self._stage(level - 2).token.append(f"top{n} = rp_max(top{n}, {score});")
        self._stage(level - 1).token += [
            f"const real e{n} = rp_exp({self._value(u, level - 1)} - top{n});",
            f"norm{n} = norm{n} + e{n};",
        ]

    def _centre(self, i: Instruction, level: int) -> None:
        (v, w), n = i.args, i.id
        self.declarations += [f"real largest{n} = rp_splat(-INFINITE);",
                              f"real top{n} = rp_splat({_ZERO});",
                              f"real mean{n} = rp_splat({_ZERO});"]
        first, second, last = (self._stage(level - k) for k in (2, 1, 0))
        value, weight = self._value(v, level - 2), self._value(w, level - 2)
        first.token += [
            f"const mask better{n} = {weight} > largest{n};",
            f"top{n} = rp_select(better{n}, {value}, top{n});",
            f"largest{n} = rp_select(better{n}, {weight}, largest{n});",
        ]
        shifted = self._slot(f"c{n}")
        second.token += [
            f"const real c{n} = {self._value(v, level - 1)} - top{n};",
            f"{shifted} = c{n};",
            f"mean{n} = mean{n} + {self._value(w, level - 1)} * c{n};",
        ]
        last.token.append(f"const real t{n} = {shifted} - mean{n};{self._note(i)}")

    def _expression(self, i: Instruction, level: int) -> str:
        a = [self._value(k, level) for k in i.args]
        if i.op in _BINARY:
            return f"{a[0]} {_BINARY[i.op]} {a[1]}"
        if i.op == "const":
            return literal(i.data)
        if i.op == "neg":
            return f"-{a[0]}"
        if i.op in _FUNCTIONS:
            return self._called(_FUNCTIONS[i.op], i, level)
        if i.op == "call":
            return self._called(BY_NAME[i.data].c, i, level)
        if i.op == "length":
            return "(scalar)TOKENS"
        if i.op == "relevant":
            return f"rp_splat(l == 0 ? {literal(1)} : {_ZERO})"
        raise UnsupportedNodeError(i.op)

    def _called(self, function: str, i: Instruction, level: int) -> str:
        """A function of ``real`` arguments; a uniform value is computed in one lane."""
        call = f"{function}({', '.join(self._real(k, level) for k in i.args)})"
        return f"rp_first({call})" if i.shape == "uniform" else call

    # -- source ----------------------------------------------------------------------------------

    def _source(self, outputs: list[tuple[str, str]]) -> str:
        kinds = {"uniform": "scalar ", "node": "real ", "token": "const real *restrict "}
        arguments = [f"{kinds[s]}{mangle(n)}" for n, s in self.program.inputs]
        arguments += [f"real *restrict out_{mangle(n)}" for n, _ in outputs]
        arguments += ["int length", "real *restrict scratch"]
        head = textwrap.wrap(
            f"DEVICE void {self.program.name}({', '.join(arguments)}) {{", 100,
            subsequent_indent="        ",
        )
        lines = [*head, "    (void)scratch; (void)length;"]
        lines += ["    " + d for d in self.declarations + self.uniform]
        for level in sorted(self.stages):
            stage = self.stages[level]
            lines += ["    " + s for s in stage.node]
            if stage.token:
                lines.append("    UNROLL for (int l = 0; l < TOKENS; ++l) {")
                lines += ["        " + s for s in stage.token] + ["    }"]
        return "\n".join([*lines, "}"]) + "\n"


def literal(value: Any) -> str:
    """A 17-digit literal, typed by the kernel; never an integer and never a named constant."""
    number = float(sp.sympify(value).evalf(25))
    text = f"{number:.17g}"
    return f"C({text if any(ch in text for ch in '.einf') else text + '.0'})"


_ZERO = literal(0)
_FUNCTIONS = {"sqrt": "rp_sqrt", "maximum": "rp_max", "minimum": "rp_min"}
