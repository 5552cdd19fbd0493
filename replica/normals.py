"""Standard normals from uniforms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def standard_normal(
    uniforms: NDArray[np.float64], out: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Inverse normal distribution function, element-wise; into ``out`` if given."""
    from scipy.special import ndtri

    result: NDArray[np.float64] = ndtri(uniforms) if out is None else ndtri(uniforms, out=out)
    return result
