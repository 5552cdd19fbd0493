"""C source from a program: one function over a block of lanes, tokens in loops.

The length is a run-time argument. Token values are ``[token][lane]``. Instructions are ordered by
*level*: the number of reductions over tokens that must be complete before they can run. Each level
is one loop over tokens with one loop over lanes inside, which the compiler vectorises; what a
later level needs is stored in scratch memory.
"""

from __future__ import annotations

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

    Arguments: inputs (``const double *`` for node and token, ``double`` for uniform), then outputs
    (``double *``), then ``int L`` and ``double *scratch`` of ``scratch_arrays * L * LANES``.
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


def print_c(program: Program) -> CFunction:
    """Print one program. Raises ``UnsupportedNodeError`` for values over pairs of tokens."""
    return _Printer(program).run()


class _Printer:
    def __init__(self, program: Program) -> None:
        self.program = program
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
                stage.token.append(f"{target}[l*LANES + i] = {self._value(number)};")
            else:
                stage.node.append(f"{target}[i] = {self._value(number)};")
        return CFunction(
            p.name, self._source(outputs), tuple((n, s) for n, s in p.inputs), tuple(outputs),
            len(self.scratch),
        )

    # -- levels ----------------------------------------------------------------------------------

    def _level(self, i: Instruction) -> int:
        below = max((self.level[a] for a in i.args), default=0)
        if i.op in ("softmax", "centre"):
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
                elif i.op in ("softmax", "centre"):
                    used_until -= 1  # its second pass
                if used_until > self.level[a]:
                    found.add(a)
        for number in self.program.outputs.values():
            if self.program.instructions[number].op in ("softmax", "centre"):
                continue
        return found

    def _stage(self, level: int) -> _Level:
        return self.stages.setdefault(level, _Level())

    # -- instructions ----------------------------------------------------------------------------

    def _slot(self, name: str) -> str:
        """A scratch array, addressed at the current token and lane."""
        number = self.scratch.setdefault(name, len(self.scratch))
        return f"scratch[({number}*L + l)*LANES + i]"

    def _value(self, number: int, level: int | None = None) -> str:
        """How an instruction's value is read in the loops of ``level``."""
        i = self.program.instructions[number]
        if i.shape == "uniform":
            return f"t{number}" if i.op != "input" else mangle(i.data)
        if i.shape == "node":
            return f"{mangle(i.data)}[i]" if i.op == "input" else f"t{number}[i]"
        if i.op == "input":
            return f"{mangle(i.data)}[l*LANES + i]"
        if level is not None and level > self.level[number]:
            return self._slot(f"t{number}")
        return f"t{number}"

    def _emit(self, i: Instruction) -> None:
        level = self.level[i.id]
        if i.op == "input":
            return
        if i.shape == "uniform":
            self.uniform.append(f"const double t{i.id} = {self._expression(i, 0)};")
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
            stage.token.append(f"const double t{i.id} = {self._expression(i, level)};")
        if i.id in self.needed_later:
            self._stage(level).token.append(f"{self._slot(f't{i.id}')} = t{i.id};")

    def _emit_node(self, i: Instruction, level: int) -> None:
        if i.op == "token_sum":
            self.declarations.append(f"double t{i.id}[LANES] = {{0}};")
            value = self._value(i.args[0], level - 1)
            self._stage(level - 1).token.append(f"t{i.id}[i] += {value};")
        elif i.op == "pick":
            self.declarations.append(f"double t{i.id}[LANES] = {{0}};")
            value = self._value(i.args[0], level - 1)
            self._stage(level - 1).token.append(f"if (l == 0) t{i.id}[i] = {value};")
        else:
            self.declarations.append(f"double t{i.id}[LANES];")
            self._stage(level).node.append(f"t{i.id}[i] = {self._expression(i, level)};")

    def _softmax(self, i: Instruction, level: int) -> None:
        u, n = i.args[0], i.id
        self.declarations += [f"double top{n}[LANES];", f"double norm{n}[LANES] = {{0}};"]
        first, second, last = (self._stage(level - k) for k in (2, 1, 0))
        value = self._value(u, level - 2)
        first.token.append(
            f"top{n}[i] = l == 0 || {value} > top{n}[i] ? {value} : top{n}[i];"
        )
        weight = self._slot(f"e{n}")
        second.token += [
            f"const double e{n} = rp_exp({self._value(u, level - 1)} - top{n}[i]);",
            f"{weight} = e{n};", f"norm{n}[i] += e{n};",
        ]
        last.node.append(f"norm{n}[i] = 1.0 / norm{n}[i];")
        last.token.append(f"const double t{n} = {weight} * norm{n}[i];")

    def _centre(self, i: Instruction, level: int) -> None:
        (v, w), n = i.args, i.id
        self.declarations += [f"double largest{n}[LANES];", f"double top{n}[LANES];",
                              f"double mean{n}[LANES] = {{0}};"]
        first, second, last = (self._stage(level - k) for k in (2, 1, 0))
        value, weight = self._value(v, level - 2), self._value(w, level - 2)
        first.token += [
            f"const int better{n} = l == 0 || {weight} > largest{n}[i];",
            f"top{n}[i] = better{n} ? {value} : top{n}[i];",
            f"largest{n}[i] = better{n} ? {weight} : largest{n}[i];",
        ]
        shifted = self._slot(f"c{n}")
        second.token += [
            f"const double c{n} = {self._value(v, level - 1)} - top{n}[i];",
            f"{shifted} = c{n};", f"mean{n}[i] += {self._value(w, level - 1)} * c{n};",
        ]
        last.token.append(f"const double t{n} = {shifted} - mean{n}[i];")

    def _expression(self, i: Instruction, level: int) -> str:
        a = [self._value(k, level) for k in i.args]
        if i.op in _BINARY:
            return f"{a[0]} {_BINARY[i.op]} {a[1]}"
        if i.op == "const":
            return literal(i.data)
        if i.op == "neg":
            return f"-{a[0]}"
        if i.op == "sqrt":
            return f"sqrt({a[0]})"
        if i.op == "maximum0":
            return f"rp_maximum0({a[0]})"
        if i.op == "call":
            return f"{BY_NAME[i.data].c}({a[0]})"
        if i.op == "length":
            return "(double)L"
        if i.op == "relevant":
            return "l == 0 ? 1.0 : 0.0"
        raise UnsupportedNodeError(i.op)

    # -- source ----------------------------------------------------------------------------------

    def _source(self, outputs: list[tuple[str, str]]) -> str:
        arguments = [
            f"double {mangle(n)}" if s == "uniform" else f"const double *restrict {mangle(n)}"
            for n, s in self.program.inputs
        ]
        arguments += [f"double *restrict out_{mangle(n)}" for n, _ in outputs]
        arguments += ["int L", "double *restrict scratch"]
        head = f"static void {self.program.name}({', '.join(arguments)}) {{"
        lines = [head, "    (void)scratch;"]
        lines += ["    " + d for d in self.declarations + self.uniform]
        for level in sorted(self.stages):
            stage = self.stages[level]
            if stage.node:
                lines += ["    for (int i = 0; i < LANES; ++i) {"]
                lines += ["        " + s for s in stage.node] + ["    }"]
            if stage.token:
                lines += ["    for (int l = 0; l < L; ++l) {", "        VECTOR",
                          "        for (int i = 0; i < LANES; ++i) {"]
                lines += ["            " + s for s in stage.token] + ["        }", "    }"]
        return "\n".join([*lines, "}"]) + "\n"


def literal(value: Any) -> str:
    """A 17-digit double literal, never an integer and never a named constant."""
    number = float(sp.sympify(value).evalf(25))
    text = f"{number:.17g}"
    return text if any(ch in text for ch in ".einf") else text + ".0"
