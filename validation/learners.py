"""Learners side by side: trained activations and the Bayes-optimal one over the sample ratio."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from derivations.setting import make_setting
from replica.document.numbers import with_error
from replica.errors import UsageError
from replica.model import Activation
from replica.saddle_point.ridge import solutions
from replica.saddle_point.solve import SaddlePointProblem, SolverOptions
from validation.processes import run_jobs

ALGORITHMIC, OPTIMAL = "Bayes algorithmic", "Bayes optimal"
SIGNIFICANT = 3.0
"""Differences of fewer standard errors are called within errors."""
PAPER = (("spiked", 1.0), ("spiked", 2.0), ("max", math.inf))
"""Task and signal of the finite-sample figure of arXiv 2509.21936."""


@dataclass(frozen=True)
class Point:
    """Test error of one learner at one sample ratio.

    ``sound`` says whether the number may be compared: converged, and replica symmetry stable.
    ``ridge`` is empty for the Bayes-optimal learner.
    """

    alpha: float
    test_error: float
    standard_error: float
    converged: bool
    stable: bool
    replicon: float | None = None
    ridge: Mapping[str, float] = field(default_factory=dict)
    messages: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        return self.converged and self.stable

    def document(self) -> dict[str, Any]:
        return {
            "alpha": self.alpha, "test_error": self.test_error,
            "standard_error": self.standard_error, "converged": self.converged,
            "stable": self.stable, "replicon": self.replicon, "ridge": dict(self.ridge),
        }


@dataclass(frozen=True)
class Difference:
    """Test error of ``learner`` less that of ``other``.

    ``verdict`` is ``below``, ``above`` or ``within errors`` (of three standard errors), or
    ``not compared`` where one of the two did not converge or is outside replica symmetry.
    """

    learner: str
    other: str
    alpha: float
    value: float
    standard_error: float
    verdict: str

    def document(self) -> dict[str, Any]:
        return {
            "learner": self.learner, "other": self.other, "alpha": self.alpha,
            "difference": self.value, "standard_error": self.standard_error,
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class Panel:
    """All learners of one task and signal. ``curves`` has points in the order of the ratios."""

    task: str
    nu: float
    curves: Mapping[str, tuple[Point, ...]]

    def differences(self) -> list[Difference]:
        """The first activation against every other learner at every ratio."""
        names = list(self.curves)
        found = []
        for other in names[1:]:
            for mine, theirs in zip(self.curves[names[0]], self.curves[other], strict=True):
                found.append(difference(names[0], mine, other, theirs))
        return found

    def statements(self) -> list[str]:
        """What the differences say, one sentence for each other learner."""
        by_other: dict[str, dict[str, list[Difference]]] = {}
        for d in self.differences():
            by_other.setdefault(d.other, {}).setdefault(d.verdict, []).append(d)
        sentences = []
        for other, verdicts in by_other.items():
            parts = []
            for verdict in ("below", "above", "within errors", "not compared"):
                ds = verdicts.get(verdict)
                if not ds:
                    continue
                where = ", ".join(
                    f"{d.alpha:g} ({with_error(d.value, d.standard_error)})"
                    if verdict == "within errors" else f"{d.alpha:g}" for d in ds
                )
                parts.append(f"{verdict} at alpha {where}")
            first = next(iter(verdicts.values()))[0].learner
            sentences.append(f"{first} against {other}: " + "; ".join(parts))
        return sentences

    def document(self) -> dict[str, Any]:
        return {
            "task": self.task, "nu": self.nu,
            "curves": {n: [p.document() for p in c] for n, c in self.curves.items()},
            "differences": [d.document() for d in self.differences()],
            "statements": self.statements(),
        }


def difference(learner: str, mine: Point, other: str, theirs: Point) -> Difference:
    """The difference of two points and what it is worth.

    The standard errors are combined as if independent; the two averages may share nodes, which
    makes the true error of the difference smaller as a rule.
    """
    value = mine.test_error - theirs.test_error
    error = math.hypot(mine.standard_error, theirs.standard_error)
    verdict = "within errors"
    if not (mine.sound and theirs.sound):
        verdict = "not compared"
    elif abs(value) > SIGNIFICANT * error:
        verdict = "below" if value < 0 else "above"
    return Difference(learner, other, mine.alpha, value, error, verdict)


@dataclass(frozen=True)
class Request:
    """What to compare. ``words`` are model options without task, activation, nu and alpha."""

    panels: tuple[tuple[str, float], ...]
    activations: tuple[str | Activation, ...]
    alphas: tuple[float, ...]
    words: Mapping[str, Any]
    nodes: int = 2**14
    seed: int = 0
    workers: int | None = None

    def __post_init__(self) -> None:
        if not self.activations:
            raise UsageError("activation", "nothing", "at least one")
        SolverOptions(nodes=self.nodes, seed=self.seed)
        names = []
        for task, nu in self.panels:
            for activation in self.activations:
                s = self.setting(task, nu, activation)
                names.append((task, nu, s.activation.name))
                if not s.noise > 0:
                    raise UsageError("noise", s.noise, "> 0: the posterior needs a likelihood")
        if len(set(names)) < len(names):
            raise UsageError("activation", ", ".join(n for *_, n in names[: len(self.activations)]),
                             "each name once, each nu once")

    def setting(self, task: str, nu: float, activation: str | Activation) -> Any:
        return make_setting(
            task=task, nu=nu, activation=activation, optimise=True,
            **self._words(activation),
        )

    def _words(self, activation: str | Activation) -> dict[str, Any]:
        """``shift`` is erf's alone."""
        words = dict(self.words)
        if activation != "erf":
            words.pop("shift", None)
        return words


@dataclass(frozen=True)
class _Job:
    request: Request
    panel: int
    activation: int | None
    """Place among the activations; ``None`` for the Bayes-optimal learner."""


def _work(job: _Job) -> tuple[_Job, dict[str, tuple[Point, ...]]]:
    return job, _trained(job) if job.activation is not None else _bayes(job)


def _trained(job: _Job) -> dict[str, tuple[Point, ...]]:
    from replica.derivation.chain import derive_erm

    r = job.request
    task, nu = r.panels[job.panel]
    assert job.activation is not None
    setting = r.setting(task, nu, r.activations[job.activation])
    problem = SaddlePointProblem(
        derive_erm(setting.model()), setting.values(), setting.lengths,
        SolverOptions(nodes=r.nodes, seed=r.seed, threads=1),
    )
    return {setting.activation.name: tuple(
        Point(a, s.test_error, s.standard_errors["test_error"], s.converged, s.stable is not False,
              s.replicon, s.ridge, s.messages)
        for a, s in zip(r.alphas, solutions(problem, setting.optimal, r.alphas), strict=True)
    )}


def _bayes(job: _Job) -> dict[str, tuple[Point, ...]]:
    from replica.derivation.chain import derive_bayes
    from replica.state_evolution.evolution import StateEvolution
    from replica.state_evolution.phases import phases

    r = job.request
    setting = r.setting(*r.panels[job.panel], r.activations[0])
    evolution = StateEvolution(
        derive_bayes(setting.model()), setting.data_values(), setting.lengths, r.nodes, r.seed
    )
    found: dict[str, list[Point]] = {ALGORITHMIC: [], OPTIMAL: []}
    for phase in phases(evolution, r.alphas):
        for name, index in ((ALGORITHMIC, phase.algorithmic),
                            (OPTIMAL, phase.information_theoretic)):
            p = phase.fixed_points[index]
            found[name].append(Point(
                phase.alpha, p.test_error, p.standard_errors["test_error"], p.converged, True,
                messages=phase.messages,
            ))
    return {n: tuple(c) for n, c in found.items()}


def compare_learners(
    request: Request, progress: Callable[[int, int], None] | None = None
) -> tuple[tuple[Panel, ...], bool]:
    """Curves of all learners, and whether Ctrl-C stopped some of them; finished ones are kept."""
    jobs = [_Job(request, p, a) for p in reversed(range(len(request.panels)))
            for a in (*range(len(request.activations)), None)]
    done, interrupted = run_jobs(_work, jobs, request.workers, progress)
    panels = []
    for i, (task, nu) in enumerate(request.panels):
        mine = sorted((d for d in done if d[0].panel == i), key=lambda d: _order(d[0]))
        curves = {name: curve for _, found in mine for name, curve in found.items()}
        panels.append(Panel(task, nu, curves))
    return tuple(panels), interrupted


def _order(job: _Job) -> float:
    return math.inf if job.activation is None else job.activation


def warnings(panels: Sequence[Panel]) -> list[str]:
    """Messages of all points, and points outside replica symmetry."""
    found = []
    for panel in panels:
        for name, curve in panel.curves.items():
            for p in curve:
                where = f"{panel.task} nu={panel.nu:g} {name} alpha {p.alpha:g}"
                found += [f"{where}: {m}" for m in p.messages]
                if not p.stable:
                    found.append(f"{where}: replicon {p.replicon:.3g} > 1, not compared")
    return found
