"""A picture of a derivation: its steps and what follows from what."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from replica.derivation.step import Derivation, Step
from replica.document.prose import plain

FORMATS = ("svg", "dot", "graphml", "mmd")

WIDTH, LINE, GAP_X, GAP_Y, MARGIN = 176, 15, 22, 46, 20
COLUMNS = 4
"""Boxes side by side at most, so that the picture stays readable on a page."""


def draw(derivation: Derivation, form: str) -> str:
    """The graph as the text of an SVG, DOT, GraphML or Mermaid file."""
    return {"svg": svg, "dot": dot, "graphml": graphml, "mmd": mermaid}[form](derivation)


def _numbers(derivation: Derivation) -> dict[str, int]:
    return {step.name: k for k, step in enumerate(derivation, 1)}


def dot(derivation: Derivation) -> str:
    """DOT for Graphviz; steps that assume something are dashed."""
    number = _numbers(derivation)
    out = ["digraph derivation {", '  rankdir=TB; node [shape=box, fontname="sans-serif"];']
    for step in derivation:
        style = ', style="dashed"' if step.assumption else ""
        title = _quoted(f"{number[step.name]}. {step.name}")
        out.append(f"  s{number[step.name]} [label={title}, tooltip={_quoted(plain(step.rule))}"
                   f"{style}];")
    for step in derivation:
        out += [f"  s{number[p]} -> s{number[step.name]};" for p in step.premises]
    return "\n".join([*out, "}", ""])


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def mermaid(derivation: Derivation) -> str:
    """A Mermaid flow chart."""
    number = _numbers(derivation)
    out = ["flowchart TD"]
    for step in derivation:
        title = f"{number[step.name]}. {step.name}".replace('"', "#quot;")
        out.append(f'  s{number[step.name]}["{title}"]')
    for step in derivation:
        out += [f"  s{number[p]} --> s{number[step.name]}" for p in step.premises]
    assumed = ",".join(f"s{number[s.name]}" for s in derivation if s.assumption)
    if assumed:
        out += ["  classDef assumed stroke-dasharray: 5 4", f"  class {assumed} assumed"]
    return "\n".join([*out, ""])


def graphml(derivation: Derivation) -> str:
    """GraphML with rule, assumption and text of every step."""
    import io

    import networkx as nx

    graph = nx.DiGraph(title=derivation.title)
    for k, step in enumerate(derivation, 1):
        graph.add_node(step.name, number=k, rule=plain(step.rule),
                       assumption=plain(step.assumption), text=plain(step.text))
        graph.add_edges_from((p, step.name) for p in step.premises)
    stream = io.BytesIO()
    nx.write_graphml(graph, stream)
    return stream.getvalue().decode("utf-8") + "\n"


@dataclass(frozen=True)
class _Box:
    step: Step
    number: int
    lines: tuple[str, ...]
    x: float
    y: float
    height: float

    @property
    def centre(self) -> float:
        return self.x + WIDTH / 2


def _rows(derivation: Derivation) -> list[list[Step]]:
    """Every step below all of its premises, at most ``COLUMNS`` in a row."""
    rows: list[list[Step]] = []
    place: dict[str, int] = {}
    for step in derivation:
        row = max((place[p] + 1 for p in step.premises), default=0)
        while row < len(rows) and len(rows[row]) >= COLUMNS:
            row += 1
        while row >= len(rows):
            rows.append([])
        rows[row].append(step)
        place[step.name] = row
    return rows


def _boxes(derivation: Derivation) -> tuple[dict[str, _Box], float, float]:
    """Boxes by step name, ordered in their rows by where their premises are, and the size."""
    number = _numbers(derivation)
    boxes: dict[str, _Box] = {}
    y = MARGIN + 40.0
    width = 2 * MARGIN + COLUMNS * WIDTH + (COLUMNS - 1) * GAP_X
    for row in _rows(derivation):
        def wish(step: Step) -> float:
            above = [boxes[p].centre for p in step.premises]
            return sum(above) / len(above) if above else width / 2

        ordered = sorted(row, key=lambda s: (wish(s), number[s.name]))
        total = len(ordered) * WIDTH + (len(ordered) - 1) * GAP_X
        x = (width - total) / 2
        wrapped = {s.name: textwrap.wrap(f"{number[s.name]}. {s.name}", 25) for s in ordered}
        height = max(len(w) for w in wrapped.values()) * LINE + 14
        for step in ordered:
            boxes[step.name] = _Box(
                step, number[step.name], tuple(wrapped[step.name]), x, y, height
            )
            x += WIDTH + GAP_X
        y += height + GAP_Y
    return boxes, width, y - GAP_Y + MARGIN + 24


def svg(derivation: Derivation) -> str:
    """A self-contained SVG; dashed boxes assume something, a tooltip gives the rule."""
    boxes, width, height = _boxes(derivation)
    title = html.escape(derivation.title)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" aria-label="{title}: {len(boxes)} '
        'steps and what follows from what" font-family="Helvetica, Arial, sans-serif">',
        f"<title>{title}</title>",
        '<style>.box{fill:#fff;stroke:#345}.assumed{stroke-dasharray:5 4;fill:#fdf6e3}'
        ".edge{fill:none;stroke:#8899aa}text{font-size:12px;fill:#123}"
        ".head{font-size:16px;font-weight:bold}.note{font-size:11px;fill:#456}</style>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#8899aa"/></marker></defs>',
        f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>',
        f'<text class="head" x="{MARGIN}" y="{MARGIN + 14}">{title}</text>',
    ]
    for box in boxes.values():
        out += _edges(box, boxes)
    for box in boxes.values():
        kind = "box assumed" if box.step.assumption else "box"
        tip = plain(box.step.rule)
        if box.step.assumption:
            tip += f" (assumes: {plain(box.step.assumption)})"
        out.append(f'<g><title>{html.escape(tip)}</title><rect class="{kind}" x="{box.x:g}" '
                   f'y="{box.y:g}" width="{WIDTH}" height="{box.height:g}" rx="5"/>')
        first = box.y + (box.height - LINE * len(box.lines)) / 2 + 12
        for i, line in enumerate(box.lines):
            out.append(f'<text x="{box.centre:g}" y="{first + i * LINE:g}" '
                       f'text-anchor="middle">{html.escape(line)}</text>')
        out.append("</g>")
    out.append(f'<text class="note" x="{MARGIN}" y="{height - 10:g}">dashed: the step makes an '
               "assumption that is not proved</text>")
    return "\n".join([*out, "</svg>", ""])


def _edges(box: _Box, boxes: Mapping[str, _Box]) -> list[str]:
    """Curves into a box, their ends spread along its upper side."""
    premises = sorted(box.step.premises, key=lambda p: boxes[p].centre)
    found = []
    for i, name in enumerate(premises):
        start = boxes[name]
        x0, y0 = start.centre, start.y + start.height
        x1 = box.x + WIDTH * (i + 1) / (len(premises) + 1)
        bend = min(40.0, (box.y - y0) / 2)
        found.append(f'<path class="edge" marker-end="url(#arrow)" d="M{x0:g} {y0:g}C{x0:g} '
                     f'{y0 + bend:g} {x1:g} {box.y - bend:g} {x1:g} {box.y - 1:g}"/>')
    return found
