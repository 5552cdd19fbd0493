"""``1 + erf(c + chi_l)``, ``c`` a real parameter."""

import sympy as sp

from replica.model import Activation, Parameter

x = sp.Symbol("x", real=True)
c = sp.Symbol("c", real=True)

ACTIVATION = Activation(
    name="erf", x=x, expression=1 + sp.erf(c + x), parameters=(Parameter("shift", c, -1.0),)
)
