"""A derivation as one self-contained HTML page with MathML."""

from __future__ import annotations

import html

from replica.derivation.chain import Equations
from replica.document.blocks import Block, Formula, Heading, Prose, blocks
from replica.document.mathml import inline_mathml, mathml
from replica.document.prose import html_prose

STYLE = """
:root{color-scheme:light dark;--ink:#1b2430;--paper:#fff;--soft:#5b6776;--line:#d7dde4}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ee;--paper:#14181d;--soft:#9aa7b5;--line:#333b45}}
body{max-width:52rem;margin:2rem auto;padding:0 1rem;color:var(--ink);background:var(--paper);
font:1rem/1.55 Georgia,serif}
h1{font-size:1.5rem}h2{margin-top:2.2rem;border-bottom:1px solid var(--line)}h3{margin-top:1.8rem}
.formula{display:flex;align-items:center;gap:1rem;overflow-x:auto;overflow-y:hidden;
margin:.6rem 0;padding:.2rem 0}
.formula math{flex:1 0 auto}.number{color:var(--soft);flex:none}
table{border-collapse:collapse}td{padding:.15rem .8rem .15rem 0;vertical-align:top}
a{color:inherit}.label{font-style:italic;color:var(--soft)}
@media print{body{max-width:none}.formula{overflow:visible}}
"""


def html_document(equations: Equations, intro: list[str]) -> str:
    """A page that needs no script and no network; steps and equations are link targets."""
    title = html.escape(f"Replica derivation: {equations.derivation.title}")
    body = "\n".join(_block(b) for b in blocks(equations, intro))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body><main>"
        f"<h1>{title}</h1>\n{body}\n</main></body></html>\n"
    )


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        text = html_prose(block.text, inline_mathml)
        if block.step is None:
            return f"<h2>{text}</h2>"
        return f'<h3 id="step-{block.step}">{block.step}. {text}</h3>'
    if isinstance(block, Prose):
        label = f'<span class="label">{html.escape(block.label)}</span> ' if block.label else ""
        links = ", ".join(f'<a href="#step-{k}">{k}</a>' for k in block.premises)
        source = f" From {links}." if links else ""
        return f"<p>{label}{html_prose(block.text, inline_mathml)}{source}</p>"
    if isinstance(block, Formula):
        shown = mathml(r"\begin{aligned}" + r" \\ ".join(block.equation.rows) + r"\end{aligned}")
        where = "<p>where</p>" if block.where else ""
        return (f'{where}<div class="formula" id="eq-{block.number}">{shown}'
                f'<span class="number">({block.number})</span></div>')
    rows = [
        f"<tr><td>{inline_mathml(symbol)}</td><td>{html_prose(words, inline_mathml)}</td></tr>"
        for symbol, words in block.rows
    ]
    return f"<table>{''.join(rows)}</table>"
