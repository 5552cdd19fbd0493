"""The stability operator of the replica-symmetric saddle point, as a named step."""

from __future__ import annotations

from typing import Any

import sympy as sp

from replica.derivation.step import Step
from replica.model import RATIO, Model


def replicon_step(model: Model) -> Step:
    """``T_ac = alpha V_a^2 E sum_lm (d f_al/d omega_cm)^2``, entered and not yet derived.

    ``d f/d omega = -(1 + A V)^{-1} A`` with ``A`` the Hessian of the loss by the local fields at
    the proximal minimiser. Replica symmetry needs a spectral radius below 1.
    """
    names = [s.name for s in model.sectors]
    size = len(names)
    A, V = sp.MatrixSymbol("A", size, size), sp.MatrixSymbol("V", size, size)
    response = -(sp.Identity(size) + A * V).inv() * A
    conclusion: dict[str, Any] = {"response": response}
    norm = sp.Function("meansquare")
    for a in model.sectors:
        for c in model.sectors:
            entry = norm(sp.Symbol(f"f_{a.name}"), sp.Symbol(f"omega_{c.name}"))
            conclusion[f"T_{a.name}{c.name}"] = RATIO * a.V**2 * entry
    return Step(
        name="replicon",
        rule="second variation in replica space",
        premises=("free energy at zero temperature", "loss derivatives"),
        conclusion=conclusion,
        text=r"$A$ is the Hessian of the loss by the local fields at the minimiser. The operator "
        "is pointwise, a necessary condition.",
        derived=False,
    )
