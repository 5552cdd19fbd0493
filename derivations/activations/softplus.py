"""``softplus(chi_l)/sum_m softplus(chi_m)``, ``softplus(x) = log(1 + exp(x))``."""

import sympy as sp

from replica.model import Activation
from replica.symbolic.primitives import log_softplus

x = sp.Symbol("x", real=True)

ACTIVATION = Activation(name="softplus", x=x, log_weight=log_softplus(x))
