"""How many operations a minimisation step takes, counted from the generated programs."""

from __future__ import annotations

from collections import Counter

from replica.codegen.programs import Programs
from replica.ir.program import Program

ARITHMETIC = {"add", "sub", "mul", "neg", "token_sum"}


def count_program(program: Program, length: int) -> Counter[str]:
    """Vector operations of one evaluation at one node; uniform values cost nothing."""
    counts: Counter[str] = Counter()
    for i in program.instructions:
        times = {"node": 1, "token": length}.get(i.shape, 0)
        if i.op == "token_sum":
            times = length
        if i.op in ARITHMETIC or i.op in ("maximum", "minimum"):
            counts["arithmetic"] += times
        elif i.op == "div":
            counts["division"] += times
        elif i.op == "sqrt":
            counts["sqrt"] += times
        elif i.op == "call":
            counts[str(i.data)] += times
        elif i.op == "softmax":
            counts["exp"] += length
            counts["arithmetic"] += 4 * length
            counts["division"] += 1
        elif i.op == "centre":
            counts["arithmetic"] += 5 * length
    return counts


def count_newton(length: int, rank: int, sectors: int) -> Counter[str]:
    """Linear algebra of a Newton step in the driver, Woodbury with the rank of the Hessian."""
    token = 4 * sectors**2 + sectors + rank * sectors  # (1 + D V) inverted, P
    token += rank * sectors * (1 + rank)  # C
    token += 2 * rank * sectors + 2 * rank + 6  # right-hand side, step, gradient, acceptance
    return Counter({
        "arithmetic": length * token + 2 * rank**3 + 2 * rank**2 + 20,
        "division": length + rank,
    })


def count_step(programs: Programs, length: int) -> Counter[str]:
    """One accepted Newton step: objective and gradient, curvature, linear algebra."""
    total: Counter[str] = Counter()
    if programs.proximal is not None:
        total += count_program(programs.proximal, length)
    if programs.curvature is not None:
        total += count_program(programs.curvature, length)
        lefts = [n for n in programs.curvature.outputs if n.startswith("left_")]
        sectors = len({n.rsplit("_", 1)[1] for n in programs.curvature.outputs
                       if n.startswith("right_")})
        total += count_newton(length, len(lefts), sectors)
    return total


def bound(counts: Counter[str], seconds: dict[str, float]) -> float:
    """Seconds per node if every unit were busy: counts times the measured cost of each."""
    cheapest = seconds["arithmetic"]
    return sum(n * seconds.get(name, seconds.get("exp", cheapest)) for name, n in counts.items())
