"""A study: cases, dimensions and seeds; run in parallel; theory against simulation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from derivations.setting import Setting, make_setting, parse_alphas
from replica.codegen.c_compiler import working_compiler
from replica.errors import UsageError
from replica.saddle_point.solution import Solution
from replica.saddle_point.solve import SolverOptions
from validation.comparison import LEVEL, Comparison, agrees, compare, extrapolate, from_samples
from validation.data import check_memory
from validation.processes import run_jobs
from validation.results import SeedResult

OBSERVABLES = ("m_k", "q_k", "m_v", "q_v", "test_error", "train_loss")
CROSS = ("m_kv", "m_vk", "q_kv")


@dataclass(frozen=True)
class Case:
    """One setting at one sample ratio, and the curve drawn through it."""

    setting: Setting
    alpha: float
    curve: tuple[float, ...] = ()
    curve_simulated: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        s = self.setting
        length = "-".join(str(k) for k in s.lengths)
        return (f"{s.task} {s.activation.name} nu={s.nu:g} L={length} alpha={self.alpha:g} "
                f"r={s.reg_k:g}" + ("" if s.reg_k == s.reg_v else f"/{s.reg_v:g}"))


@dataclass(frozen=True)
class Study:
    """What to run. ``seeds`` has one count per dimension."""

    name: str
    cases: tuple[Case, ...]
    dimensions: tuple[int, ...]
    seeds: tuple[int, ...]
    nodes: int
    curve_nodes: int
    curve_seeds: int
    seed: int = 0
    level: float = LEVEL
    command: str = ""
    workers: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CaseResult:
    """Theory, simulations by dimension, the curve, and simulated points of the curve."""

    case: Case
    theory: Solution
    simulated: Mapping[int, tuple[SeedResult, ...]]
    curve: tuple[tuple[float, Solution], ...]
    curve_points: tuple[tuple[float, float, float], ...]
    comparisons: tuple[Comparison, ...]
    seconds: float

    @property
    def inside(self) -> bool:
        """Whether replica symmetry is expected to hold."""
        return self.theory.stable is True


@dataclass(frozen=True)
class StudyResult:
    """All results and the verdict."""

    study: Study
    cases: tuple[CaseResult, ...]
    passed: bool
    seconds: float
    interrupted: bool = False

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        return tuple(c for r in self.cases for c in r.comparisons)


def quick_study(seed: int = 0) -> Study:
    """All four activations and both tasks, two dimensions each."""
    rows: list[dict[str, Any]] = [
        {"task": "spiked", "activation": "softmax", "nu": 2, "alpha": 2.0, "reg": 0.5},
        {"task": "spiked", "activation": "softplus", "nu": 2, "alpha": 2.0, "reg": 0.5},
        {"task": "spiked", "activation": "linear", "nu": 2, "alpha": 4.0, "reg": 1.0},
        {"task": "spiked", "activation": "erf", "nu": 2, "alpha": 4.0, "reg": 1.0},
        {"task": "max", "activation": "softmax", "nu": "inf", "alpha": 3.0, "reg": 0.5},
        {"task": "max", "activation": "softplus", "nu": "inf", "alpha": 3.0, "reg": 0.5},
        {"task": "max", "activation": "linear", "nu": "inf", "alpha": 4.0, "reg": 0.5},
        {"task": "max", "activation": "erf", "nu": "inf", "alpha": 4.0, "reg": 1.0},
    ]
    cases = []
    for row in rows:
        alpha = row.pop("alpha")
        setting = make_setting(length=3, **row)
        curve = tuple(alpha * f for f in (0.25, 0.5, 0.75, 1.0, 1.25, 1.5))
        cases.append(Case(setting, alpha, curve, (0.5 * alpha, 1.5 * alpha)))
    compiled = working_compiler() is not None
    return Study(
        name="quick", cases=tuple(cases), dimensions=(100, 200), seeds=(32, 32),
        nodes=2**16 if compiled else 2**13, curve_nodes=2**14 if compiled else 2**11,
        curve_seeds=8, seed=seed, command="replica validate --preset quick",
        notes=() if compiled else ("no C compiler: theory on fewer nodes, by NumPy",),
    )


def single_study(
    *, alpha: Any, dimensions: tuple[int, ...] = (150, 300), seeds: int = 24, nodes: int = 2**15,
    seed: int = 0, **model: Any,
) -> Study:
    """One setting, at one alpha or at several."""
    setting = make_setting(**model)
    alphas, _ = parse_alphas(alpha)
    low, high = min(alphas), max(alphas)
    curve = tuple(low * 0.5 + (high * 1.5 - low * 0.5) * i / 6 for i in range(7))
    cases = tuple(
        Case(setting, a, curve if i == 0 else (), ()) for i, a in enumerate(alphas)
    )
    if len(dimensions) < 1 or any(d < 10 for d in dimensions) or len(set(dimensions)) < len(
        dimensions
    ):
        raise UsageError("dimensions", dimensions, "distinct integers >= 10")
    if seeds < 3:
        raise UsageError("seeds", seeds, "an integer >= 3")
    if round(low * min(dimensions)) < 10:
        needed = 10 / min(dimensions)
        raise UsageError("alpha", low, f"at least ten samples: alpha >= {needed:g} here")
    SolverOptions(nodes=nodes, seed=seed)
    for d in dimensions:
        check_memory(setting.lengths, d, round(high * d))
    return Study(
        name="one setting", cases=cases, dimensions=tuple(sorted(dimensions)),
        seeds=(seeds,) * len(dimensions), nodes=nodes, curve_nodes=2**12, curve_seeds=0, seed=seed,
        command="replica validate with the options above",
    )


def study_of(preset: str | None, **options: Any) -> Study:
    """The study of a preset, or of the model options of one setting."""
    if preset is None:
        return single_study(**options)
    if preset != "quick":
        raise UsageError("preset", preset, "quick")
    extra = sorted(k for k, v in options.items() if k != "seed" and v is not None)
    if extra:
        raise UsageError(extra[0], options[extra[0]], "nothing beside a preset")
    return quick_study(options.get("seed", 0))


# -- running --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    """A unit of work that one process does: theory of a case, or some seeds of a simulation."""

    kind: str
    case: int
    setting: Setting
    alphas: tuple[float, ...]
    dimension: int = 0
    seeds: tuple[int, ...] = ()
    nodes: int = 0
    seed: int = 0


def _work(job: _Job) -> tuple[_Job, Any, float]:
    clock = time.perf_counter()
    if job.kind == "simulation":
        from validation.simulate import make_simulator

        simulator = make_simulator(job.setting)
        found: Any = tuple(
            simulator.run_seed(job.alphas[0], job.dimension, s, "random") for s in job.seeds
        )
    else:
        from replica.derivation.chain import derive_erm
        from replica.saddle_point.solve import SaddlePointProblem

        problem = SaddlePointProblem(
            derive_erm(job.setting.model()), job.setting.values(), job.setting.lengths,
            SolverOptions(nodes=job.nodes, seed=job.seed, threads=1),
        )
        found = tuple(problem.curve(job.alphas))
    return job, found, time.perf_counter() - clock


def _jobs(study: Study) -> list[_Job]:
    jobs = []
    for i, case in enumerate(study.cases):
        s = case.setting
        for dimension, count in zip(study.dimensions, study.seeds, strict=True):
            for a in range(0, count, 12):
                seeds = tuple(study.seed + k for k in range(a, min(a + 12, count)))
                jobs.append(_Job("simulation", i, s, (case.alpha,), dimension, seeds))
        for alpha in case.curve_simulated:
            seeds = tuple(study.seed + k for k in range(study.curve_seeds))
            jobs.append(_Job("simulation", i, s, (alpha,), study.dimensions[-1], seeds))
        jobs.append(_Job("theory", i, s, (case.alpha,), nodes=study.nodes, seed=study.seed))
        if case.curve:
            jobs.append(_Job("curve", i, s, case.curve, nodes=study.curve_nodes, seed=study.seed))
    return jobs  # case by case, so that an interrupt keeps the finished cases


def run_study(study: Study, progress: Callable[[int, int], None] | None = None) -> StudyResult:
    """Run all units, two-sided errors and the verdict.

    A keyboard interrupt stops the workers and returns what is complete, marked ``interrupted``.
    """
    clock = time.perf_counter()
    jobs = _jobs(study)
    done, interrupted = run_jobs(_work, jobs, study.workers, progress)
    cases = tuple(
        r for i, c in enumerate(study.cases)
        if (r := _case_result(study, i, c, [d for d in done if d[0].case == i])) is not None
    )
    comparisons = [c for r in cases for c in r.comparisons]
    # a case may be left out because replica symmetry fails there, and for no other reason
    solved = all(c.counted or r.theory.stable is False for r in cases for c in r.comparisons)
    passed = bool(cases) and not interrupted and solved and agrees(comparisons, study.level)
    return StudyResult(study, cases, passed, time.perf_counter() - clock, interrupted)


def _case_result(
    study: Study, index: int, case: Case, done: list[tuple[_Job, Any, float]]
) -> CaseResult | None:
    """Put a case together; ``None`` if its theory or a dimension is missing."""
    theory: Solution | None = None
    curve: tuple[tuple[float, Solution], ...] = ()
    seeds: dict[int, list[SeedResult]] = {}
    points: list[tuple[float, float, float]] = []
    for job, found, _ in done:
        if job.kind == "theory":
            theory = found[0]
        elif job.kind == "curve":
            curve = tuple(zip(job.alphas, found, strict=True))
        elif job.alphas[0] == case.alpha:
            seeds.setdefault(job.dimension, []).extend(found)
        else:
            e = from_samples([r.test_error for r in found])
            points.append((job.alphas[0], e.value, e.error))
    if theory is None or any(
        len(seeds.get(d, ())) < n for d, n in zip(study.dimensions, study.seeds, strict=True)
    ):
        return None
    simulated = {d: tuple(sorted(seeds[d], key=lambda r: r.seed)) for d in study.dimensions}
    comparisons = _comparisons(study, case, theory, simulated)
    last = from_samples([r.test_error for r in simulated[study.dimensions[-1]]])
    points.append((case.alpha, last.value, last.error))
    return CaseResult(
        case, theory, simulated, curve, tuple(sorted(points)), comparisons,
        sum(d[2] for d in done),
    )


def _comparisons(
    study: Study, case: Case, theory: Solution, simulated: Mapping[int, tuple[SeedResult, ...]]
) -> tuple[Comparison, ...]:
    counted, reason = True, ""
    if not all(s.converged for seeds in simulated.values() for s in seeds):
        counted, reason = False, "training did not converge for every data set"
    elif not theory.converged:
        counted, reason = False, "the saddle point did not converge"
    elif theory.stable is not True:
        counted, reason = False, "outside replica symmetry: replicon above 1"
    found = []
    for name in OBSERVABLES + CROSS:
        estimates = [
            from_samples([_observable(r, name) for r in simulated[d]]) for d in study.dimensions
        ]
        simulation = extrapolate(study.dimensions, estimates)
        value, error = _theory(theory, name)
        found.append(compare(case.name, name, value, error, simulation, counted, reason))
    return tuple(found)


def _observable(result: SeedResult, name: str) -> float:
    if name in result.overlaps:
        return result.overlaps[name]
    return float(getattr(result, name))


def _theory(solution: Solution, name: str) -> tuple[float, float]:
    if name in CROSS:
        return 0.0, 0.0
    if name in solution.order_parameters:
        return (solution.order_parameters[name],
                solution.standard_errors["order_parameters"][name])
    return float(getattr(solution, name)), float(solution.standard_errors[name])


def with_workers(study: Study, workers: int | None) -> Study:
    return replace(study, workers=workers)
