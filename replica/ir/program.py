"""Programs in static single assignment over values with a shape.

Shapes: ``uniform`` (one number for all samples), ``node`` (one per sample), ``token`` (one per
token and sample), and for matrices over pairs of tokens ``row``, ``col`` and ``pair``.
Equal instructions are one instruction (value numbering), so each thing is computed once, and
names come from one pool.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Shape = Literal["uniform", "node", "token", "row", "col", "pair"]

_RANK = {"uniform": 0, "node": 1, "token": 2, "row": 2, "col": 2, "pair": 3}


@dataclass(frozen=True)
class Instruction:
    """``id = op(args)``; ``data`` is the constant, input name or function name."""

    id: int
    op: str
    args: tuple[int, ...]
    shape: Shape
    data: Any = None


@dataclass(frozen=True)
class Program:
    """Inputs in order, instructions, and outputs by name.

    ``origins`` maps instructions to the expression they compute, for comments in listings.
    """

    name: str
    inputs: tuple[tuple[str, Shape], ...]
    instructions: tuple[Instruction, ...]
    outputs: Mapping[str, int]
    origins: Mapping[int, Any] = field(default_factory=dict, compare=False, repr=False)

    def shape(self, output: str) -> Shape:
        return self.instructions[self.outputs[output]].shape

    def fingerprint(self) -> str:
        """Hash of everything that generated code depends on; equal programs, equal hash."""
        text = repr((self.inputs, [(i.op, i.args, i.shape, str(i.data))
                                   for i in self.instructions], sorted(self.outputs.items())))
        return hashlib.sha256(text.encode()).hexdigest()


class Builder:
    """Appends instructions, merging equal ones."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self._known: dict[tuple[Any, ...], int] = {}
        self.origins: dict[int, Any] = {}

    def emit(self, op: str, args: tuple[int, ...], shape: Shape, data: Any = None) -> int:
        key = (op, args, shape, str(data))
        if key not in self._known:
            self._known[key] = len(self.instructions)
            self.instructions.append(
                Instruction(len(self.instructions), op, args, shape, data)
            )
        return self._known[key]

    def shape(self, value: int) -> Shape:
        return self.instructions[value].shape

    def elementwise(self, op: str, *args: int, data: Any = None) -> int:
        return self.emit(op, args, join(*(self.shape(a) for a in args)), data)

    def finish(self, name: str, inputs: list[tuple[str, Shape]], outputs: dict[str, int]
               ) -> Program:
        """Drop what no output needs."""
        needed: set[int] = set()
        stack = list(outputs.values())
        while stack:
            i = stack.pop()
            if i not in needed:
                needed.add(i)
                stack.extend(self.instructions[i].args)
        order = sorted(needed)
        number = {old: new for new, old in enumerate(order)}
        kept = tuple(
            Instruction(number[i.id], i.op, tuple(number[a] for a in i.args), i.shape, i.data)
            for i in (self.instructions[k] for k in order)
        )
        origins = {number[k]: e for k, e in self.origins.items() if k in number}
        return Program(
            name, tuple(inputs), kept, {k: number[v] for k, v in outputs.items()}, origins
        )


def join(*shapes: Shape) -> Shape:
    """The shape of an element-wise combination."""
    result: Shape = "uniform"
    for s in shapes:
        if s == result or (_RANK[s] < _RANK[result] and not _mixed(s, result)):
            continue
        if _RANK[s] > _RANK[result] and not _mixed(s, result):
            result = s
        elif {s, result} <= {"row", "col", "pair"}:
            result = "pair"
        else:
            raise ValueError(f"values of shape {s} and {result} do not combine")
    return result


def _mixed(a: Shape, b: Shape) -> bool:
    return (a == "token" and b in ("row", "col", "pair")) or (
        b == "token" and a in ("row", "col", "pair")
    )
