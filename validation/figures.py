"""Figures of a study as inline SVG."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from replica.document.figure import pyplot, save, theory_line
from validation.study import CaseResult, StudyResult

SIMULATION = "#c2410c"


def case_figure(r: CaseResult, dimension: int) -> tuple[str, str]:
    """Test error over alpha of one case as SVG, and its description in words.

    The theory line has a band of two standard errors; simulated points have bars of two.
    """
    plt = pyplot()
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "replica",
                                "font.family": "sans-serif", "font.size": 9}):
        figure, axes = plt.subplots(figsize=(4.2, 2.9), layout="constrained")
        figure.patch.set_alpha(0.0)
        axes.patch.set_alpha(0.0)
        _draw(axes, r, dimension)
        axes.set_xlabel("sample ratio alpha")
        axes.set_ylabel("test error")
        axes.legend(frameon=False, fontsize=8)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
        plt.close(figure)
    text = stream.getvalue()
    text = text[text.index("<svg"):]
    # ink follows the page's text colour, so that the figure is readable in dark mode
    text = re.sub(r"#000000|\bblack\b", "currentColor", text)
    text = text.replace('<g id="text_', '<g fill="currentColor" id="text_')
    text = re.sub(r'id="([^"]*)"', rf'id="{_slug(r.case.name)}-\1"', text)
    text = re.sub(r'(url\(#|href="#)([^)"]*)', rf"\1{_slug(r.case.name)}-\2", text)
    description = _describe(r, dimension)
    label = description.replace('"', "")
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1), description


def _draw(axes: Any, r: CaseResult, dimension: int) -> None:
    """Theory line and simulated points of one case."""
    theory_line(axes, [a for a, _ in r.curve], [s for _, s in r.curve])
    axes.errorbar(
        [p[0] for p in r.curve_points], [p[1] for p in r.curve_points],
        yerr=[2 * p[2] for p in r.curve_points], fmt="o", ms=4, capsize=2, color=SIMULATION,
        label=f"simulation, D = {dimension}",
    )
    axes.set_title(f"{r.case.setting.activation.name}, {r.case.setting.task}", fontsize=10)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def study_figure(result: StudyResult, path: Path) -> None:
    """All cases of a study in one figure, one panel each."""
    plt = pyplot()

    drawn = [r for r in result.cases if r.curve]
    columns = min(4, max(1, len(drawn)))
    rows = -(-len(drawn) // columns) or 1
    with plt.rc_context({"font.size": 9}):
        figure, grid = plt.subplots(
            rows, columns, figsize=(2.7 * columns, 2.3 * rows), layout="constrained", squeeze=False
        )
        for axes, r in zip(grid.ravel(), drawn, strict=False):
            _draw(axes, r, result.study.dimensions[-1])
        for axes in grid.ravel()[len(drawn) :]:
            axes.set_visible(False)
        figure.supxlabel("sample ratio alpha", fontsize=9)
        figure.supylabel("test error", fontsize=9)
        if drawn:
            grid[0, 0].legend(frameon=False, fontsize=7)
        save(figure, path)
        plt.close(figure)


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", name)


def _describe(r: CaseResult, dimension: int) -> str:
    first, last = r.curve[0], r.curve[-1]
    text = (
        f"{r.case.name}: theory from {first[1].test_error:.3f} at alpha {first[0]:g} to "
        f"{last[1].test_error:.3f} at alpha {last[0]:g}; {len(r.curve_points)} simulated points "
        f"at D = {dimension}, bars of two standard errors."
    )
    outside = [f"{a:g}" for a, s in r.curve if s.stable is False]
    if outside:
        text += f" Outside replica symmetry (replicon above 1) at alpha {', '.join(outside)}."
    return text
