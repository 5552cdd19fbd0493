"""The public functions: the command line's words as Python keywords, dataclasses as results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from replica.errors import UsageError
from replica.model import Activation, Model
from replica.saddle_point.solution import Solution

if TYPE_CHECKING:
    from derivations.setting import Setting
    from replica.derivation.chain import Equations, SaddlePointEquations
    from replica.dynamics.flow import OverlapFlow, Trajectory
    from replica.population_level.precise import PreciseRisk
    from replica.population_level.risk import PopulationRisk
    from replica.state_evolution.branch import Thresholds
    from replica.state_evolution.evolution import StateEvolution
    from replica.state_evolution.phases import Phase
    from validation.results import Simulation
    from validation.study import StudyResult


@overload
def derive(
    activation: str | Activation = "softmax", *, task: str = "spiked", nu: float = 1.0,
    chain: Literal["erm"] = "erm",
) -> SaddlePointEquations: ...


@overload
def derive(
    activation: str | Activation = "softmax", *, task: str = "spiked", nu: float = 1.0, chain: str,
) -> Equations: ...


def derive(
    activation: str | Activation = "softmax", *, task: str = "spiked", nu: float = 1.0,
    chain: str = "erm",
) -> Equations:
    """Derive a chain of equations for an activation on a task. Jupyter shows the derivation.

    Parameters
    ----------
    activation
        ``softmax``, ``linear``, ``erf``, ``softplus``, the path of a TOML file, or an
        ``Activation``. The Bayes-optimal chain does not use it.
    task
        ``spiked`` or ``max``.
    nu
        Only whether it is infinite matters here: then no density of the data exists.
    chain
        ``erm`` (regularised training), ``bayes`` (the optimal learner), ``population``
        (infinitely many samples) or ``flow`` (one-pass SGD).

    Raises
    ------
    UsageError
        For an unknown activation, task or chain.
    """
    from derivations.slr import single_location
    from replica.derivation import chain as chains

    if chain not in chains.DERIVERS:
        raise UsageError("chain", chain, ", ".join(chains.DERIVERS))
    return chains.DERIVERS[chain](single_location(task, activation, strongest=nu == float("inf")))


def activation(
    name: str, expression: str, *, normalised: bool = False, kink: float | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Activation:
    """Your own activation from its expression in the token score ``x``.

    Every function that takes an activation takes the result, or the path of a TOML file with the
    same words in a table ``[activation]``.

    Parameters
    ----------
    expression
        ``sigma(chi)_l`` element by element, or with ``normalised`` the positive weight whose share
        in the sum over tokens it is.
    kink
        Width over which ``relu``, ``abs``, ``max`` and ``min`` are rounded; they need it.
    parameters
        Name to a default, or to a mapping with ``default`` and optional ``min`` and ``max``.

    Raises
    ------
    UsageError
        With the column and the reason; the expression is parsed, never evaluated.
    """
    from derivations.own_activation import own_activation

    return own_activation(
        name, expression, normalised=normalised, kink=kink, parameters=parameters
    )


def derive_model(model: Model) -> SaddlePointEquations:
    """Derive the equations of any model; change its loss, channel or teacher and they follow."""
    from replica.derivation.chain import derive_erm

    return derive_erm(model)


def solve_model(
    model: Model,
    alpha: float,
    values: Mapping[str, float],
    *,
    length: int | Mapping[int, float] = 1,
    **options: Any,
) -> Solution:
    """Solve any model at one sample ratio.

    Parameters
    ----------
    values
        Parameters by the names of their symbols, e.g. ``{"Delta": 0.1, "r_w": 0.1}``.
    options
        Fields of :class:`replica.saddle_point.solve.SolverOptions`.
    """
    from derivations.setting import parse_length
    from replica.saddle_point.solve import SaddlePointProblem, SolverOptions

    lengths = parse_length(length)
    problem = SaddlePointProblem(derive_model(model), values, lengths, SolverOptions(**options))
    return problem.solve(alpha)


def solve(
    *,
    activation: str | Activation,
    alpha: Any,
    nu: Any,
    length: Any,
    task: str = "spiked",
    shift: Any = None,
    reg: Any = None,
    reg_k: Any = None,
    reg_v: Any = None,
    noise: Any = 0.1,
    parameter: Any = (),
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> Solution | tuple[Solution, ...]:
    """Solve the saddle-point equations of an SLR setting.

    Returns one :class:`Solution` for a single ``alpha`` and a tuple, in the given order, for a
    grid ``"a:b:n"`` or a list; a curve is continued from point to point. A ridge strength may be
    ``"optimal"``: the one of least test error, found in ``solution.ridge``.

    Raises
    ------
    UsageError
        Naming field, value and what is allowed.
    """
    from derivations.setting import make_setting, parse_alphas
    from replica.saddle_point import ridge
    from replica.saddle_point.solve import SaddlePointProblem, SolverOptions

    setting = make_setting(
        activation=activation, nu=nu, length=length, task=task, shift=shift, reg=reg,
        reg_k=reg_k, reg_v=reg_v, noise=noise, parameter=parameter, optimise=True,
    )
    alphas, many = parse_alphas(alpha)
    problem = SaddlePointProblem(
        derive_model(setting.model()), setting.values(), setting.lengths, SolverOptions(**options)
    )
    solutions = tuple(ridge.solutions(problem, setting.optimal, alphas, progress))
    return solutions if many else solutions[0]


@dataclass(frozen=True)
class BayesProblem:
    """A checked setting of the Bayes-optimal learner and its state evolution."""

    setting: Setting
    evolution: StateEvolution

    def inputs(self) -> dict[str, Any]:
        """The ``inputs`` object of the JSON."""
        kept = {n: v for n, v in self.setting.inputs().items()
                if n in ("task", "nu", "length", "noise")}
        return {**kept, "nodes": self.evolution.nodes, "seed": self.evolution.seed}


def bayes_problem(
    *, nu: Any, length: Any, task: str = "spiked", noise: Any = 0.1, nodes: int = 2**14,
    seed: int = 0,
) -> BayesProblem:
    """Derive state evolution for a setting and draw its nodes.

    Raises
    ------
    UsageError
        Naming field, value and what is allowed; the noise must be positive.
    """
    from derivations.setting import make_setting
    from replica.derivation.chain import derive_bayes
    from replica.state_evolution.evolution import StateEvolution

    # the data alone matter: activation and ridge are not read
    setting = make_setting(
        activation="softmax", nu=nu, length=length, task=task, noise=noise, reg=1.0
    )
    evolution = StateEvolution(
        derive_bayes(setting.model()), setting.data_values(), setting.lengths, nodes, seed
    )
    return BayesProblem(setting, evolution)


def bayes(*, alpha: Any, **words: Any) -> Phase | tuple[Phase, ...]:
    """Fixed points of state evolution of the Bayes-optimal learner.

    ``words`` are those of :func:`bayes_problem`. One :class:`Phase` for a single ``alpha``, a
    tuple for a grid or list.

    Raises
    ------
    UsageError
        Naming field, value and what is allowed.
    """
    from derivations.setting import parse_alphas
    from replica.state_evolution.phases import phases

    problem = bayes_problem(**words)
    alphas, many = parse_alphas(alpha)
    found = tuple(phases(problem.evolution, alphas))
    return found if many else found[0]


def bayes_thresholds(**words: Any) -> Thresholds:
    """Spinodals and information-theoretic transition in ``alpha``, with standard errors.

    ``words`` are those of :func:`bayes_problem`.
    """
    from replica.state_evolution.branch import Branch

    return Branch(bayes_problem(**words).evolution).thresholds()


def population_points(nu: Any, length: Any) -> tuple[tuple[tuple[float, Any], ...], bool]:
    """Pairs of a signal strength and a length, and whether several were asked for."""
    from derivations.setting import parse_grid, parse_lengths

    allowed = "a number >= 0 or inf, a linear grid first:last:count, or a list a,b,c"
    signals, many = parse_grid("nu", nu, allowed)
    lengths, several = parse_lengths(length)
    return tuple((s, k) for k in lengths for s in signals), many or several


def population_risk(
    *,
    activation: str | Activation,
    nu: float,
    length: Any,
    task: str = "spiked",
    shift: Any = None,
    parameter: Any = (),
    precision: int | None = None,
    seed: int = 0,
) -> tuple[PopulationRisk | PreciseRisk, Setting, str | None]:
    """The population risk at one point, its setting, and a warning if there is one.

    ``shift="optimal"`` minimises over the activation's parameters too.
    """
    from derivations.setting import make_setting
    from replica.population_level.precise import PreciseProblem
    from replica.population_level.risk import PopulationProblem

    best = isinstance(shift, str) and shift == "optimal"
    setting = make_setting(
        activation=activation, nu=nu, length=length, task=task, shift=None if best else shift,
        parameter=parameter, decay=True,
    )
    problem = PopulationProblem(setting.model(), setting.values(), setting.lengths, seed=seed)
    if best:
        if not problem.score.values:
            raise UsageError("shift", shift, "nothing: the activation has no parameters")
        if precision is not None:
            raise UsageError("precision", precision, "nothing with an optimal shift")
        problem = problem.best_parameters()
    if precision is not None:
        return PreciseProblem(problem, precision).solve(), setting, None
    result = problem.solve()
    warning = None
    if problem.longest * 0.999 <= abs(result.scale_k) < float("inf"):
        warning = (
            f"the risk still falls at the longest key tried (scale {result.scale_k:g}): the "
            "infimum is at longer keys, the value an upper bound"
        )
    return result, setting, warning


def population(
    *, activation: str | Activation, nu: Any, length: Any, **words: Any
) -> PopulationRisk | PreciseRisk | tuple[PopulationRisk | PreciseRisk, ...]:
    """Excess risk at infinite data with the best weights, and the Bayes risk.

    ``words`` are ``task``, ``shift``, ``parameter``, ``precision`` and ``seed``. One result for a
    single ``nu`` and length, a tuple for grids or lists.

    Raises
    ------
    UsageError
        Naming field, value and what is allowed.
    """
    points, many = population_points(nu, length)
    found = tuple(
        population_risk(activation=activation, nu=x, length=k, **words)[0] for x, k in points
    )
    return found if many else found[0]


@dataclass(frozen=True)
class FlowProblem:
    """A checked setting, its flow, and the minima of its population risk."""

    setting: Setting
    flow: OverlapFlow

    def minima(self) -> list[dict[str, float]]:
        """Minima of the population risk over aligned keys, the best first; overlaps at each.

        Empty where there is a weight decay, which moves them.
        """
        from replica.population_level.risk import PopulationProblem

        s = self.setting
        if s.reg_k > 0 or s.reg_v > 0:
            return []
        problem = PopulationProblem(s.model(), s.values(), s.lengths)
        if problem.nishimori_scale() == float("inf"):
            return []
        best = problem.solve().minima
        found = []
        for scale in best:
            moments, _ = problem.moments(scale.m, scale.q)
            v = moments.s1 / moments.s2
            found.append({"m_k": scale.m, "q_k": scale.q, "m_v": v, "q_v": v * v,
                          "excess_risk": scale.excess})
        return found

    def reached(self, trajectory: Trajectory, minima: list[dict[str, float]]) -> int | None:
        """Index of the minimum at which gradient flow has come to rest; ``None`` if at none."""
        from replica.dynamics.starts import OVERLAPS

        if self.flow.step > 0 or not trajectory.settled:
            return None
        for i, m in enumerate(minima):
            gaps = [
                abs(trajectory.at_end(n) - m[n])
                - 4 * float(trajectory.standard_errors[-1, OVERLAPS.index(n)])
                for n in ("m_k", "q_k", "m_v", "q_v")
            ]
            if max(gaps) < 0.05 * max(1.0, m["q_k"]):
                return i
        return None


def flow_problem(setting: Setting, step: float, nodes: int = 2**14, seed: int = 0) -> FlowProblem:
    """Derive the flow of a setting and draw its nodes.

    Raises
    ------
    UsageError
        For a negative step or too few nodes.
    """
    from replica.derivation.chain import derive_flow
    from replica.dynamics.flow import OverlapFlow

    flow = OverlapFlow(
        derive_flow(setting.model()), setting.values(), setting.lengths, step, nodes, seed
    )
    return FlowProblem(setting, flow)


def flow(
    *, start: str | Mapping[str, float] = "random", times: Any, step: float = 0.5,
    nodes: int = 2**14, seed: int = 0, **model: Any,
) -> Trajectory:
    """The seven overlaps under one-pass SGD of size ``step``, or gradient flow at ``step=0``.

    Parameters
    ----------
    start
        ``random``, ``informed``, or overlaps by name (zero where not named).
    times
        Samples per dimension at which to report, the first of them 0; multiplied by the step
        size for gradient flow.
    model
        The options of :func:`solve` without ``alpha``; the ridge strengths are the weight decay.

    Raises
    ------
    UsageError
        Naming field, value and what is allowed.
    """
    from derivations.setting import make_setting
    from replica.dynamics.starts import STARTS

    setting = make_setting(decay=True, **model)
    if isinstance(start, str) and start not in STARTS:
        raise UsageError("start", start, ", ".join(STARTS))
    overlaps = STARTS[start] if isinstance(start, str) else start
    name = start if isinstance(start, str) else "given"
    return flow_problem(setting, step, nodes, seed).flow.run(overlaps, list(times), name)


def simulate(
    *,
    activation: str | Activation = "softmax",
    alpha: Any,
    nu: Any,
    length: Any,
    dimension: int = 400,
    seeds: int = 8,
    seed: int = 0,
    start: str | None = None,
    method: str = "lbfgs",
    backend: str = "auto",
    step: float = 0.5,
    progress: Callable[[int], None] | None = None,
    **model: Any,
) -> Simulation:
    """Train on sampled data and average over seeds. ``model`` takes the options of :func:`solve`.

    ``method`` is ``lbfgs``, ``sgd`` (one pass with step size ``step``; the ridge strengths are the
    weight decay) or ``amp`` (Bayes-optimal message passing, for which the activation is not read).

    Raises
    ------
    UsageError
        Naming field, value and what is allowed.
    """
    from derivations.setting import make_setting, parse_alphas
    from replica.errors import UsageError
    from validation.simulate import make_learner, simulate_setting

    setting = make_setting(
        activation=activation, nu=nu, length=length, decay=method != "lbfgs", **model
    )
    alphas, many = parse_alphas(alpha)
    if many:
        raise UsageError("alpha", alpha, "a single number for a simulation")
    return simulate_setting(
        setting, alphas[0], dimension, seeds, start=start, method=method, first_seed=seed,
        progress=progress, simulator=make_learner(setting, method, backend, step),
    )


def validate(
    *, preset: str | None = None, output: str | Path | None = None, **options: Any
) -> StudyResult:
    """Compare theory with simulation; write a report if ``output`` is given.

    Either ``preset="quick"`` or the model options of one setting.
    """
    from validation.report import write_report
    from validation.study import run_study, study_of

    result = run_study(study_of(preset, **options))
    if output is not None:
        write_report(result, Path(output))
    return result
