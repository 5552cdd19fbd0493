"""Curves of theory with error bands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

THEORY = "#0b5394"
UNSTABLE = "#b45f06"


def draw_curve(path: Path, alphas: Sequence[float], solutions: Sequence[Any], title: str) -> None:
    """Test error against alpha: a line with a band of two standard errors.

    Points where the replicon exceeds 1 are marked, points that did not converge left out.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
    theory_line(axes, alphas, solutions)
    axes.set_xlabel(r"sample ratio $\alpha$")
    axes.set_ylabel("test error")
    axes.set_title(title)
    axes.legend(frameon=False)
    save(figure, path)
    plt.close(figure)


def theory_line(axes: Any, alphas: Sequence[float], solutions: Sequence[Any]) -> None:
    """The line, its band, and the marks of unstable points."""
    import numpy as np

    kept = [(a, s) for a, s in zip(alphas, solutions, strict=True) if s.converged]
    kept.sort(key=lambda pair: pair[0])
    x = np.array([a for a, _ in kept])
    y = np.array([s.test_error for _, s in kept])
    e = np.array([s.standard_errors["test_error"] for _, s in kept])
    marker = "." if len(x) < 2 else None
    axes.plot(x, y, color=THEORY, lw=1.5, marker=marker, label="replica theory")
    axes.fill_between(x, y - 2 * e, y + 2 * e, color=THEORY, alpha=0.2, lw=0)
    outside = np.array([s.stable is False for _, s in kept], dtype=bool)
    if outside.any():
        axes.plot(x[outside], y[outside], "x", color=UNSTABLE, ms=6,
                  label="replica symmetry unstable")


def save(figure: Any, path: Path) -> None:
    """Write the whole figure or nothing; text stays text in SVG."""
    import os

    import matplotlib

    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "replica"}):
            figure.savefig(temporary, format=path.suffix[1:].lower(), dpi=150,
                           metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def draw_phases(path: Path, phases: Sequence[Any], title: str) -> None:
    """Test errors of all fixed points against alpha; the hard phase is shaded."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
    kinds = (
        ("uninformed", "algorithmic", "-", UNSTABLE), ("between", "unstable", ":", "#666666"),
        ("informed", "from the teacher", "--", THEORY),
    )
    for start, label, style, colour in kinds:
        kept = [(p.alpha, f.test_error) for p in phases for f in p.fixed_points
                if f.start in (start, "both") and (f.start == start or start == "uninformed")]
        if kept:
            marker = "." if len(kept) < 2 else None
            axes.plot(*zip(*kept, strict=True), style, color=colour, marker=marker, label=label)
    hard = [p.alpha for p in phases if p.hard]
    if hard:
        axes.axvspan(min(hard), max(hard), color="#999999", alpha=0.2, lw=0, label="hard")
    axes.set_xlabel(r"sample ratio $\alpha$")
    axes.set_ylabel("test error")
    axes.set_title(title)
    axes.legend(frameon=False)
    save(figure, path)
    plt.close(figure)
