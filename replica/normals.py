"""Standard normals from uniforms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def standard_normal(uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Inverse normal distribution function, element-wise."""
    from scipy.special import ndtri

    result: NDArray[np.float64] = ndtri(uniforms)
    return result
