"""The explicit table from symbol names to LaTeX, and the words for the symbol list."""

from __future__ import annotations

import re

GREEK = {
    **{n: rf"\{n}" for n in (
        "alpha", "beta", "gamma", "delta", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu",
        "nu", "xi", "pi", "rho", "varrho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
        "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega",
    )},
    "epsilon": r"\varepsilon",
}
FIXED = {
    "D": r"\mathcal{D}",
    "rho_overlap": r"\rho_\ast",
    "rhohat": r"\hat{\rho}",
    "kink": r"\varkappa",
    "Z_1": "Z_1",
    "loss": r"\ell",
    "Qtilde": r"\tilde{Q}",
    "Mtilde": r"\tilde{M}",
    "Wstar": "w^{\\ast}",
    "W": "w",
    "l1": "l", "l2": "m", "l3": "l'", "l4": "m'",
}
HATS = {"mhat": r"\hat{m}", "qhat": r"\hat{q}", "Vhat": r"\hat{V}"}

MEANING = (
    (r"\alpha", "samples per dimension, $N/D$"),
    (r"\beta", "inverse temperature"),
    ("n", "number of replicas"),
    ("y", "label"),
    (r"\xi", "label noise, standard normal"),
    (r"\Delta", "standard deviation of the label noise"),
    (r"\nu", "signal strength"),
    (r"\varepsilon", "index of the relevant token"),
    (r"m_w,\ q_w,\ V_w", "overlap with the teacher, self-overlap, response of sector $w$"),
    (r"\hat{m}_w,\ \hat{q}_w,\ \hat{V}_w", "their conjugates (multipliers)"),
    ("r_w", "ridge strength"),
    (r"\omega^{w}_{l},\ \zeta^{w}_{l}", "cavity field and its noise at token $l$"),
    (r"f^{w}_{l}", r"displacement of the minimiser, $(h^{w}_{l}-\omega^{w}_{l})/V_w$"),
    (r"\sigma_{l}", "attention weight of token $l$"),
    (r"\Gamma^{ac}_{lm},\ T_{ac}", r"Hessian of $\log Z_1$ by the cavity fields; stability "
     "operator"),
    (r"e_{ac},\ c_{ac}", "moves of multipliers and overlaps between sectors $a$ and $c$"),
    (r"\varrho,\ \mathcal{D}", "residual and stiffness of the reduced loss"),
)


BAYES_MEANING = (
    (r"\alpha", "samples per dimension, $N/D$"),
    ("n", "number of replicas beside the teacher"),
    ("y", "label"),
    (r"\xi", "label noise, standard normal"),
    (r"\Delta", "standard deviation of the label noise"),
    (r"\nu", "signal strength"),
    (r"\varepsilon", "index of the relevant token"),
    (r"q_w,\ \hat{q}_w", "overlap of two copies in sector $w$, its conjugate"),
    (r"\omega^{w}_{l},\ \zeta^{w}_{l}", "field that all copies share and its noise at token $l$"),
    (r"G_l", r"weight $g(l, \cdot)$ averaged over what a copy does not know"),
    (r"p_l,\ P_l", "posterior probability of the location with and without the label"),
)
POPULATION_MEANING = (
    ("y", "label"),
    (r"\xi", "label noise, standard normal"),
    (r"\Delta", "standard deviation of the label noise"),
    (r"\nu", "signal strength"),
    (r"\varepsilon", "index of the relevant token"),
    (r"m_w,\ q_w", "overlap of $w$ with its teacher, self-overlap"),
    (r"m_{kv},\ m_{vk},\ q_{kv}", r"cross overlaps $k \cdot v^{\ast}$, $v \cdot k^{\ast}$, "
     r"$k \cdot v$, divided by $D$"),
    (r"\sigma_{l}", "attention weight of token $l$"),
    (r"s_1,\ s_2", r"$\mathbb{E}\,\sigma_\varepsilon$, $\mathbb{E}\sum_l \sigma_l^2$"),
    (r"P_l", "posterior probability that token $l$ is the relevant one"),
)
FLOW_MEANING = (
    (r"\gamma", "step size"),
    ("r_w", "weight decay of sector $w$"),
    *POPULATION_MEANING[:-2],
    (r"g^{w}_{l}", "slope of the loss by the field of sector $w$ at token $l$"),
    (r"H^{ac}_{jl}", "second slope of the loss by the fields of sectors $a, c$ at tokens $j, l$"),
    (r"\zeta^k_l", r"part of $\chi_l$ off the teacher, of variance one"),
    (r"\dot{m},\ \dot{q}", r"change of an overlap per unit of time, which is $D$ steps"),
)
KINK_MEANING = (r"\varkappa", "width over which a kink of the activation is rounded")


def symbol_latex(name: str) -> str:
    """LaTeX of a symbol by its name. Unknown names are set upright so that nothing is lost."""
    if name in FIXED:
        return FIXED[name]
    base, _, index = name.partition("_")
    if base in HATS:
        return f"{HATS[base]}_{{{index}}}"
    head = GREEK.get(base)
    if head is None:
        head = base if re.fullmatch(r"[A-Za-z]", base) else rf"\mathrm{{{_plain(base)}}}"
    if not index:
        return head
    if index in GREEK:
        return f"{head}_{{{GREEK[index]}}}"
    return f"{head}_{{{index if len(index) <= 2 else chr(92) + 'mathrm{' + _plain(index) + '}'}}}"


def function_latex(name: str, position: str) -> str:
    """LaTeX of a token field at a position, e.g. ``omega_k`` at ``l``."""
    if name == "logG":
        return rf"\log G_{{{position}}}"
    base, _, index = name.partition("_")
    head = GREEK.get(base, base if len(base) == 1 else rf"\mathrm{{{_plain(base)}}}")
    if index == "star":
        return rf"{head}^{{\ast}}_{{{position}}}"
    if index:
        return rf"{head}^{{{index}}}_{{{position}}}"
    return rf"{head}_{{{position}}}"


def pair_latex(name: str, first: str, second: str) -> str:
    """LaTeX of a function of two tokens: ``Df_kv`` is the response of ``f^k`` to ``omega^v``."""
    base, _, sectors = name.partition("_")
    half = len(sectors) // 2
    if base == "score":
        return rf"\partial_{{{second}}}\log G_{{{first}}}"
    if base == "Z":
        return "Z"
    if base == "Df":
        return (rf"\frac{{\partial f^{{{sectors[:half]}}}_{{{first}}}}}"
                rf"{{\partial \omega^{{{sectors[half:]}}}_{{{second}}}}}")
    return rf"{GREEK.get(base, base)}^{{{sectors}}}_{{{first}{second}}}"


def _plain(text: str) -> str:
    return text.replace("_", r"\_")
