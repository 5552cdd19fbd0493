"""A derivation as blocks: headings, prose, numbered formulas, the table of symbols.

Every format is a rendering of the same blocks, so that numbers and references agree between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy as sp

from replica.derivation.chain import (
    BayesEquations,
    Equations,
    FlowEquations,
    SaddlePointEquations,
)
from replica.derivation.step import Derivation, Step
from replica.document.layout import Equation, lay_out
from replica.document.notation import (
    BAYES_MEANING,
    FLOW_MEANING,
    KINK_MEANING,
    MEANING,
    POPULATION_MEANING,
    symbol_latex,
)
from replica.symbolic.primitives import log_softplus, softplus
from replica.symbolic.tokens import write_out


@dataclass(frozen=True)
class Heading:
    """A section, or a numbered step of the derivation."""

    text: str
    step: int | None = None


@dataclass(frozen=True)
class Prose:
    """A paragraph with formulas between dollars; ``label`` is set before it (Rule, Assumption)."""

    text: str
    label: str = ""
    premises: tuple[int, ...] = ()
    """Numbers of the steps that it rests on."""


@dataclass(frozen=True)
class Formula:
    """A displayed equation and its number; ``where`` says that it names a part of the last one."""

    equation: Equation
    number: int
    where: bool = False


@dataclass(frozen=True)
class Symbols:
    """The table of symbols, as pairs of LaTeX and words."""

    rows: tuple[tuple[str, str], ...]


Block = Heading | Prose | Formula | Symbols


def blocks(equations: Equations, intro: list[str]) -> list[Block]:
    """The document: model, symbols, then one numbered step after the other."""
    model = equations.model
    found: list[Block] = [Heading("Model"), *(Prose(line) for line in intro)]
    count = 0

    def display(left: str, value: Any) -> None:
        nonlocal count
        for i, equation in enumerate(lay_out(left, value)):
            count += 1
            found.append(Formula(equation, count, where=i > 0))

    if isinstance(equations, SaddlePointEquations | FlowEquations):
        display(r"\ell", model.loss)
    display("y", model.channel)
    if model.log_weight != 0:
        display(r"\log g(\varepsilon, \chi^{\ast})", model.log_weight)
    rows = _meanings(equations)
    kinked = model.activation is not None and model.activation.kinked
    if kinked and not isinstance(equations, BayesEquations):
        rows = (*rows, KINK_MEANING)
    found += [Heading("Symbols"), Symbols(rows), Heading("Derivation")]
    number = {step.name: k for k, step in enumerate(equations.derivation, 1)}
    for step in equations.derivation:
        found.append(Heading(_sentence(step.name), number[step.name]))
        premises = tuple(number[p] for p in step.premises)
        found.append(Prose(f"{_sentence(step.rule)}.", "Rule:", premises))
        if step.assumption:
            found.append(Prose(f"{step.assumption}.", "Assumption (not proved):"))
        if step.text:
            found.append(Prose(step.text))
        for name in step.conclusion:
            display(conclusion_name(step, name), presented(step, name))
    return found


def _meanings(equations: Equations) -> tuple[tuple[str, str], ...]:
    if isinstance(equations, SaddlePointEquations):
        return MEANING
    if isinstance(equations, FlowEquations):
        return FLOW_MEANING
    return BAYES_MEANING if isinstance(equations, BayesEquations) else POPULATION_MEANING


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


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
        "strong_signal": r"E_{\mathrm{excess}}|_{\nu\to\infty}",
        "long_sequence": r"E_{\mathrm{excess}}|_{L\to\infty}", "leading": r"M^{(0)}",
        "correction": r"M^{(1)}", "risk": "R",
        "excess_risk": r"E_{\mathrm{excess}}", "posterior": "P_l",
        "mean_d": r"\mathbb{E}[d]", "variance_d": r"\mathrm{Var}[d]",
        **{f"s_{i}_{n}": f"s_{i}|_{{L={k}}}" for i in (1, 2)
           for k, n in ((1, "single"), (2, "pair"))},
        "bayes_excess": r"E_{\mathrm{excess}}^{\mathrm{Bayes}}", "bend": r"(\log\sigma)''(x)",
        "key_scale": "c", "attention": r"\sigma(c\,\chi^{\ast})_l",
        "delta2_weights": r"\delta^2\Phi_{\mathrm{weights}}",
        "delta2_constraint": r"\delta^2\Phi_{\mathrm{constraint}}",
        "delta2_data": r"\delta^2\Phi_{\mathrm{data}}",
    }
    if name in special:
        return special[name]
    head, _, rest = name.partition("_")
    if head in ("dm", "dq"):
        return rf"\dot{{{head[1]}}}_{{{rest}}}"
    if head == "growth":  # growth_m_kv_q_kv
        a, i, b, k = rest.split("_")
        return rf"\partial\dot{{{a}}}_{{{i}}}/\partial {b}_{{{k}}}"
    if head == "slope":
        return rf"g^{{{rest}}}_j"
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
    if name in ("sigma", "posterior") and hasattr(value, "explicit"):
        # exp(log softplus) is softplus to a reader; only the solver needs the logarithm
        return value.explicit().replace(
            lambda e: isinstance(e, sp.exp) and isinstance(e.args[0], log_softplus),
            lambda e: softplus(e.args[0].args[0]),
        )
    return value


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
