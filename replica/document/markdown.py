"""A derivation as Markdown with LaTeX formulas, and as a Jupyter notebook."""

from __future__ import annotations

import json

from replica.derivation.chain import Equations
from replica.document.blocks import Block, Formula, Heading, Prose, blocks


def markdown_document(equations: Equations, intro: list[str]) -> str:
    """Markdown whose displays carry the numbers of the LaTeX document."""
    out = [f"# Replica derivation: {equations.derivation.title}"]
    return "\n\n".join([*out, *(_block(b) for b in blocks(equations, intro))]) + "\n"


def notebook_document(equations: Equations, intro: list[str], code: str) -> str:
    """A notebook: the derivation, a cell per step, after a cell of code that makes it anew."""
    cells = [_cell("markdown", f"# Replica derivation: {equations.derivation.title}"),
             _cell("code", code)]
    gathered: list[str] = []
    for block in blocks(equations, intro):
        if isinstance(block, Heading) and gathered:
            cells.append(_cell("markdown", "\n\n".join(gathered)))
            gathered = []
        gathered.append(_block(block))
    cells.append(_cell("markdown", "\n\n".join(gathered)))
    for k, cell in enumerate(cells):
        cell["id"] = f"cell-{k}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return json.dumps({
        "nbformat": 4, "nbformat_minor": 5, "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
    }, indent=1) + "\n"


def _cell(kind: str, source: str) -> dict[str, object]:
    cell: dict[str, object] = {
        "cell_type": kind, "metadata": {}, "source": source.splitlines(keepends=True)
    }
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return cell


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        number = "" if block.step is None else f"{block.step}. "
        return f"{'##' if block.step is None else '###'} {number}{block.text}"
    if isinstance(block, Prose):
        label = f"*{block.label}* " if block.label else ""
        source = ", ".join(map(str, block.premises))
        return f"{label}{block.text}" + (f" From {source}." if source else "")
    if isinstance(block, Formula):
        body = r"\begin{aligned}" + (r" \\" + "\n").join(block.equation.rows) + r"\end{aligned}"
        where = "where\n\n" if block.where else ""
        return f"{where}$$\n{body} \\tag{{{block.number}}}\n$$"
    rows = [f"| ${symbol}$ | {words} |" for symbol, words in block.rows]
    return "\n".join(["| symbol | meaning |", "|---|---|", *rows])
