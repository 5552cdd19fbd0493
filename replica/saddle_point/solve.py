"""Solve the saddle-point equations of a model on pooled nodes, with errors and stability."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from replica.codegen.programs import build_programs
from replica.derivation.chain import SaddlePointEquations
from replica.errors import UsageError
from replica.model import RATIO, Array
from replica.saddle_point import backends, fixed_point
from replica.saddle_point.backends import BACKENDS
from replica.saddle_point.kernels import Kernels
from replica.saddle_point.nodes import SCRAMBLES, NodeSet, make_nodes
from replica.saddle_point.prepare import check_values, noisy_forms, signal_strength
from replica.saddle_point.response import Response, response, standard_errors
from replica.saddle_point.solution import Solution
from replica.saddle_point.stability import replicon
from replica.saddle_point.sweep import Averages, NumpyEngine, Search
from replica.saddle_point.workers import Workers

MAX_SWEEPS = 300
MAX_SEARCHES = 6
WANDERING = 250
"""More sweeps than this and other starts are tried too."""
CAUTIOUS = 0.3
"""Share of the new point in a step, where full steps failed."""
WORST_GRADIENT = 1e-4
"""A proximal gradient above this, relative to the displacement, is no minimum."""
FAR = 0.05
"""A relative move of the overlaps after which every node is searched again."""
COARSE_NODES = 2**11
COARSE_SHARE = 64
COARSE_TOLERANCE = 1e-5
GUIDED_SWEEPS = 30
STRETCHED = 0.3
"""Relative spread of the overlaps between scrambles beyond which linear response is no guide."""
AHEAD = 100.0
"""A guided step from a residual this many times the tolerance is expected to meet it."""


@dataclass(frozen=True)
class SolverOptions:
    """How to solve. ``estimator`` is ``"stein"`` or ``"reparametrised"``."""

    nodes: int = 2**15
    tolerance: float = 1e-8
    start: str = "informed"
    backend: str = "auto"
    estimator: str = "stein"
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        if not 64 <= self.nodes <= 2**26:
            raise UsageError("nodes", self.nodes, "64 to 2^26")
        if not 1e-13 < self.tolerance < 1e-2:
            raise UsageError("tolerance", self.tolerance, "between 1e-13 and 1e-2")
        if self.start not in ("informed", "uninformed"):
            raise UsageError("start", self.start, "informed, uninformed")
        if self.estimator not in ("stein", "reparametrised"):
            raise UsageError("estimator", self.estimator, "stein, reparametrised")
        if self.backend not in BACKENDS:
            raise UsageError("backend", self.backend, ", ".join(BACKENDS))


@dataclass(frozen=True)
class _Guide:
    """A nearby solution and the linear response there."""

    x: Array
    response: Response


@dataclass(frozen=True)
class _End:
    """Where an iteration ended, and the averages there."""

    iteration: fixed_point.Iteration
    averages: Averages
    sweeps: int


class SaddlePointProblem:
    """A model at fixed parameters and nodes: the map whose fixed point is the saddle.

    ``values`` gives every parameter of the model but ``alpha`` (``nu``, ``Delta``, ridge
    strengths ``r_k``...), by the names of their symbols. Nodes are drawn when first needed;
    ``kernels`` shares compiled code between problems of one model.
    """

    def __init__(
        self,
        equations: SaddlePointEquations,
        values: Mapping[str, float],
        lengths: Mapping[int, float],
        options: SolverOptions,
        kernels: Kernels | None = None,
    ) -> None:
        self.equations = equations
        self.model = equations.model
        self.options = options
        self.values = {**self.model.constants, **values}
        check_values(self.model, self.values, lengths)
        self.lengths = dict(lengths)
        if kernels is None:
            stein = options.estimator == "stein"
            kernels = Kernels(self.model, build_programs(
                equations, stein=stein,
                without=noisy_forms(self.model, self.values, lengths) if stein else (),
            ))
        self.kernels = kernels
        self.backend = backends.choose(kernels, options.backend, options.nodes)
        self.sectors = self.model.sectors
        self.rho = np.array([s.variance(self.values) for s in self.sectors])
        self.strength = signal_strength(self.model, self.values, lengths)
        self.names = [x.name for s in self.sectors for x in (s.m, s.q, s.V)]
        self.hat_names = [x.name for s in self.sectors for x in (s.m_hat, s.q_hat, s.V_hat)]

    def sibling(
        self, values: Mapping[str, float] | None = None, options: SolverOptions | None = None
    ) -> SaddlePointProblem:
        """The same model with some values or the options changed; code and threads are shared."""
        other = SaddlePointProblem(
            self.equations, {**self.values, **(values or {})}, self.lengths,
            options or self.options, self.kernels,
        )
        other.workers = self.workers
        return other

    def rougher(self, nodes: int, tolerance: float) -> SaddlePointProblem:
        """A sibling with at most so many nodes, and no finer than so."""
        o = self.options
        return self.sibling(options=replace(
            o, nodes=min(nodes, o.nodes), tolerance=max(tolerance, o.tolerance)
        ))

    @cached_property
    def nodes(self) -> NodeSet:
        return make_nodes(
            self.model, self.lengths, self.options.nodes, self.options.seed, self.values,
            self.kernels.node_inputs, self.kernels.label, self.workers,
        )

    @cached_property
    def workers(self) -> Workers:
        return Workers(self.options.threads)

    @cached_property
    def engine(self) -> NumpyEngine:
        return backends.build(
            self.backend, self.kernels, self.nodes, self.values, self.workers
        )

    # -- the map ---------------------------------------------------------------------------------

    def uniform(self, x: Array, alpha: float) -> dict[str, float]:
        """All uniform values at a point, kept where the cavity fields exist."""
        at = dict(zip(self.names, (float(v) for v in x), strict=True))
        for s, rho in zip(self.sectors, self.rho, strict=True):
            floor = at[s.m.name] ** 2 / rho
            at[s.q.name] = max(at[s.q.name], floor * (1 + 1e-13) + 1e-300)
        return {**self.values, **at, RATIO.name: alpha}

    def hats(self, means: Mapping[str, float], at: Mapping[str, float]) -> dict[str, float]:
        """Conjugates from data averages; ``Vhat`` may use ``mhat``, so it comes second."""
        known = {**at, **means, **{n: 0.0 for n in self.hat_names}}
        first = self.kernels.conjugates.named(known, 0)
        known |= {s.m_hat.name: first[s.m_hat.name] for s in self.sectors}
        second = self.kernels.conjugates.named(known, 0)
        return {n: float(second[n]) for n in self.hat_names}

    def overlaps(self, hats: Mapping[str, float], at: Mapping[str, float]) -> Array:
        found = self.kernels.overlaps.named({**at, **hats}, 0)
        return np.array([float(found[n]) for n in self.names])

    def point(self, solution: Solution) -> Array:
        """The order parameters of a solution, in the order of the map."""
        return np.array([solution.order_parameters[n] for n in self.names])

    def named_hats(self, solution: Solution) -> dict[str, float]:
        """The conjugates of a solution by the names of their symbols."""
        return {n: solution.conjugates[o] for n, o in
                zip(self.hat_names, self.names, strict=True)}

    def feasible(self, x: Array) -> bool:
        """``V > 0`` and ``m^2 <= q rho`` in every sector."""
        for (m, q, V), rho in zip(x.reshape(-1, 3), self.rho, strict=True):
            if not (V > 0 and q >= 0 and m * m <= q * rho * (1 + 1e-9)):
                return False
        return bool(np.all(np.isfinite(x)))

    def start_point(
        self, alpha: float, start: str | None = None, scale: float = 1.0
    ) -> Array:
        """The point that ``informed`` or ``uninformed`` names, the option's start if omitted.

        ``scale`` stretches the first sector's weights.
        """
        informed = (start or self.options.start) == "informed"
        point = []
        for s, rho in zip(self.sectors, self.rho, strict=True):
            r = self.values[s.ridge.name]
            overlap, q = (0.7, 0.8) if informed else (0.02, 0.2)
            if s == self.sectors[0]:  # scores of order one, however strong the signal
                overlap, q = overlap / self.strength, q / self.strength**2
            point += [overlap * rho, q * rho, 1.0 / (r + alpha / (1.0 + alpha / (1.0 + r)))]
        point[0] *= scale
        point[1] *= scale**2
        return np.array(point)

    # -- solving ---------------------------------------------------------------------------------

    def solve(self, alpha: float, start: Array | None = None) -> Solution:
        """The saddle point at one sample ratio, from ``start`` or the option's start.

        Where that fails, wanders or ends anti-aligned with a teacher, cautious steps from other
        starts are tried as well and the converged point of lowest free energy is returned.
        """
        if not 0 < alpha < np.inf:
            raise UsageError("alpha", alpha, "a finite number > 0")
        found = self._solve_from(alpha, start)
        if not self._doubtful(found):
            return found
        ends = [found]
        for x in self._other_starts(alpha):
            ends.append(self._solve_from(alpha, x, CAUTIOUS))
            if not self._doubtful(ends[-1]):
                break
        kept = [s for s in ends if s.converged]
        best = min(kept, key=lambda s: s.free_energy) if kept else found
        if len(kept) > 1 and max(s.free_energy for s in kept) > best.free_energy + 1e-5:
            note = "several saddle points from different starts: the lowest free energy is given"
            best = replace(best, messages=(*best.messages, note))
        if best.converged and self._anti_aligned(best):
            note = "an overlap with its teacher is negative: more nodes may find a better point"
            best = replace(best, messages=(*best.messages, note))
        return best

    def _doubtful(self, s: Solution) -> bool:
        """Not converged, a long wander, or anti-aligned."""
        return not s.converged or s.sweeps > WANDERING or self._anti_aligned(s)

    def _anti_aligned(self, s: Solution) -> bool:
        """An overlap below zero by more than its error."""
        errors = s.standard_errors["order_parameters"]
        return any(
            s.order_parameters[n] < -5 * errors[n] - 1e-6
            for n in (x.m.name for x in self.sectors)
        )

    def _other_starts(self, alpha: float) -> list[Array]:
        """The usual start, and the first sector's overlaps scaled up and down."""
        return [self.start_point(alpha, scale=factor) for factor in (1.0, 4.0, 0.25)]

    def collapsed(self, x: Array, alpha: float) -> bool:
        """A response far below ``1/alpha``, or overlaps that are all zero to rounding.

        The equations are then satisfied in absolute terms by numbers that mean nothing.
        """
        for i, s in enumerate(self.sectors):
            m, q, V = x[3 * i : 3 * i + 3]
            smallest = 1e-9 / (self.values[s.ridge.name] + alpha)
            if smallest > V or (0 < q < 1e-18) or not np.isfinite(m):
                return True
        return False

    @cached_property
    def coarse(self) -> SaddlePointProblem | None:
        """The same problem on few nodes, whose solution and response guide the first steps."""
        share = COARSE_SHARE
        while share > 2 and self.options.nodes // share < COARSE_NODES:
            share //= 2
        if self.options.nodes // share < COARSE_NODES or self.backend.name == "mpmath":
            return None
        coarse = self.sibling(
            options=replace(self.options, tolerance=max(self.options.tolerance, COARSE_TOLERANCE))
        )
        coarse.nodes = self.nodes.thinned(share)
        coarse.coarse = None
        return coarse

    def _guide(self, alpha: float, x: Array) -> _Guide | None:
        """Solution and response of the coarse problem, where it has a sound one.

        Where the coarse saddle is unstable, minima jump and a step guided by few nodes may lead to
        another saddle.
        """
        if self.coarse is None:
            return None
        end = self.coarse._settle(alpha, x)
        point = end.iteration.x
        if not end.iteration.converged or self.collapsed(point, alpha):
            return None
        if any(point[3 * i] < 0 for i in range(len(self.sectors))):
            return None
        stability = replicon(self.coarse.engine, self.coarse.uniform(point, alpha))
        if stability is None or stability.radius >= 1:
            return None
        found = response(self.coarse, point, alpha, self.coarse.inner)
        return _Guide(point, found) if np.all(np.isfinite(found.inverse)) else None

    @property
    def inner(self) -> float:
        """Tolerance of the proximal minimisation that goes with the option's tolerance."""
        return max(1e-2 * self.options.tolerance, 1e-11)

    def _settle(
        self, alpha: float, x: Array, mixing: float = 1.0, guide: _Guide | None = None
    ) -> _End:
        """Iterate and search for lower proximal minima until neither moves."""
        last: Averages | None = None
        searched: Array | None = None
        sweeps = 0

        def step(point: Array, inner: float) -> Array:
            nonlocal last, searched
            at = self.uniform(point, alpha)
            # the stored displacements belong to other overlaps: choose the global minimum first
            search: Search = "none" if searched is not None else "all"
            searched = point if searched is None else searched
            last = self.engine.sweep(at, inner, search, observe=False)
            return self.overlaps(self.hats(last.pooled(), at), at)

        def search_at(point: Array, search: Search) -> tuple[Averages, float]:
            """Averages once minima were searched, and the residual they leave."""
            nonlocal sweeps
            sweeps += 1
            at = self.uniform(point, alpha)
            averages = self.engine.sweep(at, self.inner, search)
            image = self.overlaps(self.hats(averages.pooled(), at), at)
            return averages, fixed_point.relative_residual(point, image)

        tolerance = self.options.tolerance
        if guide is not None:
            found = fixed_point.iterate(
                step, guide.x, self.feasible, tolerance, GUIDED_SWEEPS,
                precondition=guide.response.inverse, ahead=AHEAD,
            )
        else:
            found = fixed_point.iterate(step, x, self.feasible, 1e-3, 60, mixing)
        sweeps += found.sweeps
        for search in range(MAX_SEARCHES):
            assert searched is not None
            shift = np.max(np.abs(found.x - searched) / np.maximum(0.1, np.abs(searched)))
            whole = shift > FAR or guide is None
            averages, residual = search_at(found.x, "all" if whole else "near")
            searched = found.x if whole else searched
            if averages.moved == 0.0 and residual <= tolerance:
                found = replace(found, residual=residual, converged=True, message="")
                break
            if search > 1 and not found.converged:
                break
            found = fixed_point.iterate(
                step, found.x, self.feasible, tolerance, MAX_SWEEPS, mixing,
                None if guide is None else guide.response.inverse,
            )
            sweeps += found.sweeps
        else:
            # every search moved a node. At the last point lowest minima are held too, so that its
            # residual counts the jumps: where they outweigh the tolerance no point was found.
            averages, residual = search_at(found.x, "all")
            met = residual <= tolerance
            found = replace(
                found, residual=residual, converged=met, message="" if met else
                f"minima of the samples keep jumping: residual {residual:.1e}; use more nodes",
            )
        return _End(found, averages, sweeps)

    def _solve_from(self, alpha: float, start: Array | None, mixing: float = 1.0) -> Solution:
        clock = time.perf_counter()
        x = self.start_point(alpha) if start is None else start
        guide = self._guide(alpha, x) if mixing == 1.0 else None
        end = self._settle(alpha, x, mixing, guide)
        if guide is not None and not end.iteration.converged:
            guide = None
            end = self._settle(alpha, x, mixing)
        return self._finish(end, alpha, guide, clock)

    def _finish(self, end: _End, alpha: float, guide: _Guide | None, clock: float) -> Solution:
        found, averages = end.iteration, end.averages
        messages = [] if found.converged else [found.message]
        if averages.worst_gradient > 1e-6:
            messages.append(f"proximal gradient up to {averages.worst_gradient:.1e} left")
        at = self.uniform(found.x, alpha)
        means = averages.pooled()
        hats = self.hats(means, at)
        image = self.overlaps(hats, at)
        residual = fixed_point.relative_residual(found.x, image)
        risk = self.kernels.risk.named({**at, **means}, 0)
        test_error, floor = float(risk["test_error"]), float(risk["noise_floor"])
        energy = float(self.kernels.free_energy.named({**at, **means, **hats}, 0)["free_energy"])
        penalty = sum(
            0.5 * at[s.ridge.name] * found.x[3 * i + 1] for i, s in enumerate(self.sectors)
        )
        if found.converged and residual > 10 * self.options.tolerance:
            messages.append(f"the residual is {residual:.1e} once every minimum was searched again")
        stability = replicon(self.engine, at)
        stable = stability is not None and stability.radius < 1
        moves = guide.response if guide and stable else response(self, found.x, alpha, self.inner)
        errors, stretch = standard_errors(self, moves, averages, found.x, alpha)
        if stretch > STRETCHED:
            messages.append(
                f"error bars are rough: scrambles of {self.nodes.count // SCRAMBLES} nodes move "
                f"the overlaps by up to {100 * stretch:.0f}%; use more nodes"
            )
        errors["replicon"] = stability.standard_error if stability else None
        if stable and self.model.activation is not None and self.model.activation.kinked:
            messages.append("the activation has a kink: the replicon is a lower bound")
        feasible = self.feasible(found.x)
        lost = self.collapsed(found.x, alpha)
        if lost:
            messages.append("the order parameters collapsed: no saddle point was found")
        return Solution(
            ridge={s.ridge.name: at[s.ridge.name] for s in self.sectors},
            order_parameters=dict(zip(self.names, map(float, found.x), strict=True)),
            conjugates=dict(zip(self.names, hats.values(), strict=True)),
            standard_errors=errors,
            test_error=test_error,
            excess_risk=test_error - floor,
            train_loss=float(alpha * means["loss"] + penalty),
            free_energy=energy,
            residual=residual,
            converged=bool(found.converged and feasible and not lost
                           and averages.worst_gradient <= WORST_GRADIENT
                           and residual <= 10 * self.options.tolerance),
            feasible=feasible,
            sweeps=end.sweeps,
            replicon=stability.radius if stability else None,
            stable=stable if stability else None,
            competing_minima=averages.competing,
            nodes=self.nodes.count,
            dimension=max(g.dimension for g in self.nodes.groups),
            reductions=self.nodes.reductions,
            seed=self.options.seed,
            backend=self.engine.name,
            seconds=time.perf_counter() - clock,
            estimator=self.options.estimator,
            envelope=means["envelope"],
            messages=tuple(messages),
        )

    def curve(
        self, alphas: Sequence[float], report: Callable[[int], None] | None = None
    ) -> Iterator[Solution]:
        """Solutions along increasing or given ``alphas``, each started from the one before."""
        start: Array | None = None
        for i, alpha in enumerate(alphas):
            solution = self.solve(alpha, start)
            if solution.converged:
                start = self.point(solution)
            else:
                retry = self.solve(alpha)
                solution = retry if retry.converged else solution
                start = None
            if report is not None:
                report(i + 1)
            yield solution


