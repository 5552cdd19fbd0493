"""A derivation for a terminal."""

from __future__ import annotations

from replica.derivation.chain import Equations, SaddlePointEquations
from replica.document.blocks import presented
from replica.document.prose import plain
from replica.document.text_printer import to_text


def text_document(equations: Equations, intro: list[str]) -> str:
    """The derivation for a terminal."""
    model = equations.model
    out = [equations.derivation.title, "=" * len(equations.derivation.title),
           *map(plain, intro)]
    if isinstance(equations, SaddlePointEquations):
        out.append(f"  loss = {to_text(model.loss)}")
    out.append(f"  y = {to_text(model.channel)}")
    if model.log_weight != 0:
        out.append(f"  log g(epsilon, chi*) = {to_text(model.log_weight)}")
    out.append("")
    for number, step in enumerate(equations.derivation, 1):
        out.append(f"{number}. {step.name}{'' if step.derived else '  [not yet derived]'}")
        out.append(f"   rule: {plain(step.rule)}")
        if step.assumption:
            out.append(f"   assumes: {plain(step.assumption)}")
        if step.text:
            out.append(f"   {plain(step.text)}")
        for name in step.conclusion:
            out.append(f"     {name} = {to_text(presented(step, name))}")
        out.append("")
    return "\n".join(out)
