"""Curves of theory with error bands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

THEORY = "#0b5394"
UNSTABLE = "#b45f06"


def pyplot() -> Any:
    """Matplotlib's interface, drawing into files alone; imported when first needed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def draw_curve(
    path: Path, alphas: Sequence[float], solutions: Sequence[Any], title: str,
    metastable: Sequence[tuple[float, Any]] = (),
) -> None:
    """Test error against alpha: a line with a band of two standard errors.

    Points where the replicon exceeds 1 are marked, points that did not converge left out;
    ``metastable`` has the ratios and solutions of higher free energy.
    """
    plt = pyplot()

    figure, axes = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
    theory_line(axes, alphas, solutions)
    if metastable:
        axes.plot([a for a, _ in metastable], [s.test_error for _, s in metastable], "o",
                  mfc="none", color=THEORY, ms=4, label="metastable")
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


def draw_population(path: Path, found: Sequence[tuple[Any, Any, Any]], title: str) -> None:
    """Excess risk of an activation and of Bayes against ``nu`` or the mean length.

    ``found`` holds (setting, result, warning).
    """
    plt = pyplot()

    over_nu = len({s.nu for s, _, _ in found}) > 1
    figure, axes = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
    groups: dict[Any, list[tuple[float, float, float]]] = {}
    for s, r, _ in found:
        mean = sum(k * p for k, p in s.lengths.items())
        x = s.nu if over_nu else mean
        body = r.document()
        groups.setdefault(mean if over_nu else s.nu, []).append(
            (x, float(body["excess_risk"]), float(body["bayes_excess_risk"]))
        )
    for i, (other, points) in enumerate(sorted(groups.items())):
        x, mine, bayes = zip(*sorted(points), strict=True)
        note = "" if len(groups) == 1 else f", L = {other:g}"
        shade = 1.0 - 0.6 * i / max(1, len(groups) - 1)
        axes.plot(x, mine, color=THEORY, alpha=shade, marker=".", label=f"activation{note}")
        axes.plot(x, bayes, "--", color="#222222", alpha=shade, label=f"Bayes{note}")
    positive = [y for points in groups.values() for p in points for y in p[1:] if y > 0]
    if positive and max(positive) > 20 * min(positive):
        axes.set_yscale("log")
    if not over_nu and len({p[0] for points in groups.values() for p in points}) > 3:
        axes.set_xscale("log")
    axes.set_xlabel(r"signal strength $\nu$" if over_nu else "length $L$")
    axes.set_ylabel("excess risk")
    axes.set_title(title)
    axes.legend(frameon=False)
    save(figure, path)
    plt.close(figure)


def draw_flow(path: Path, found: Sequence[Any], title: str, step: float) -> None:
    """Overlaps against time, one panel per start, bands of two standard errors."""
    plt = pyplot()

    from replica.dynamics.starts import OVERLAPS

    figure, panels = plt.subplots(
        1, len(found), figsize=(1.0 + 3.9 * len(found), 3.6), layout="constrained", sharey=True,
        squeeze=False,
    )
    styles = {"m_k": ("#0b5394", "-"), "q_k": ("#0b5394", "--"), "m_v": ("#b45f06", "-"),
              "q_v": ("#b45f06", "--"), "m_kv": ("#666666", ":"), "m_vk": ("#666666", "-."),
              "q_kv": ("#222222", ":")}
    for axes, t in zip(panels[0], found, strict=True):
        for i, name in enumerate(OVERLAPS):
            colour, line = styles[name]
            y, e = t.overlaps[:, i], t.standard_errors[:, i]
            letters = name.partition("_")
            axes.plot(t.times, y, line, color=colour, lw=1.5,
                      label=f"${letters[0]}_{{{letters[2]}}}$")
            axes.fill_between(t.times, y - 2 * e, y + 2 * e, color=colour, alpha=0.2, lw=0)
        axes.set_title(f"start: {t.start}", fontsize=10)
        axes.set_xlabel(r"step size $\times$ samples / $D$" if step == 0 else r"samples / $D$")
    panels[0][0].set_ylabel("overlap")
    lines, names = panels[0][0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside right center", frameon=False)
    figure.suptitle(title)
    save(figure, path)
    plt.close(figure)


def draw_phases(path: Path, phases: Sequence[Any], title: str) -> None:
    """Test errors of all fixed points against alpha; the hard phase is shaded."""
    plt = pyplot()

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


PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours told apart by colour-blind readers (Okabe and Ito)."""


def draw_learners(path: Path, panels: Sequence[Any]) -> None:
    """Test error against alpha, one panel per task and signal, bands of two standard errors.

    Curves of learners with ridge strengths are coloured, those without are black; points that did
    not converge are left out and points outside replica symmetry crossed.
    """
    plt = pyplot()
    import numpy as np

    kept = [p for p in panels if p.curves]
    figure, axes_row = plt.subplots(
        1, len(kept), figsize=(1.6 + 3.5 * len(kept), 3.6), layout="constrained", sharey=True,
        squeeze=False,
    )
    for axes, panel in zip(axes_row[0], kept, strict=True):
        colours, dashes = iter(PALETTE * 4), iter(("--", "-", ":"))
        for name, curve in panel.curves.items():
            points = [p for p in curve if p.converged]
            trained = any(p.ridge for p in curve)
            colour, line = (next(colours), "-") if trained else ("#000000", next(dashes))
            x, y, e = (np.array([getattr(p, n) for p in points])
                       for n in ("alpha", "test_error", "standard_error"))
            axes.plot(x, y, line, color=colour, lw=1.5, marker=".", ms=4, label=name)
            axes.fill_between(x, y - 2 * e, y + 2 * e, color=colour, alpha=0.2, lw=0)
            outside = [p for p in points if not p.stable]
            axes.plot([p.alpha for p in outside], [p.test_error for p in outside], "x",
                      color=colour, ms=7)
        if len({p.alpha for c in panel.curves.values() for p in c}) > 1:
            axes.set_xscale("log")
        axes.set_xlabel(r"sample ratio $\alpha$")
        signal = r"\infty" if panel.nu == float("inf") else f"{panel.nu:g}"
        axes.set_title(rf"{panel.task}, $\nu={signal}$", fontsize=10)
    axes_row[0][0].set_ylabel("test error")
    lines, names = axes_row[0][0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside right center", frameon=False)
    save(figure, path)
    plt.close(figure)


def draw_stability(path: Path, found: Any, title: str) -> None:
    """The replicon over the plane in colour, the line where it is 1, crosses where not converged.

    ``found`` has ``plane`` (names and values of the axes), ``points`` and ``line``.
    """
    plt = pyplot()
    import numpy as np
    from matplotlib.colors import TwoSlopeNorm

    plane = found.plane
    at = {(p.x, p.y): p for p in found.points}
    xs, ys = sorted(plane.xs), sorted(plane.ys)
    grid = np.array([[np.log2(at[x, y].replicon) if (x, y) in at and at[x, y].replicon else np.nan
                      for x in xs] for y in ys])
    figure, axes = plt.subplots(figsize=(5.6, 3.8), layout="constrained")
    reach = max(0.5, float(np.nanmax(np.abs(grid), initial=0.5)))
    picture = axes.pcolormesh(xs, ys, grid, cmap="PuOr_r", shading="nearest",
                              norm=TwoSlopeNorm(0.0, -reach, reach))
    ticks = np.arange(np.ceil(-reach), np.floor(reach) + 1)
    bar = figure.colorbar(picture, ax=axes, ticks=ticks)
    bar.ax.set_yticklabels([f"{2.0**t:g}" for t in ticks])
    bar.set_label("replicon")
    if found.line:
        x, y, e = (np.array([getattr(c, n) for c in found.line])
                   for n in ("x", "y", "standard_error"))
        axes.errorbar(x, y, 2 * e, color="black", fmt=".-", lw=1.2, ms=5, capsize=2,
                      label="replicon 1")
    apart = [p for p in found.points if p.parts]
    if apart:
        axes.plot([p.x for p in apart], [p.y for p in apart], "s", mfc="none", mec="black", ms=9,
                  label="simulation parts from theory")
    lost = [p for p in found.points if not p.converged]
    if lost:
        axes.plot([p.x for p in lost], [p.y for p in lost], "x", color="#444444", ms=5,
                  label="not converged")
    for values, scale in ((xs, axes.set_xscale), (ys, axes.set_yscale)):
        if values[0] > 0 and values[-1] > 10 * values[0]:
            scale("log")
    labels = {"alpha": r"sample ratio $\alpha$", "nu": r"signal strength $\nu$",
              "noise": r"label noise $\Delta$", "reg": "ridge strength $r$",
              "reg_k": "ridge strength $r_k$", "reg_v": "ridge strength $r_v$"}
    axes.set_xlabel(labels[plane.x])
    axes.set_ylabel(labels[plane.y])
    axes.set_title(title)
    if found.line or lost or apart:
        figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    save(figure, path)
    plt.close(figure)
