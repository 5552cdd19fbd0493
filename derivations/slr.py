"""Single-location regression: keys and values, one relevant token, squared loss.

Source: arXiv 2509.21936, arXiv 2410.01537.
"""

from __future__ import annotations

import sympy as sp

from derivations.activations import activation as built_in
from derivations.tasks import task as find_task
from replica.model import (
    LABEL,
    NOISE,
    NOISE_STD,
    SIGMA,
    Activation,
    Model,
    Sector,
)
from replica.symbolic.tokens import RELEVANT, TokenSum, index


def single_location(
    task: str = "spiked",
    activation: str | Activation = "softmax",
    *,
    loss: sp.Expr | None = None,
    channel: sp.Expr | None = None,
    rho_k: sp.Expr = sp.S.One,
    rho_v: sp.Expr = sp.S.One,
    strongest: bool = False,
) -> Model:
    """The SLR model of a task and an activation.

    Parameters
    ----------
    task
        ``"spiked"`` or ``"max"``.
    activation
        A built-in name or an :class:`~replica.model.Activation`.
    loss, channel
        Another loss ``loss(y, sigma, z)`` or label ``y(z*, xi)``; squared loss and additive
        Gaussian noise of standard deviation ``Delta`` if omitted.
    rho_k, rho_v
        Variances of the teachers' entries.
    strongest
        ``nu = oo`` (max only): the relevant token is the arg-max.
    """
    k, v = Sector("k", "chi", rho_k), Sector("v", "z", rho_v)
    law, log_weight = find_task(task).build(k, v, strongest=strongest)
    l = index("l")  # noqa: E741
    prediction = TokenSum(SIGMA(l) * v.field(l), l)
    if loss is None:
        loss = (LABEL - prediction) ** 2 / 2
    if channel is None:
        channel = v.teacher(RELEVANT) + NOISE_STD * NOISE
    chosen = built_in(activation) if isinstance(activation, str) else activation
    return Model(
        name=f"{task}-{chosen.name}",
        task=task,
        sectors=(k, v),
        loss=loss,
        channel=channel,
        prediction=prediction,
        law=law,
        log_weight=log_weight,
        activation=chosen,
        sampling_only=strongest,
        constants=dict(chosen.defaults),
    )
