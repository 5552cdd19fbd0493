"""The expressions that every printer must handle."""

import sympy as sp
from sympy.codegen.cfunctions import expm1, log1p

from replica.symbolic import primitives as prim
from replica.symbolic.tokens import RELEVANT, Centred, TokenSum, TokenWeights, index

x, y, a = sp.symbols("x y a", real=True)
i, l = index("i"), index("l")  # noqa: E741
X, Y = sp.Function("X", real=True), sp.Function("Y", real=True)
INPUTS = {"x": "node", "y": "node", "a": "uniform", "X": "token", "Y": "token"}
W = TokenWeights(X(i), i, l)

EXPRESSIONS = [
    x + a * y, x / 3, x**7 - 1 / x**2, sp.sqrt(x**2 + 1), sp.exp(x), sp.erf(x), 1 + sp.erf(x),
    sp.erfc(x), prim.erfcx(x), prim.log_ndtr(x), log1p(x**2), expm1(x), sp.Max(x, a),
    sp.Min(0, x, y), sp.diff(sp.Max(0, x), x), sp.log(TokenSum(sp.exp(X(l) * x), l)),
    sp.log(TokenSum(sp.exp(Y(l) + TokenSum(X(i), i)), l)) * X(l), sp.Max(X(l), a),
    sp.tanh(x), sp.sign(x), sp.Abs(x), sp.log(1 + x**2), prim.softplus(x),
    prim.sigmoid(x), prim.log_softplus(x), prim.softplus_score(x), sp.pi * x + sp.E,
    TokenSum(X(l) * Y(l), l), TokenSum(X(l) * TokenSum(Y(i), i), l), X(RELEVANT) * x,
    TokenSum(W * Y(l), l), TokenSum(W**2, l) * TokenSum(X(l), l), TokenSum(x, l),
    TokenSum(X(l) * sp.KroneckerDelta(RELEVANT, l), l), W * Y(l) + x,
    Centred.of(Y(l), l, TokenWeights(X(i), i, l)) * W, X(l) ** 2 - TokenSum(X(i), i),
]
