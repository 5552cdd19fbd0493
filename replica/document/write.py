"""A derivation as a text, LaTeX or JSON document."""

from __future__ import annotations

from typing import Any

import sympy as sp

from replica.derivation.chain import BayesEquations, PopulationEquations, SaddlePointEquations
from replica.derivation.step import Derivation, Step
from replica.document.latex_printer import to_latex
from replica.document.layout import lay_out
from replica.document.notation import (
    BAYES_MEANING,
    KINK_MEANING,
    MEANING,
    POPULATION_MEANING,
    symbol_latex,
)
from replica.document.prose import latex_prose, plain
from replica.document.text_printer import to_text
from replica.symbolic.tokens import write_out

Equations = SaddlePointEquations | BayesEquations | PopulationEquations

PREAMBLE = r"""\documentclass[11pt]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{amsmath,amssymb}
\usepackage[margin=2.4cm]{geometry}
\allowdisplaybreaks
\setlength{\parindent}{0pt}
\setlength{\parskip}{4pt}
"""


def conclusion_name(step: Step, name: str) -> str:
    """LaTeX of what a conclusion states."""
    special = {
        "f": "f", "sample": r"\log p(\text{sample})", "coordinate": r"\log p(\text{coordinate})",
        "constraint": r"\Phi_{\mathrm{constraint}}", "single": r"A_{\mathrm{single}}",
        "common": r"A_{\mathrm{common}}", "source": r"B", "weights": r"\Phi_{\mathrm{weights}}",
        "log_weights": r"\log I_{\mathrm{weights}}", "data": r"\Phi_{\mathrm{data}}",
        "mean": r"\mathrm{mean}", "common_covariance": r"C_{\mathrm{common}}",
        "replica_covariance": r"C_{\mathrm{replica}}", "test_error": r"E_{\mathrm{test}}",
        "noise_floor": r"E_{\mathrm{noise}}", "residual": r"\varrho", "stiffness": r"\mathcal{D}",
        "reduced": r"\ell_{\mathrm{reduced}}", "sigma": r"\sigma_j",
        "objective": r"\mathcal{O}", "gradient": r"\partial\mathcal{O}/\partial\chi_j",
        "direction": r"\partial(\varrho/\sqrt{\mathcal{D}})/\partial\chi_j", "loss": r"\ell",
        "response": r"\partial f/\partial\omega",
        "Phi": r"\Phi", "likelihood": r"p(y, X | \chi, z)", "log_G": r"\log G_l",
        "variance": "s^2", "channel": r"Z_{\mathrm{out}}", "density": r"p(\omega^k)/p_0(\omega^k)",
        "slope": r"\partial_q E[Z\log Z]", "prediction": r"\hat{y}",
        "risk": "R", "excess_risk": r"E_{\mathrm{excess}}", "posterior": "P_l",
        "bayes_excess": r"E_{\mathrm{excess}}^{\mathrm{Bayes}}", "bend": r"(\log\sigma)''(x)",
        "key_scale": "c", "attention": r"\sigma(c\,\chi^{\ast})_l",
        "delta2_weights": r"\delta^2\Phi_{\mathrm{weights}}",
        "delta2_constraint": r"\delta^2\Phi_{\mathrm{constraint}}",
        "delta2_data": r"\delta^2\Phi_{\mathrm{data}}",
    }
    if name in special:
        return special[name]
    head, _, rest = name.partition("_")
    if head == "gradient" and "_" in rest:
        return rf"\partial R/\partial {symbol_latex(rest)}"
    if head == "gradient":
        return rf"\partial_{{{rest},j}}\ell"
    if head == "hessian":
        return rf"\partial_{{{rest[0]},j}}\partial_{{{rest[1:]},i}}\ell"
    if head == "diagonal":
        return rf"\Lambda^{{{rest}}}_j"
    if head in ("left", "right"):  # left_0_k, right_0_v
        rank, _, sector = rest.partition("_")
        letter, position = ("a", "j") if head == "left" else ("b", "i")
        return rf"{letter}^{{({int(rank) + 1}),{sector}}}_{position}"
    if head in ("single", "common"):
        return rf"A^{{{rest}}}_{{\mathrm{{{head}}}}}"
    if head == "T" and rest.endswith(("_plus", "_minus")):
        sectors, _, sign = rest.partition("_")
        return rf"T^{{{'+' if sign == 'plus' else '-'}}}_{{{sectors}}}"
    if head == "omega":
        return rf"\omega^{{{rest}}}_l"
    if head == "f":
        return rf"f^{{{rest}}}_j"
    if head in ("variance", "multiplier"):
        return rf"{chr(92)}{'rho' if head == 'variance' else 'hat{' + chr(92) + 'rho}'}_{{{rest}}}"
    return symbol_latex(name)


def presented(step: Step, name: str) -> Any:
    """The expression as it is shown: the activation's definition is written out."""
    value = step.conclusion[name]
    if name == "sigma" and hasattr(value, "explicit"):
        return value.explicit()
    return value


def text_document(equations: Equations, intro: list[str]) -> str:
    """The derivation for a terminal."""
    model = equations.model
    out = [equations.derivation.title, "=" * len(equations.derivation.title), *intro]
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


def latex_document(equations: Equations, intro: list[str]) -> str:
    """A complete LaTeX article: model, symbols, then one subsection per step."""
    derivation = equations.derivation
    out = [PREAMBLE, rf"\title{{Replica derivation: {latex_prose(derivation.title)}}}",
           r"\date{}", r"\begin{document}", r"\maketitle"]
    out.append(r"\section*{Model}")
    out += [latex_prose(line) + r"\par" for line in intro]
    model = equations.model
    erm = isinstance(equations, SaddlePointEquations)
    if erm:
        out += _display(lay_out(r"\ell", model.loss))
    out += _display(lay_out("y", model.channel))
    if model.log_weight != 0:
        out += _display(lay_out(r"\log g(\varepsilon, \chi^{\ast})", model.log_weight))
    out.append(r"\section*{Symbols}")
    out.append(r"\begin{tabular}{ll}")
    rows = list(_meanings(equations))
    kinked = model.activation is not None and model.activation.kinked
    if kinked and not isinstance(equations, BayesEquations):
        rows.append(KINK_MEANING)
    out += [rf"${s}$ & {t} \\" for s, t in rows]
    out.append(r"\end{tabular}")
    out.append(r"\section*{Derivation}")
    labels = {step.name: f"step:{i}" for i, step in enumerate(derivation, 1)}
    out.append(r"\renewcommand{\thesubsection}{\arabic{subsection}}")
    for step in derivation:
        mark = "" if step.derived else " (not yet derived)"
        out.append(rf"\subsection{{{latex_prose(_sentence(step.name)) + mark}}}"
                   rf"\label{{{labels[step.name]}}}")
        premises = ", ".join(rf"\ref{{{labels[p]}}}" for p in step.premises)
        source = f" From {premises}." if premises else ""
        out.append(rf"\emph{{Rule:}} {latex_prose(_sentence(step.rule))}.{source}")
        if step.assumption:
            out.append(rf"\par\emph{{Assumption (not proved):}} {latex_prose(step.assumption)}.")
        if step.text:
            out.append(r"\par " + latex_prose(step.text))
        for name in step.conclusion:
            out += _display(lay_out(conclusion_name(step, name), presented(step, name)))
    out.append(r"\end{document}")
    return "\n".join(out) + "\n"


def _meanings(equations: Equations) -> tuple[tuple[str, str], ...]:
    if isinstance(equations, SaddlePointEquations):
        return MEANING
    return BAYES_MEANING if isinstance(equations, BayesEquations) else POPULATION_MEANING


def _display(equations: list[Any]) -> list[str]:
    out = []
    for i, e in enumerate(equations):
        if i == 1:
            out.append("where")
        rows = [rf"{e.left} &= {e.lines[0]}"] + [rf"&\quad {line}" for line in e.lines[1:]]
        body = (r" \\" + "\n").join(rows)
        out += [r"\begin{align*}", body, r"\end{align*}"]
    return out


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def json_document(derivation: Derivation) -> list[dict[str, Any]]:
    """Steps with each conclusion as ``srepr``, LaTeX and text."""
    steps = []
    for step in derivation:
        conclusion = {
            name: {
                "srepr": sp.srepr(value),
                "latex": to_latex(presented(step, name)),
                "text": to_text(presented(step, name)),
            }
            for name, value in step.conclusion.items()
        }
        steps.append({
            "name": step.name, "rule": plain(step.rule), "premises": list(step.premises),
            "assumption": plain(step.assumption), "derived": step.derived,
            "text": plain(step.text),
            "conclusion": conclusion,
        })
    return steps


def with_length(equations: Equations, length: int) -> Equations:
    """The same derivation with token sums written out, for showing."""
    from dataclasses import replace

    def explicit(value: Any) -> Any:
        if isinstance(value, sp.MatrixBase | sp.MatrixExpr) or not isinstance(value, sp.Basic):
            return value
        return write_out(value, length)

    steps = tuple(
        replace(s, conclusion={n: explicit(v) for n, v in s.conclusion.items()}, check=None)
        for s in equations.derivation
    )
    model = replace(
        equations.model, loss=explicit(equations.model.loss),
        channel=explicit(equations.model.channel), log_weight=explicit(equations.model.log_weight),
    )
    return type(equations)(
        model, Derivation(f"{equations.derivation.title}, L = {length}", steps)
    )
