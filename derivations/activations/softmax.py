"""``exp(chi_l)/sum_m exp(chi_m)``."""

import sympy as sp

from replica.model import Activation

x = sp.Symbol("x", real=True)

ACTIVATION = Activation(name="softmax", x=x, log_weight=x)
