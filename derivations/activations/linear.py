"""``1 + chi_l``."""

import sympy as sp

from replica.model import Activation

x = sp.Symbol("x", real=True)

ACTIVATION = Activation(name="linear", x=x, expression=1 + x)
