"""The report of a study: ``report.json`` and one self-contained ``report.html``."""

from __future__ import annotations

import html
import json
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import replica
from replica.derivation.chain import ESTIMATORS, SaddlePointEquations, derive_erm
from replica.document.files import check_folder
from replica.document.mathml import display_mathml, inline_mathml
from replica.document.numbers import clean, with_error
from replica.document.prose import html_prose
from replica.errors import UsageError
from validation.comparison import Comparison, agrees, threshold
from validation.figures import case_figure
from validation.study import CaseResult, StudyResult

KIND = "replica-report"
SCHEMA_VERSION = 1


def check_destination(folder: Path) -> None:
    """Raise ``UsageError`` unless the folder is new, empty, or holds an earlier report."""
    allowed = "a new folder, an empty one, or one that holds an earlier report"
    if folder.resolve() == Path.cwd():
        raise UsageError("output", folder, "a folder other than the current one")
    check_folder("output", folder)
    if folder.exists() and any(folder.iterdir()) and not _is_ours(folder):
        raise UsageError("output", folder, allowed)


def _is_ours(folder: Path) -> bool:
    names = {p.name for p in folder.iterdir()}
    if not names <= {"report.json", "report.html"} or "report.json" not in names:
        return False
    try:
        found = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("kind") == KIND


def write_report(result: StudyResult, folder: Path) -> list[Path]:
    """Write both files into ``folder``, replacing an earlier report as a whole."""
    check_destination(folder)
    folder = folder.resolve()  # a link keeps pointing where it points
    document = json.dumps(clean(report_document(result)), indent=2, allow_nan=False)
    page = report_page(result)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as work:
            fresh = Path(work) / "new"
            fresh.mkdir()
            (fresh / "report.json").write_text(document + "\n", encoding="utf-8")
            (fresh / "report.html").write_text(page, encoding="utf-8")
            if folder.exists():
                os.replace(folder, Path(work) / "old")
            os.replace(fresh, folder)
    except OSError as error:
        raise UsageError(
            "output", folder, f"a folder that can be written ({error.strerror})"
        ) from None
    return [folder / "report.html", folder / "report.json"]


# -- data -----------------------------------------------------------------------------------------


def report_document(result: StudyResult) -> dict[str, Any]:
    """Everything the report shows, as JSON."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "inputs": inputs_of(result),
        "warnings": warnings_of(result),
        "passed": result.passed,
        "interrupted": result.interrupted,
        "criterion": criterion(result),
        "cases": [_case_document(r) for r in result.cases],
        "comparisons": [c.document() for c in by_size(result.comparisons)],
        "provenance": provenance(result),
    }


def inputs_of(result: StudyResult) -> dict[str, Any]:
    s = result.study
    return {
        "study": s.name, "dimensions": list(s.dimensions), "seeds": list(s.seeds),
        "nodes": s.nodes, "curve_nodes": s.curve_nodes, "seed": s.seed, "level": s.level,
        "cases": [{**c.setting.inputs(), "alpha": c.alpha} for c in s.cases],
    }


def warnings_of(result: StudyResult) -> list[str]:
    found = list(result.study.notes)
    for r in result.cases:
        found += [f"{r.case.name}: {m}" for m in r.theory.messages]
        bad = sum(not s.converged for seeds in r.simulated.values() for s in seeds)
        if bad:
            found.append(f"{r.case.name}: training did not converge for {bad} data sets")
        if r.theory.stable is False:
            found.append(f"{r.case.name}: replicon {r.theory.replicon:.3g} above 1, not counted")
    if len(result.study.dimensions) < 2:
        found.append("a single dimension: the 1/D bias of the simulation is not removed")
    return found


def _case_document(r: CaseResult) -> dict[str, Any]:
    return {
        "name": r.case.name,
        "setting": {**r.case.setting.inputs(), "alpha": r.case.alpha},
        "theory": r.theory.document(),
        "simulation": {
            str(d): [s.document() for s in seeds] for d, seeds in r.simulated.items()
        },
        "curve": [
            {"alpha": a, "test_error": s.test_error,
             "standard_error": s.standard_errors["test_error"], "replicon": s.replicon,
             "stable": s.stable, "converged": s.converged}
            for a, s in r.curve
        ],
        "curve_points": [
            {"alpha": a, "test_error": v, "standard_error": e} for a, v, e in r.curve_points
        ],
    }


def provenance(result: StudyResult) -> dict[str, Any]:
    import mpmath
    import numpy
    import scipy
    import sympy

    backends = sorted({r.theory.backend for r in result.cases})
    return {
        "replica": replica.__version__, "python": platform.python_version(),
        "numpy": numpy.__version__, "scipy": scipy.__version__, "sympy": sympy.__version__,
        "mpmath": mpmath.__version__, "machine": platform.machine(),
        "system": platform.system(), "cores": os.cpu_count(), "backend": ", ".join(backends),
        "seconds": round(result.seconds, 1), "command": result.study.command,
    }


def by_size(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Largest |z| first."""
    return sorted(comparisons, key=lambda c: -abs(c.z))


def criterion(result: StudyResult) -> dict[str, Any]:
    counted = [c for c in result.comparisons if c.counted]
    smallest = min((c.p for c in counted), default=None)
    return {
        "text": f"All {len(counted)} counted comparisons together: each is a two-sided Student t "
                f"test, and none may have a p-value below 1 - (1 - {result.study.level:g})^(1/m). "
                f"If every equation holds this rejects with probability about "
                f"{result.study.level:g}.",
        "level": result.study.level,
        "counted": len(counted),
        "not_counted": len(result.comparisons) - len(counted),
        "threshold": threshold(len(counted), result.study.level),
        "smallest_p": smallest,
    }


# -- page -----------------------------------------------------------------------------------------

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --soft: #5b6470; --line: #d7dce2;
  --card: #f6f7f9; --good: #0b6e4f; --bad: #b3261e; --note: #8a5a00; --page: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e9ec; --soft: #a3acb8; --line: #3a414b;
  --card: #1d2127; --good: #5fd3a6; --bad: #ff8a80; --note: #f0c36d; --page: #14171b; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { margin: 2.4rem 0 .6rem; font-size: 1.25rem; }
h3 { margin: 1.4rem 0 .3rem; font-size: 1.02rem; }
.verdict { border-left: 5px solid var(--good); background: var(--card); padding: .8rem 1rem;
  margin: 1rem 0; } .verdict.fail { border-color: var(--bad); }
.verdict strong { color: var(--good); } .verdict.fail strong { color: var(--bad); }
.soft { color: var(--soft); } .note { color: var(--note); }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child, td.words, th.words { text-align: left; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(19rem, 1fr)); gap: 1rem; }
figure { margin: 0; } figure svg { width: 100%; height: auto; display: block; }
figcaption { font-size: .82rem; color: var(--soft); }
math[display="block"] { display: block math; overflow-x: auto; overflow-y: hidden;
  padding: .25rem 0; margin: .3rem 0; }
code { background: var(--card); padding: .1rem .3rem; }
@media print { body { max-width: none; } details { display: block; } .plots figure
  { break-inside: avoid; } }
"""


def report_page(result: StudyResult) -> str:
    """The whole page: no script, no request to anything outside."""
    verdict = verdict_of(result)
    c = criterion(result)
    parts = [
        "<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>replica report: {html.escape(result.study.name)}</title>",
        f"<style>{STYLE}</style></head><body>",
        f"<h1>Replica theory against simulation: {html.escape(result.study.name)}</h1>",
        f'<div class="verdict{"" if result.passed else " fail"}"><strong>{verdict}.</strong> '
        f"{c['counted']} comparisons counted, smallest p-value {_number(c['smallest_p'])}, "
        f"threshold {_number(c['threshold'])}."
        + (f" {c['not_counted']} more are shown but not counted." if c["not_counted"] else "")
        + f'<br><span class="soft">{html.escape(c["text"])}</span></div>',
        _warnings_section(result),
        "<h2>Cases</h2>", _case_table(result),
        "<h2>Test error against the sample ratio</h2>", _plots(result),
        "<h2>All comparisons, largest |z| first</h2>",
        '<p class="soft">Simulation: means over seeds at '
        + " and ".join(f"D = {d}" for d in result.study.dimensions)
        + (", extrapolated in 1/D to infinite dimension" if len(result.study.dimensions) > 1
           else ", not extrapolated")
        + ". Brackets: one standard error in the last digits.</p>",
        _comparison_table(result),
        "<h2>Equations used</h2>", _equations(result),
        "<h2>Provenance</h2>", _provenance_table(result),
        "</body></html>",
    ]
    return "\n".join(parts)


def verdict_of(result: StudyResult) -> str:
    """The verdict in words."""
    if result.interrupted:
        return "Interrupted: only finished cases are shown"
    if result.passed:
        return "Theory and simulation agree"
    if not any(c.counted for c in result.comparisons):
        return "Inconclusive: nothing could be compared"
    if agrees([c for c in result.comparisons if c.counted], result.study.level):
        return "Incomplete: some cases could not be compared"
    return "Theory and simulation do not agree"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"


def _cell(value: float, error: float) -> str:
    return html.escape(with_error(value, error))


def _warnings_section(result: StudyResult) -> str:
    found = warnings_of(result)
    if not found:
        return ""
    items = "".join(f"<li>{html.escape(w)}</li>" for w in found)
    return f'<h2>Warnings</h2><ul class="note">{items}</ul>'


def _case_table(result: StudyResult) -> str:
    rows = []
    for r in result.cases:
        counted = [c for c in r.comparisons if c.counted]
        worst = max((abs(c.z) for c in counted), default=float("nan"))
        state = f"largest |z| {worst:.2f}" if counted else r.comparisons[0].reason
        replicon = "-" if r.theory.replicon is None else _cell(
            r.theory.replicon, r.theory.standard_errors["replicon"]
        )
        e = r.theory.standard_errors
        rows.append(
            f"<tr><td>{html.escape(r.case.name)}</td>"
            f"<td>{_cell(r.theory.test_error, e['test_error'])}</td>"
            f"<td>{_cell(r.theory.train_loss, e['train_loss'])}</td><td>{replicon}</td>"
            f'<td class="words{"" if counted else " note"}">{html.escape(state)}</td></tr>'
        )
    return ('<div class="wide"><table><thead><tr><th>case</th><th>test error</th>'
            '<th>train loss/D</th><th>replicon</th><th class="words">comparison</th></tr></thead>'
            f"<tbody>{''.join(rows)}</tbody></table></div>")


def _plots(result: StudyResult) -> str:
    figures = []
    for r in result.cases:
        if not r.curve:
            continue
        svg, description = case_figure(r, result.study.dimensions[-1])
        figures.append(f"<figure>{svg}<figcaption>{html.escape(description)}</figcaption></figure>")
    return f'<div class="plots">{"".join(figures)}</div>'


def _comparison_table(result: StudyResult) -> str:
    rows = []
    for c in by_size(result.comparisons):
        kind = "" if c.counted else ' class="note"'
        rows.append(
            f"<tr{kind}><td>{html.escape(c.case)}</td>"
            f'<td class="words">{html.escape(c.observable)}</td>'
            f"<td>{_cell(c.theory, c.theory_error)}</td>"
            f"<td>{_cell(c.simulation, c.simulation_error)}</td><td>{c.z:+.2f}</td>"
            f"<td>{c.p:.2g}</td><td>{'yes' if c.counted else 'no'}</td></tr>"
        )
    return ('<div class="wide"><table><thead><tr><th>case</th><th class="words">observable</th>'
            "<th>theory</th><th>simulation</th><th>z</th><th>p</th><th>counted</th></tr></thead>"
            f"<tbody>{''.join(rows)}</tbody></table></div>")


def _equations(result: StudyResult) -> str:
    """The general equations once, then what each activation adds."""
    out = []
    shown: set[str] = set()
    for r in result.cases:
        setting = r.case.setting
        equations = derive_erm(setting.model())
        if not shown:
            out.append("<h3>Free energy and saddle-point equations</h3>")
            out += _steps(equations, ("manifold", "cavity fields", "overlap equations",
                                      "conjugate equations", "test error", "readout eliminated"))
        if setting.task not in shown:
            shown.add(setting.task)
            out.append(f"<h3>Estimators, {html.escape(setting.task)} data</h3>")
            out.append('<p class="soft">Forms of smaller sampling error that the solver uses '
                       "where they are the better ones.</p>")
            out += _steps(equations, (*ESTIMATORS, "marginal cavity law"))
        if setting.activation.name not in shown:
            shown.add(setting.activation.name)
            out.append(f"<h3>{html.escape(setting.activation.name)}</h3>")
            out += _steps(equations, ("attention field",))
    return "".join(out)


def _steps(equations: SaddlePointEquations, names: tuple[str, ...]) -> list[str]:
    out = []
    for name in names:
        if name not in equations.derivation:
            continue
        step = equations.derivation[name]
        out.append(f'<p class="soft">{html.escape(step.name)}: '
                   f"{html_prose(step.rule, inline_mathml)}</p>")
        out += [display_mathml(step, key) for key in step.conclusion]
    return out


def _provenance_table(result: StudyResult) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(str(k))}</td><td class=\"words\">{html.escape(str(v))}</td></tr>"
        for k, v in provenance(result).items()
    )
    return f'<div class="wide"><table><tbody>{rows}</tbody></table></div>'

