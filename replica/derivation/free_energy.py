"""From the partition function to the replica-symmetric free energy at zero temperature.

Every function makes one step. Overlaps and multipliers stay S x S matrices over the weight
sectors until the manifold is imposed. Conventions per coordinate of the weights:
``exp{beta Mhat w*.w^a - beta/2 Vhat (w^a)^2 + beta^2/2 Qhat (sum_a w^a)^2}``,
``V = beta (Q_aa - Q_ab)``, ``Q_ab = Q`` for replicas ``a != b``.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import sympy as sp
from sympy.core.function import AppliedUndef

from replica.derivation.numeric import DIGITS, compare, evaluate, random_point
from replica.derivation.step import Check, CheckResult, Conclusion, Step
from replica.errors import DerivationError
from replica.model import LABEL, NOISE, RATIO, SIGMA, Model, Sector
from replica.symbolic.averages import Expectation, LogPartition, Minimum, OneSamplePartition
from replica.symbolic.replicas import ReplicaMatrix
from replica.symbolic.tokens import TokenSum, index, outermost, write_out

BETA = sp.Symbol("beta", positive=True)
REPLICAS = sp.Symbol("n", positive=True)


@dataclass(frozen=True)
class Blocks:
    """The S x S matrices of overlaps, multipliers, ridge strengths and teacher variances."""

    sectors: tuple[Sector, ...]

    def _matrix(self, letter: str, symmetric: bool) -> sp.ImmutableMatrix:
        def entry(i: int, j: int) -> sp.Symbol:
            a, b = self.sectors[i], self.sectors[j]
            if i == j:
                return {
                    "m": a.m, "q": a.q, "V": a.V, "mhat": a.m_hat, "qhat": a.q_hat, "Vhat": a.V_hat
                }[letter]
            if symmetric and i > j:
                a, b = b, a
            return sp.Symbol(f"{letter}_{a.name}{b.name}", real=True)

        size = len(self.sectors)
        return sp.ImmutableMatrix(size, size, entry)

    @property
    def M(self) -> sp.ImmutableMatrix:
        return self._matrix("m", symmetric=False)

    @property
    def Q(self) -> sp.ImmutableMatrix:
        return self._matrix("q", symmetric=True)

    @property
    def V(self) -> sp.ImmutableMatrix:
        return self._matrix("V", symmetric=True)

    @property
    def M_hat(self) -> sp.ImmutableMatrix:
        return self._matrix("mhat", symmetric=False)

    @property
    def Q_hat(self) -> sp.ImmutableMatrix:
        return self._matrix("qhat", symmetric=True)

    @property
    def V_hat(self) -> sp.ImmutableMatrix:
        return self._matrix("Vhat", symmetric=True)

    @property
    def R(self) -> sp.ImmutableMatrix:
        return sp.ImmutableMatrix(sp.diag(*[s.ridge for s in self.sectors]))

    @property
    def rho(self) -> sp.ImmutableMatrix:
        return sp.ImmutableMatrix(sp.diag(*[s.rho for s in self.sectors]))

    def cross(self) -> list[sp.Symbol]:
        """The off-diagonal entries, which vanish on the manifold."""
        found: set[sp.Symbol] = set()
        for matrix in (self.M, self.Q, self.V, self.M_hat, self.Q_hat, self.V_hat):
            size = matrix.shape[0]
            found |= {matrix[i, j] for i in range(size) for j in range(size) if i != j}
        return sorted(found, key=lambda s: s.name)


def _weight_exponent(matrix: ReplicaMatrix) -> dict[str, Any]:
    return {"single": matrix.single, "common": matrix.common}


# -- step 1 ---------------------------------------------------------------------------------------


def weight_symbol(sector: Sector) -> sp.Symbol:
    return sp.Symbol(f"w_{sector.name}", real=True)


def replicate(model: Model) -> Step:
    """``E Z^n``: n replicas, independent given the data, all with the same Boltzmann factor."""
    weights = sum(
        (s.ridge * weight_symbol(s) ** 2 / 2 for s in model.sectors), sp.S.Zero
    )
    conclusion = {
        "sample": -BETA * model.loss,
        "coordinate": sp.expand(-BETA * weights),
    }

    def check(c: Conclusion) -> CheckResult:
        # a toy: two equally likely samples, each weight vector one number out of two values
        length = 2
        point = random_point([BETA, *(s.ridge for s in model.sectors)])
        values = [sp.Rational(1, 3), sp.Rational(-3, 4)]
        samples = [1, 2]

        def fields(setting: tuple[sp.Rational, ...], sample: int) -> dict[Any, Any]:
            at: dict[Any, Any] = {LABEL: sp.Rational(2 * sample - 3, 5)}
            for s, w in zip(model.sectors, setting, strict=True):
                for p in range(1, length + 1):
                    at[s.field(p)] = w * sp.Rational(p * sample + 1, 4)
            for p in range(1, length + 1):
                at[SIGMA(p)] = sp.Rational(p + sample, 7)
            return at

        def settings() -> Any:
            return itertools.product(values, repeat=len(model.sectors))

        def energy(setting: tuple[sp.Rational, ...], sample: int) -> Any:
            loss = write_out(model.loss, length).xreplace(fields(setting, sample))
            penalty = sum(
                s.ridge * w**2 for s, w in zip(model.sectors, setting, strict=True)
            ) / sp.Integer(2)
            return evaluate((loss + penalty).xreplace(point), {})

        def exponent(setting: tuple[sp.Rational, ...], sample: int) -> Any:
            named = dict(
                zip((weight_symbol(s) for s in model.sectors), setting, strict=True)
            )
            first = write_out(c["sample"], length).xreplace(fields(setting, sample))
            return evaluate((first + c["coordinate"].xreplace(named)).xreplace(point), {})

        with mp.workdps(DIGITS):
            beta = mp.mpf(point[BETA].p) / point[BETA].q
            direct = mp.fsum(
                mp.fsum(mp.exp(-beta * energy(w, j)) for w in settings()) ** 2 for j in samples
            ) / 2
            replicated = mp.fsum(
                mp.exp(exponent(w, j) + exponent(u, j))
                for j in samples
                for w in settings()
                for u in settings()
            ) / 2
            return compare([(replicated, direct)], "E Z^2 on a toy data set")

    return Step(
        name="replicated partition function",
        rule=r"replica trick: $E \log Z = \lim (E Z^n - 1)/n$, with $n$ replicas of the weights",
        premises=(),
        conclusion=conclusion,
        check=check,
        text="Boltzmann exponent of one replica: per sample, and per coordinate of the weights.",
        assumption=r"the moments at integer $n$ are continued to $n \to 0$ (not rigorous)",
    )


# -- step 2 ---------------------------------------------------------------------------------------


def fourier(model: Model) -> Step:
    """Overlaps enforced by Fourier multipliers; weights and data separate."""
    S = sp.Integer(len(model.sectors))
    size = REPLICAS * S
    Q, Qt = sp.MatrixSymbol("Q", size, size), sp.MatrixSymbol("Qtilde", size, size)
    M, Mt = sp.MatrixSymbol("M", size, S), sp.MatrixSymbol("Mtilde", size, S)
    W, Wstar = sp.MatrixSymbol("W", size, 1), sp.MatrixSymbol("Wstar", S, 1)
    conclusion = {
        "constraint": -sp.Trace(Qt * Q) / 2 - sp.Trace(Mt.T * M),
        "coordinate": sp.MatAdd(W.T * Qt * W / 2, W.T * Mt * Wstar),
    }

    def check(c: Conclusion) -> CheckResult:
        # Gaussian weights: at fixed overlaps the multipliers sit where the weight integral
        # reproduces those overlaps, so the exponent must be stationary there.
        dim = 2
        step = sp.Rational(1, 10**12)
        base = sp.Matrix([[3, 1], [1, 4]])
        Mt0 = sp.Matrix(dim, S, lambda i, j: sp.Rational(2 * i + j + 1, 7))

        def quadratic_form(qt: sp.Matrix, mt: sp.Matrix) -> tuple[sp.Matrix, sp.Matrix]:
            w = sp.Matrix(dim, 1, sp.symbols("u0:2"))
            ws = sp.Matrix(int(S), 1, sp.symbols(f"s0:{int(S)}"))
            quadratic = c["coordinate"].subs({
                Qt: sp.MatrixSymbol("Qtilde", *Qt.shape), REPLICAS: sp.Rational(dim, S)
            })
            written = explicit(quadratic, {"Qtilde": qt, "Mtilde": mt, "W": w, "Wstar": ws})
            form = sp.expand(written[0, 0])
            hessian = sp.hessian(form, list(w))
            source = sp.Matrix(dim, int(S), lambda i, j: sp.diff(form, w[i], ws[j]))
            return base - hessian, source

        def exponent(qt: sp.Matrix, mt: sp.Matrix, q: sp.Matrix, m: sp.Matrix) -> Any:
            A, source = quadratic_form(qt, mt)
            trace = explicit(
                c["constraint"].subs(REPLICAS, sp.Rational(dim, S)),
                {"Qtilde": qt, "Mtilde": mt, "Q": q, "M": m},
            )
            # E over unit Gaussian teachers of the log integral
            return trace - sp.log(A.det()) / 2 + (source.T * A.inv() * source).trace() / 2

        Qt0 = sp.Matrix([[sp.Rational(1, 2), sp.Rational(1, 3)], [sp.Rational(1, 3), -1]])
        G = (base - Qt0).inv()
        m = G * Mt0
        q = G + m * m.T
        A0, source0 = quadratic_form(Qt0, Mt0)
        # the overlap that the source makes, E[w w*] for unit Gaussian teachers, has the right sign
        pairs = [
            (evaluate(x, {}), evaluate(y, {}))
            for x, y in zip(A0.inv() * source0, m, strict=True)
        ]
        for i, j in ((0, 0), (0, 1), (1, 1)):
            shift = sp.zeros(dim)
            shift[i, j] = shift[j, i] = step
            up, down = exponent(Qt0 + shift, Mt0, q, m), exponent(Qt0 - shift, Mt0, q, m)
            pairs.append((evaluate((up - down) / (2 * step), {}), mp.mpf(0)))
        for i in range(dim):
            shift = sp.zeros(dim, int(S))
            shift[i, 0] = step
            up, down = exponent(Qt0, Mt0 + shift, q, m), exponent(Qt0, Mt0 - shift, q, m)
            pairs.append((evaluate((up - down) / (2 * step), {}), mp.mpf(0)))
        return compare(pairs, "stationarity in the multipliers at the enforced overlaps", 1e-10)

    return Step(
        name="overlaps and multipliers",
        rule="Fourier representation of the delta functions that define the overlaps",
        premises=("replicated partition function",),
        conclusion=conclusion,
        check=check,
        text="Given the overlaps the local fields of one token are jointly Gaussian and tokens "
        "are independent, so the data term depends on the weights through the overlaps alone.",
        assumption="saddle point of the integral over overlaps and multipliers at large $D$",
    )


def _terms(expr: Any) -> list[tuple[Any, tuple[str, ...]]]:
    """Coefficient and names of the matrices of each term of a sum of products or traces."""
    found = []
    for term in expr.args if isinstance(expr, sp.MatAdd | sp.Add) else (expr,):
        coefficient, rest = term.as_coeff_mmul() if isinstance(term, sp.MatrixExpr) else (
            term.as_coeff_Mul()
        )
        names = tuple(sorted(x.name for x in rest.atoms(sp.MatrixSymbol) if x.name != "W"))
        found.append((coefficient, names))
    return found


def explicit(expr: Any, values: Mapping[str, sp.Matrix]) -> Any:
    """Evaluate a matrix expression whose symbols are given as explicit matrices, by name."""
    if isinstance(expr, sp.MatrixSymbol):
        return values[expr.name]
    if isinstance(expr, sp.Trace):
        return explicit(expr.arg, values).trace()
    if isinstance(expr, sp.MatMul | sp.Mul):
        result: Any = sp.S.One
        for a in expr.args:
            result = result * explicit(a, values)
        return result
    if isinstance(expr, sp.MatAdd | sp.Add):
        terms = [explicit(a, values) for a in expr.args]
        return sum(terms[1:], terms[0])
    if isinstance(expr, sp.Transpose):
        return explicit(expr.arg, values).T
    if isinstance(expr, sp.Inverse):
        return explicit(expr.arg, values).inv()
    if isinstance(expr, sp.Identity):  # as large as the matrices beside it
        return sp.eye(next(iter(values.values())).rows)
    if expr.is_number:
        return expr
    raise DerivationError(f"unexpected matrix expression {expr}")


# -- step 3 ---------------------------------------------------------------------------------------

TEACHER_OVERLAP = sp.Symbol("rho_overlap", positive=True)
TEACHER_MULTIPLIER = sp.Symbol("rhohat", real=True)


def teacher_overlaps(model: Model) -> Step:
    """At ``n = 0`` the data term vanishes, so the teacher keeps its prior variance."""
    t, that = TEACHER_OVERLAP, TEACHER_MULTIPLIER
    conclusion: dict[str, Any] = {}
    for s in model.sectors:
        # -(that t)/2 + log E_prior exp(that w*^2/2) + alpha log E[1]
        exponent = -that * t / 2 - sp.log(1 - s.rho * that) / 2 + RATIO * sp.log(sp.S.One)
        solution = sp.solve([sp.diff(exponent, t), sp.diff(exponent, that)], [t, that], dict=True)
        if len(solution) != 1:
            raise DerivationError("the teacher's overlap has no unique value")
        conclusion[f"variance_{s.name}"] = solution[0][t]
        conclusion[f"multiplier_{s.name}"] = solution[0][that]

    def check(c: Conclusion) -> CheckResult:
        # the same two numbers from the prior integral by quadrature: E w*^2 = rho at rhohat = 0
        pairs = []
        with mp.workdps(20):
            for s in model.sectors:
                point = random_point(s.rho.free_symbols)
                rho = evaluate(s.rho, point)
                tilt = evaluate(c[f"multiplier_{s.name}"], point)

                def weight(w: Any, rho: Any = rho, tilt: Any = tilt, power: int = 0) -> Any:
                    return w**power * mp.exp(-w * w / (2 * rho) + tilt * w * w / 2)

                edge = 12 * mp.sqrt(rho)
                grid = [-edge, -edge / 4, 0, edge / 4, edge]
                second = mp.quad(lambda w, f=weight: f(w, power=2), grid) / mp.quad(weight, grid)
                pairs.append((evaluate(c[f"variance_{s.name}"], point), second))
                pairs.append((tilt, mp.mpf(0)))
        return compare(pairs, "teacher variance under its tilted prior", 1e-12)

    return Step(
        name="teacher overlaps",
        rule=r"stationarity at $n = 0$, where $E_N[(1/L) \sum_\varepsilon g]/c = 1$",
        premises=("overlaps and multipliers",),
        conclusion=conclusion,
        check=check,
        text="The teacher's own overlaps stay at their prior values with zero multipliers.",
    )


# -- steps 4 to 6: weights ------------------------------------------------------------------------


def replica_symmetry(model: Model, replicated: Step, fourier_step: Step) -> Step:
    """One diagonal value, one off-diagonal value, one teacher overlap, for Q and for Qtilde.

    The matrix expressions of the Fourier step are evaluated on the ansatz; the ridge is read from
    the Boltzmann exponent of one coordinate.
    """
    b = Blocks(model.sectors)
    overlap = ReplicaMatrix(b.V / BETA, b.Q)
    multiplier = ReplicaMatrix(-BETA * b.V_hat, BETA**2 * b.Q_hat)
    trace: Any = sp.S.Zero
    for coefficient, factors in _terms(fourier_step.conclusion["constraint"]):
        if set(factors) == {"Q", "Qtilde"}:
            trace += coefficient * multiplier.trace_product(overlap, REPLICAS)
        else:
            trace += coefficient * REPLICAS * ((BETA * b.M_hat).T * b.M).trace()
    boltzmann = sp.hessian(
        replicated.conclusion["coordinate"], [weight_symbol(s) for s in model.sectors]
    )
    single, common = -sp.Matrix(boltzmann), sp.zeros(len(model.sectors))
    source = sp.zeros(len(model.sectors))
    for coefficient, factors in _terms(fourier_step.conclusion["coordinate"]):
        if "Qtilde" in factors:  # w^T A w/2 with A minus twice the coefficient of w^T Qtilde w
            single -= 2 * coefficient * multiplier.single
            common -= 2 * coefficient * multiplier.common
        else:
            source += coefficient * BETA * b.M_hat
    quadratic = ReplicaMatrix(sp.ImmutableMatrix(single), sp.ImmutableMatrix(common))
    source = sp.ImmutableMatrix(source)
    conclusion = {"constraint": sp.expand(trace), "source": source, **_weight_exponent(quadratic)}

    def check(c: Conclusion) -> CheckResult:
        pairs = []
        symbols = _symbols(c["constraint"], c["single"], c["common"], c["source"])
        for n in (1, 2, 3):
            point = random_point(symbols - {REPLICAS}, seed=n)
            size = len(model.sectors)
            Q, Qt, A = sp.zeros(n * size), sp.zeros(n * size), sp.zeros(n * size)
            for a, u, d, w in itertools.product(range(n), range(size), range(n), range(size)):
                i, j = a * size + u, d * size + w
                Q[i, j] = b.Q[u, w] + (b.V[u, w] / BETA if a == d else 0)
                Qt[i, j] = BETA**2 * b.Q_hat[u, w] - (BETA * b.V_hat[u, w] if a == d else 0)
                A[i, j] = (BETA * b.R[u, w] if a == d else 0) - Qt[i, j]
            M = sp.Matrix.vstack(*[b.M] * n)
            Mt = sp.Matrix.vstack(*[BETA * b.M_hat] * n)
            direct = -(Qt * Q).trace() / 2 - (Mt.T * M).trace()
            pairs.append((
                evaluate(c["constraint"].subs(REPLICAS, n), point), evaluate(direct, point)
            ))
            mine = ReplicaMatrix(c["single"], c["common"]).explicit(n)
            pairs += [
                (evaluate(x, point), evaluate(y, point)) for x, y in zip(mine, A, strict=True)
            ]
            pairs += [
                (evaluate(x, point), evaluate(BETA * y, point))
                for x, y in zip(c["source"], b.M_hat, strict=True)
            ]
        return compare(pairs, "explicit matrices at n = 1, 2, 3")

    return Step(
        name="replica symmetry",
        rule="replica-symmetric ansatz for overlaps and multipliers",
        premises=("replicated partition function", "overlaps and multipliers"),
        conclusion=conclusion,
        check=check,
        text=r"The quadratic form of the weights is "
        r"$A_{single} \otimes I_n + A_{common} \otimes 11^T$.",
        assumption="replica symmetry (tested afterwards by the replicon)",
    )


def integrate_weights(model: Model, ansatz: Step, teacher: Step) -> Step:
    """Gaussian integral over the replicated weights and the teacher, one coordinate."""
    rho = sp.ImmutableMatrix(sp.diag(*(
        teacher.conclusion[f"variance_{s.name}"] for s in model.sectors
    )))
    A = ReplicaMatrix(ansatz.conclusion["single"], ansatz.conclusion["common"])
    B = ansatz.conclusion["source"]
    size = len(model.sectors)
    # the Gaussian average over w* couples the replicas: it only changes the common part
    averaged = ReplicaMatrix(A.single, A.common - B * rho * B.T)
    log_weights = (
        REPLICAS * size * sp.log(2 * sp.pi) / 2 - averaged.log_determinant(REPLICAS) / 2
    )

    def check(c: Conclusion) -> CheckResult:
        pairs = []
        for n in (1, 2, 3):
            point = random_point(_symbols(c["log_weights"]) - {REPLICAS}, seed=n)
            # a positive definite form: the common part must not exceed the single part
            point |= {s: v / 50 for s, v in point.items() if s.name.startswith(("qhat", "mhat"))}
            point |= {s: v / 9 for s, v in point.items() if s in Blocks(model.sectors).cross()}
            point |= {s: abs(v) for s, v in point.items() if s.name.startswith("Vhat")}
            full = A.explicit(n).xreplace(point)
            stacked = sp.Matrix.vstack(*[B] * n).xreplace(point)
            # one joint Gaussian over (weights, teachers): determinant of the explicit matrix
            prior = Blocks(model.sectors).rho
            rho_inverse = prior.inv().xreplace(point)
            joint = sp.Matrix(sp.BlockMatrix([[full, -stacked], [-stacked.T, rho_inverse]]))
            direct = (
                sp.log(2 * sp.pi) * sp.Rational(n * size, 2)
                - sp.log(joint.det() * prior.det().xreplace(point)) / 2
            )
            mine = c["log_weights"].subs(REPLICAS, n)
            pairs.append((evaluate(mine, point), evaluate(direct, {})))
        return compare(pairs, "explicit Gaussian integral at n = 1, 2, 3")

    return Step(
        name="weight integral",
        rule="Gaussian integral; the eigenvalues of $11^T$ give the determinant for any $n$",
        premises=("replica symmetry", "teacher overlaps"),
        conclusion={"log_weights": log_weights},
        check=check,
        text="Log of the integral over one coordinate of all replicas, teacher averaged.",
    )


def no_replicas(model: Model, ansatz: Step, integral: Step) -> Step:
    """The derivative at ``n = 0`` of the terms of the weights."""
    constraint = sp.diff(ansatz.conclusion["constraint"], REPLICAS).subs(REPLICAS, 0)
    slope = sp.diff(integral.conclusion["log_weights"], REPLICAS).subs(REPLICAS, 0)
    logs = {a: sp.Dummy(f"L{i}") for i, a in enumerate(sorted(slope.atoms(sp.log), key=str))}
    algebra = slope.xreplace(logs)
    weights = sum(
        (sp.cancel(algebra.coeff(d)) * d for d in logs.values()),
        sp.cancel(algebra.xreplace({d: sp.S.Zero for d in logs.values()})),
    ).xreplace({d: a for a, d in logs.items()})

    def check(c: Conclusion) -> CheckResult:
        tiny = sp.Rational(1, 10**25)
        pairs = []
        for seed in (1, 2):
            everything = _symbols(c["constraint"], c["weights"], slope) - {REPLICAS}
            point = random_point(everything, seed)
            point |= {s: abs(v) for s, v in point.items() if s.name.startswith(("Vhat", "qhat"))}
            point |= {s: v / 9 for s, v in point.items() if s in Blocks(model.sectors).cross()}
            for name, expr in (
                ("constraint", ansatz.conclusion["constraint"]),
                ("weights", integral.conclusion["log_weights"]),
            ):
                limit = evaluate(expr.subs(REPLICAS, tiny) / tiny, point, digits=60)
                pairs.append((evaluate(c[name], point), limit))
        return compare(pairs, "replicated terms at n = 1e-25, divided by n")

    return Step(
        name="no replicas: weights",
        rule="derivative at $n = 0$",
        premises=("replica symmetry", "weight integral"),
        conclusion={"constraint": sp.expand(constraint), "weights": weights},
        check=check,
        assumption="continuation in $n$ to 0 and its exchange with the limit of large $D$",
    )


# -- steps 7 and 8: data --------------------------------------------------------------------------


def local_fields(model: Model, teacher: Step) -> Step:
    """Fields given the teacher: mean, noise common to the replicas, noise of each replica."""
    b = Blocks(model.sectors)
    rho = sp.ImmutableMatrix(sp.diag(*(
        teacher.conclusion[f"variance_{s.name}"] for s in model.sectors
    )))
    size = len(model.sectors)
    # Gaussian conditioning on the teacher, in the algebra of replica matrices: the Schur
    # complement of M rho^{-1} M^T only touches the common part.
    total = ReplicaMatrix(b.V / BETA, b.Q)
    common = total.common - b.M * rho.inv() * b.M.T
    conclusion = {
        "mean": b.M * rho.inv(),
        "common_covariance": common,
        "replica_covariance": total.single,
    }

    def check(c: Conclusion) -> CheckResult:
        # covariance of (h*, h^1, h^2); the fields less their conditional mean must be
        # uncorrelated with the teacher and have the stated covariance among themselves
        n = 2
        joint = sp.zeros((1 + n) * size)
        for i, j in itertools.product(range((1 + n) * size), repeat=2):
            (a, u), (d, w) = divmod(i, size), divmod(j, size)
            if a == 0 and d == 0:
                joint[i, j] = b.rho[u, w]
            elif a == 0 or d == 0:
                joint[i, j] = b.M[w, u] if a == 0 else b.M[u, w]
            else:
                joint[i, j] = b.Q[u, w] + (b.V[u, w] / BETA if a == d else 0)
        left = sp.Matrix.hstack(
            -sp.Matrix.vstack(*[sp.Matrix(c["mean"])] * n), sp.eye(n * size)
        )
        point = random_point(_symbols(joint, *c.values()))
        covariance, correlation = left * joint * left.T, left * joint[:, :size]
        mine = ReplicaMatrix(c["replica_covariance"], c["common_covariance"]).explicit(n)
        pairs = [
            (evaluate(x, point), evaluate(y, point)) for x, y in zip(mine, covariance, strict=True)
        ]
        pairs += [(evaluate(x, point), mp.mpf(0)) for x in correlation]
        return compare(pairs, "fields of two replicas less their mean, written out")

    return Step(
        name="local fields",
        rule="Gaussian conditioning of the fields on the teacher",
        premises=("replica symmetry", "teacher overlaps"),
        conclusion=conclusion,
        check=check,
        text=r"$h^a = \mathrm{mean} \cdot h^\ast$ + noise common to all replicas + noise of one.",
    )


def loss_of(replicated: Step) -> Any:
    """The loss, from the Boltzmann exponent of one sample."""
    return sp.expand_mul(-replicated.conclusion["sample"] / BETA)


def data_term(model: Model, replicated: Step) -> Step:
    """``d/dn`` at 0 of ``alpha log E[Z_1^n]``."""
    # the fields inside Z_1 carry the replica noise; Z_1 is what one replica integrates
    Z = OneSamplePartition(loss_of(replicated))
    n = REPLICAS
    # under the average Z_1 is a positive random variable: a symbol for the differentiation
    z = sp.Symbol("Z_1", positive=True)
    slope = sp.diff(z**n, n).subs(n, 0)
    normalisation = sp.sympify(z**n).subs(n, 0)
    if normalisation != 1:
        raise DerivationError("the data average is not normalised at n = 0")
    inside = slope.xreplace({sp.log(z): LogPartition(Z.args[0])})
    conclusion = {"data": RATIO * Expectation(inside, model.random_symbols)}

    def check(c: Conclusion) -> CheckResult:
        # three samples with rational probabilities and partition sums
        probabilities = [sp.Rational(1, 6), sp.Rational(1, 3), sp.Rational(1, 2)]
        sums = [sp.Rational(2, 3), sp.Rational(5, 4), sp.Rational(7, 2)]
        tiny = sp.Rational(1, 10**25)
        point = random_point([RATIO])
        moment = sp.Add(*(p * s**tiny for p, s in zip(probabilities, sums, strict=True)))
        direct = evaluate(RATIO * sp.log(moment) / tiny, point, digits=60)
        mine = average_over(c["data"], [
            (p, {LogPartition(Z.args[0]): sp.log(s)})
            for p, s in zip(probabilities, sums, strict=True)
        ])
        return compare([(evaluate(mine, point), direct)], "three-sample toy at n = 1e-25")

    return Step(
        name="no replicas: data",
        rule=r"derivative at $n = 0$: $d/dn \log E[Z_1^n] = E \log Z_1$",
        premises=("local fields", "replicated partition function"),
        conclusion=conclusion,
        check=check,
        text=r"$Z_1$ integrates $\exp(-\beta \ell)$ over the noise of one replica; $\alpha = N/D$.",
        assumption="continuation in $n$ to 0",
    )


def average_over(expr: Any, cases: list[tuple[Any, dict[Any, Any]]]) -> Any:
    """Replace each expectation by a finite average; ``cases`` are (probability, values)."""
    def go(node: Any) -> Any:
        if isinstance(node, Expectation):
            return sp.Add(*(p * node.body.xreplace(values) for p, values in cases))
        if not node.args:
            return node
        return node.func(*(go(a) for a in node.args))

    return go(sp.sympify(expr))


# -- steps 9 to 11 --------------------------------------------------------------------------------


def finite_temperature(model: Model, weights: Step, data: Step, ansatz: Step, integral: Step
                       ) -> Step:
    """``f_beta = -(1/beta) (constraint + weights + data)`` per dimension."""
    c0 = weights.conclusion
    terms = [
        *sp.Add.make_args(c0["constraint"]),
        *sp.Add.make_args(c0["weights"]),
        data.conclusion["data"],
    ]
    conclusion = {"f": sp.Add(*(_over_beta(-t) for t in terms))}

    def check(c: Conclusion) -> CheckResult:
        tiny = sp.Rational(1, 10**25)
        everything = _symbols(c["f"], integral.conclusion["log_weights"]) - {REPLICAS}
        point = random_point(everything | {RATIO}, seed=3)
        point |= {s: abs(v) for s, v in point.items() if s.name.startswith(("Vhat", "qhat"))}
        point |= {s: v / 9 for s, v in point.items() if s in Blocks(model.sectors).cross()}
        halves = [(sp.Rational(1, 2), sp.Rational(2, 3)), (sp.Rational(1, 2), sp.Rational(5, 4))]
        replicated = (
            ansatz.conclusion["constraint"]
            + integral.conclusion["log_weights"]
            + RATIO * sp.log(sp.Add(*(p * s**REPLICAS for p, s in halves)))
        )
        direct = evaluate(-(replicated / (BETA * REPLICAS)).subs(REPLICAS, tiny), point, digits=60)
        (one,) = data.conclusion["data"].atoms(LogPartition)
        mine = average_over(c["f"], [(p, {one: sp.log(s)}) for p, s in halves])
        return compare([(evaluate(mine, point), direct)], "replicated free energy at n = 1e-25")

    return Step(
        name="free energy at finite temperature",
        rule=r"$f = -(1/\beta)$ times the derivative at $n = 0$ of the exponent per dimension",
        premises=("no replicas: weights", "no replicas: data"),
        conclusion=conclusion,
        check=check,
    )


def _over_beta(term: Any) -> Any:
    """``term/beta``, a rational term cancelled but kept as one fraction."""
    if term.atoms(Expectation, sp.log):
        return term / BETA
    return sp.factor(sp.cancel(term / BETA))


def zero_temperature(model: Model, finite: Step, fields: Step, replicated: Step) -> Step:
    """``beta -> oo``: the replica noise shrinks, Laplace's method gives a minimum."""
    b = Blocks(model.sectors)
    f = finite.conclusion["f"]
    algebra = _limit_high_beta(f.xreplace({e: sp.S.Zero for e in f.atoms(Expectation)}))
    # exponent of the integral over the replica noise, in terms of the fields h = omega + noise
    i = index("i")
    shift = [s.field(i) - s.cavity(i) for s in model.sectors]
    precision = fields.conclusion["replica_covariance"].inv()
    penalty: Any = sp.S.Zero
    for u, w in itertools.product(range(len(shift)), repeat=2):
        penalty += precision[u, w] * TokenSum(shift[u] * shift[w], i) / 2
    loss = sp.Symbol("loss", real=True)
    exponent = expand_outside(-BETA * loss - penalty)
    objective = _limit_high_beta(expand_outside(-exponent / BETA))
    objective = objective.xreplace({loss: loss_of(replicated)})
    minimum = Minimum(objective, [sp.Symbol(s.field_name) for s in model.sectors])
    conclusion = {
        "f": algebra + RATIO * Expectation(minimum, model.random_symbols),
    }

    def check(c: Conclusion) -> CheckResult:
        cold = sp.Rational(10) ** 40
        point = random_point(_symbols(f, c["f"]) - {BETA}, seed=4)
        point |= {s: abs(v) for s, v in point.items() if s.name.startswith(("Vhat", "qhat"))}
        cross = b.cross()
        point |= {s: v / 9 for s, v in point.items() if s in cross}
        strip = {e: sp.S.Zero for e in f.atoms(Expectation)}
        strip |= {e: sp.S.Zero for e in c["f"].atoms(Expectation)}
        pairs = [(
            evaluate(c["f"].xreplace(strip), point, 60),
            evaluate(f.xreplace(strip).subs(BETA, cold), point, 60),
        )]
        # Laplace, against a loss for which the Gaussian integral is known at any beta:
        # one token, loss (y - a.h)^2/2, so -(1/beta) log Z_1 -> (y - a.omega)^2/(2(1 + a.V a))
        data = sp.Add(*c["f"].atoms(Expectation))
        mine = next(iter(data.atoms(Minimum))).objective
        held = {e: sp.Dummy(f"e{i}") for i, e in enumerate(c["f"].atoms(Expectation))}
        weight = sp.Add(*(sp.diff(c["f"].xreplace(held), d) for d in held.values()))
        coefficients = [sp.Rational(2 * k + 3, 5) for k in range(len(model.sectors))]
        toy = mine.subs(loss_of(replicated), _toy_loss(model, coefficients))
        toy = write_out(toy, 1).xreplace(point)
        h = [s.field(sp.Integer(1)) for s in model.sectors]
        omega = {s.cavity(sp.Integer(1)): sp.Rational(k + 2, 3)
                 for k, s in enumerate(model.sectors)}
        toy = toy.xreplace(omega).xreplace({LABEL: sp.Rational(7, 3)})
        solution = sp.solve([sp.diff(toy, x) for x in h], h, dict=True)[0]
        V = b.V.xreplace(point)
        a = sp.Matrix(coefficients)
        centre = sum(x * y for x, y in zip(coefficients, omega.values(), strict=True))
        gap = (sp.Rational(7, 3) - centre) ** 2
        exact = gap / (2 * (1 + (a.T * V * a)[0, 0]))
        pairs.append((evaluate(toy.xreplace(solution), {}), evaluate(exact, {})))
        pairs.append((evaluate(weight, point), evaluate(RATIO, point)))
        return compare(pairs, "f at beta = 1e40, and Laplace on a quadratic loss", 1e-16)

    return Step(
        name="free energy at zero temperature",
        rule=r"$\beta \to \infty$; Laplace's method on the replica noise",
        premises=(
            "replicated partition function", "free energy at finite temperature", "local fields",
        ),
        conclusion=conclusion,
        check=check,
        text="The data term becomes the Moreau envelope of the loss around the cavity field.",
        assumption=r"exchange of limits, $\beta \to \infty$ and $D \to \infty$; a unique minimum",
    )


def _toy_loss(model: Model, coefficients: list[Any]) -> Any:
    i = index("i")
    inner = sum(
        (a * s.field(i) for a, s in zip(coefficients, model.sectors, strict=True)), sp.S.Zero
    )
    return (LABEL - TokenSum(inner, i)) ** 2 / 2


def expand_outside(expr: Any) -> Any:
    """Expand the algebra and leave averages, minima, token sums and the loss as they are."""
    held = outermost(sp.sympify(expr), (Expectation, Minimum, LogPartition, TokenSum))
    dummies = {h: sp.Dummy(f"h{i}", real=True) for i, h in enumerate(held)}
    expanded = sp.expand(expr.xreplace(dummies))
    return expanded.xreplace({d: h for h, d in dummies.items()})


def _limit_high_beta(expr: Any) -> Any:
    """Term by term: powers of beta and ``log(beta ...)/beta``."""
    total: Any = sp.S.Zero
    for term in sp.Add.make_args(expr):
        total += sp.limit(term, BETA, sp.oo) if BETA in term.free_symbols else term
    if total.has(sp.oo, sp.nan, sp.zoo):
        raise DerivationError("the free energy diverges as beta -> oo")
    return total


def manifold(model: Model, zero: Step) -> Step:
    """Cross overlaps vanish: flipping the readout sector is a symmetry that flips exactly them."""
    b = Blocks(model.sectors)
    f = zero.conclusion["f"]
    cross = b.cross()
    if cross:
        require_parity(model)
    on = f.xreplace({s: sp.S.Zero for s in cross})
    strip = {e: sp.S.Zero for e in on.atoms(Expectation)}
    algebra = _tidy(on.xreplace(strip), model)
    data = sp.Add(*(RATIO * e for e in on.atoms(Expectation)))
    conclusion = {"f": algebra + data}

    def check(c: Conclusion) -> CheckResult:
        pairs = []
        for seed in (5, 6):
            point = random_point(_symbols(f, c["f"]), seed)
            averages = f.atoms(Expectation) | c["f"].atoms(Expectation)
            strip_all = {e: sp.Integer(3) for e in averages}
            bare = f.xreplace(strip_all)
            zero_cross = {s: sp.S.Zero for s in cross}
            pairs.append((
                evaluate(c["f"].xreplace(strip_all), point),
                evaluate(bare.xreplace(zero_cross), point),
            ))
            # even in the cross terms together: their gradient vanishes on the manifold
            near = {s: point[s] / 100 for s in cross if s in point}
            flipped = {s: -v for s, v in near.items()}
            pairs.append((
                evaluate(bare.xreplace(near), point), evaluate(bare.xreplace(flipped), point)
            ))
        same = sp.Add(*c["f"].atoms(Expectation)) == sp.Add(*(
            e.xreplace({s: sp.S.Zero for s in cross}) for e in f.atoms(Expectation)
        ))
        result = compare(pairs, "f with the cross terms at zero, and its parity in them")
        return CheckResult(result.passed and same, result.detail)

    return Step(
        name="manifold",
        rule=(
            r"parity: changing the sign of $v$, $v^\ast$, $y$ and $\xi$ leaves loss and law "
            "unchanged and flips exactly the cross overlaps"
        ) if cross else "a single sector has no cross overlaps",
        premises=("free energy at zero temperature",),
        conclusion=conclusion,
        check=check,
        text="Cross overlaps at zero are stationary by symmetry (stationary, not necessarily "
        "stable).",
    )


def require_parity(model: Model) -> None:
    """Loss and channel are invariant when the readout sector, its teacher and labels flip."""
    s = model.readout

    def flip(expr: Any) -> Any:
        expr = sp.sympify(expr)
        flipped = {a: -a for a in expr.atoms(AppliedUndef) if a.func in (s.field, s.teacher)}
        return expr.xreplace(flipped).xreplace({LABEL: -LABEL, NOISE: -NOISE})

    loss_gap = sp.expand(_pull_sign(flip(model.loss)) - model.loss)
    channel_gap = sp.expand(flip(model.channel) + model.channel)
    weight_gap = sp.expand(flip(model.log_weight) - model.log_weight)
    if loss_gap != 0 or channel_gap != 0 or weight_gap != 0:
        raise DerivationError(
            f"model {model.name}: the loss, channel or weight is not invariant under the flip of "
            f"sector {s.name}, so the manifold of zero cross overlaps is not stationary"
        )


def _pull_sign(expr: Any) -> Any:
    def outside(t: TokenSum) -> Any:
        coefficient, body = t.body.as_coeff_Mul()
        return coefficient * TokenSum(body, t.bound)

    return expr.xreplace({t: outside(t) for t in expr.atoms(TokenSum)})


def _tidy(expr: Any, model: Model) -> Any:
    """Per sector: polynomial terms, then one fraction over ``2 (r + Vhat)``."""
    total: Any = sp.S.Zero
    own = {s: {s.m, s.q, s.V, s.m_hat, s.q_hat, s.V_hat} for s in model.sectors}
    for s in model.sectors:
        others = {x: sp.S.Zero for t in model.sectors if t != s for x in own[t]}
        part = sp.cancel(expr.xreplace(others))
        quotient = sp.Add(*(
            t for t in sp.Add.make_args(sp.apart(part, s.V_hat)) if sp.denom(t).is_number
        ))
        total += sp.expand(quotient) + sp.factor(sp.cancel(part - quotient))
    if sp.cancel(total - expr) != 0:
        raise DerivationError("on the manifold the free energy does not split into sectors")
    return total


def _symbols(*exprs: Any) -> set[sp.Symbol]:
    found: set[sp.Symbol] = set()
    for e in exprs:
        found |= {s for s in e.free_symbols if isinstance(s, sp.Symbol)}
    return found


__all__ = [
    "BETA", "REPLICAS", "Blocks", "Check", "data_term", "finite_temperature", "fourier",
    "integrate_weights", "local_fields", "manifold", "no_replicas", "replica_symmetry",
    "replicate", "teacher_overlaps", "zero_temperature",
]
