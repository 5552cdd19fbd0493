"""A derivation as a LaTeX article, or as a fragment to paste into one."""

from __future__ import annotations

from replica.derivation.chain import Equations
from replica.document.blocks import Block, Formula, Heading, Prose, Symbols, blocks
from replica.document.prose import latex_prose

PACKAGES = r"""\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{amsmath,amssymb}
"""
PREAMBLE = rf"""\documentclass[11pt]{{article}}
{PACKAGES}\usepackage[margin=2.4cm]{{geometry}}
\allowdisplaybreaks
\setlength{{\parindent}}{{0pt}}
\setlength{{\parskip}}{{4pt}}
"""


def latex_document(equations: Equations, intro: list[str]) -> str:
    """A complete article: model, symbols, then one subsection per step."""
    title = latex_prose(equations.derivation.title)
    return "\n".join([
        PREAMBLE, rf"\title{{Replica derivation: {title}}}", r"\date{}", r"\begin{document}",
        r"\maketitle", *_body(blocks(equations, intro)), r"\end{document}", "",
    ])


def latex_fragment(equations: Equations, intro: list[str]) -> str:
    """The body alone; labels carry the chain's name, so that fragments do not collide.

    It needs the packages of :func:`latex_preamble`.
    """
    title = equations.derivation.title
    prefix = "".join(ch for ch in title if ch.isalnum()) + ":"
    return "\n".join([f"% {title}", *_body(blocks(equations, intro), prefix), ""])


def latex_preamble() -> str:
    """What a document needs before it can take a fragment."""
    remark = "% what the derivation needs; its lines are broken for a text width of 16 cm"
    return f"{remark}\n{PACKAGES}\\allowdisplaybreaks\n"


def _body(parts: list[Block], prefix: str = "") -> list[str]:
    out: list[str] = []
    for block in parts:
        if isinstance(block, Heading) and block.step is None:
            out.append(rf"\section*{{{block.text}}}")
            if block.text == "Derivation":
                out.append(r"\renewcommand{\thesubsection}{\arabic{subsection}}")
        elif isinstance(block, Heading):
            out.append(rf"\subsection{{{latex_prose(block.text)}}}"
                       rf"\label{{{prefix}step:{block.step}}}")
        elif isinstance(block, Prose):
            out.append(_prose(block, prefix))
        elif isinstance(block, Symbols):
            out.append(r"\begin{tabular}{ll}")
            out += [rf"${symbol}$ & {words} \\" for symbol, words in block.rows]
            out.append(r"\end{tabular}")
        else:
            out += _formula(block, prefix)
    return out


def _prose(block: Prose, prefix: str) -> str:
    label = rf"\emph{{{block.label}}} " if block.label else ""
    source = ", ".join(rf"\ref{{{prefix}step:{k}}}" for k in block.premises)
    return rf"\par {label}{latex_prose(block.text)}" + (f" From {source}." if source else "")


def _formula(block: Formula, prefix: str) -> list[str]:
    body = (r" \nonumber \\" + "\n").join(block.equation.rows)
    out = ["where"] if block.where else []
    return [*out, r"\begin{align}", body, rf"\label{{{prefix}eq:{block.number}}}", r"\end{align}"]
