"""Sampling on the GPU: every number depends on the seed and its own index alone.

Random bits come from Philox4x32-10 (Salmon et al., SC 2011), a counter-based generator: the counter
is the index, the key the seed, so neither the launch shape nor the device changes a number. The
teachers are drawn on the host, as for sampling on the CPU; the samples themselves are others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from replica.codegen.cuda import Device
from replica.codegen.kernel_source import cuda_platform
from replica.errors import UsageError
from validation.data import Batch, Dataset, split_samples, teachers

THREADS = 256
MEMORY_SHARE = 0.8

SOURCE = r"""
DEVICE void philox(unsigned *c, unsigned k0, unsigned k1) {
    for (int round = 0; round < 10; ++round) {
        const unsigned h0 = __umulhi(0xD2511F53u, c[0]), l0 = 0xD2511F53u * c[0];
        const unsigned h1 = __umulhi(0xCD9E8D57u, c[2]), l1 = 0xCD9E8D57u * c[2];
        c[0] = h1 ^ c[1] ^ k0; c[1] = l1; c[2] = h0 ^ c[3] ^ k1; c[3] = l0;
        k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
    }
}

/* in (0, 1), 53 bits */
DEVICE double unit(unsigned high, unsigned low) {
    const unsigned long long bits = ((unsigned long long)high << 32 | low) >> 11;
    return ((double)bits + 0.5) * 1.1102230246251565e-16;
}

DEVICE void four_words(unsigned *c, index_t index, unsigned stream, unsigned long long seed) {
    c[0] = (unsigned)index; c[1] = (unsigned)((unsigned long long)index >> 32);
    c[2] = stream; c[3] = 0;
    philox(c, (unsigned)seed, (unsigned)(seed >> 32));
}

extern "C" __global__ void uniforms(double *out, index_t count, unsigned stream,
                                    unsigned long long seed) {
    const index_t step = (index_t)gridDim.x * blockDim.x;
    for (index_t n = (index_t)blockIdx.x * blockDim.x + threadIdx.x; 2 * n < count; n += step) {
        unsigned c[4];
        four_words(c, n, stream, seed);
        out[2 * n] = unit(c[0], c[1]);
        if (2 * n + 1 < count) out[2 * n + 1] = unit(c[2], c[3]);
    }
}

/* Box and Muller's pairs */
extern "C" __global__ void normals(double *out, index_t count, unsigned stream,
                                   unsigned long long seed) {
    const index_t step = (index_t)gridDim.x * blockDim.x;
    for (index_t n = (index_t)blockIdx.x * blockDim.x + threadIdx.x; 2 * n < count; n += step) {
        unsigned c[4];
        double s, k;
        four_words(c, n, stream, seed);
        const double radius = sqrt(-2.0 * rp_log(unit(c[0], c[1])));
        sincospi(2.0 * unit(c[2], c[3]), &s, &k);
        out[2 * n] = radius * k;
        if (2 * n + 1 < count) out[2 * n + 1] = radius * s;
    }
}
"""


class Sampler:
    """Random arrays on a device."""

    def __init__(self, device: Device, seed: int) -> None:
        self.device = device
        self.seed = seed
        self.module = device.compile(cuda_platform(1) + "\n" + SOURCE)
        self.streams = 0

    def _draw(self, kernel: str, shape: tuple[int, ...]) -> Any:
        out = self.device.xp.empty(shape)
        self.streams += 1
        blocks = max(1, min(2**16, -(-out.size // (2 * THREADS))))
        self.device.launch(self.module, kernel, blocks, THREADS, [
            out, np.int64(out.size), np.uint32(self.streams), np.uint64(self.seed),
        ])
        return out

    def uniforms(self, *shape: int) -> Any:
        """In (0, 1)."""
        return self._draw("uniforms", shape)

    def normals(self, *shape: int) -> Any:
        """Standard normal."""
        return self._draw("normals", shape)


def draw_on_device(
    device: Device,
    task: str,
    nu: float,
    lengths: Mapping[int, float],
    noise: float,
    dimension: int,
    samples: int,
    seed: int,
) -> Dataset:
    """As :func:`validation.data.draw`, tokens and labels on the device, teachers on the host.

    Raises
    ------
    UsageError
        If the tokens would not fit in the device's memory.
    """
    key, value = teachers(dimension, np.random.default_rng([seed, 0]))
    counts = split_samples(lengths, samples, seed)
    _check_memory(device, counts, dimension)
    sampler = Sampler(device, seed)
    batches = tuple(
        _batch(sampler, task, nu, length, noise, key, value, count)
        for length, count in counts.items()
    )
    return Dataset(batches, key, value)


def _check_memory(device: Device, counts: Mapping[int, int], dimension: int) -> None:
    needed = 8.0 * dimension * sum(length * n for length, n in counts.items())
    free = free_memory(device)
    if free is not None and needed > MEMORY_SHARE * free:
        raise UsageError(
            "dimension", dimension,
            f"a data set below {MEMORY_SHARE * free / 1e9:.0f} GB on this device (this one needs "
            f"{needed / 1e9:.1f} GB)",
        )


def free_memory(device: Device) -> int | None:
    """Free bytes on the device; ``None`` where it cannot tell."""
    cuda = getattr(device.xp, "cuda", None)
    return None if cuda is None else int(cuda.runtime.memGetInfo()[0])


def _batch(
    sampler: Sampler, task: str, nu: float, length: int, noise: float, key: Any, value: Any,
    count: int,
) -> Batch:
    xp, dimension = sampler.device.xp, len(key)
    root = math.sqrt(dimension)
    k, v = xp.asarray(key), xp.asarray(value)
    tokens = sampler.normals(count, length, dimension)
    rows = xp.arange(count)
    if task == "spiked":
        drawn = (length * sampler.uniforms(count)).astype(xp.int64)
        location = xp.minimum(drawn, length - 1)
        tokens[rows, location] += math.sqrt(nu) / root * k
    else:
        scores = (tokens.reshape(-1, dimension) @ k).reshape(count, length) / root
        if not math.isinf(nu):  # Gumbel's trick draws from softmax(nu scores)
            scores = nu * scores - xp.log(-xp.log(sampler.uniforms(count, length)))
        location = scores.argmax(axis=1)
    labels = tokens[rows, location] @ v / root
    labels = labels + noise * sampler.normals(count)
    return Batch(tokens, labels, location, length)
