"""Sampling and training on a device, emulated on the CPU."""

import numpy as np
import pytest
import scipy.special

from derivations.setting import make_setting
from replica.codegen.nvrtc import compile_cubin, find_nvrtc
from tests.cuda_emulator import EmulatedDevice, compiler
from validation import device_data
from validation.data import Dataset, draw
from validation.device_data import Sampler, draw_on_device
from validation.erm import TrainingProblem
from validation.simulate import make_simulator

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

PROBE = """
extern "C" __global__ void probe(unsigned *c, unsigned k0, unsigned k1) { philox(c, k0, k1); }
"""


@pytest.fixture(scope="module")
def device():
    return EmulatedDevice()


@pytest.mark.parametrize(
    ("counter", "key", "want"),
    [  # the known answers published with the generator
        ([0, 0, 0, 0], [0, 0], "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0],
         "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_the_generator_is_philox(device, counter, key, want):
    module = device.compile(
        device_data.cuda_platform(1) + device_data.SOURCE + PROBE
    )
    words = np.array(counter, dtype=np.uint32)
    device.launch(module, "probe", 1, 1, [words, np.uint32(key[0]), np.uint32(key[1])])
    assert " ".join(f"{w:08x}" for w in words) == want


@pytest.mark.skipif(find_nvrtc() is None, reason="no CUDA run-time compiler")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_the_sampling_kernels_compile(architecture):
    cubin = compile_cubin(device_data.cuda_platform(1) + device_data.SOURCE, architecture)
    assert b"normals" in cubin
    assert b"uniforms" in cubin


def test_numbers_do_not_depend_on_the_launch(device, monkeypatch):
    first = Sampler(device, 7).normals(1001)
    monkeypatch.setattr(device_data, "THREADS", 32)
    assert np.array_equal(first, Sampler(device, 7).normals(1001))
    assert np.array_equal(first[:500], Sampler(device, 7).normals(500))
    assert not np.array_equal(first, Sampler(device, 8).normals(1001))


def test_moments(device):
    sampler = Sampler(device, 3)
    x = sampler.normals(200_000)
    n = len(x)
    assert abs(x.mean()) < 4 / np.sqrt(n)
    assert abs((x**2).mean() - 1) < 4 * np.sqrt(2 / n)
    assert abs((x**4).mean() - 3) < 4 * np.sqrt(96 / n)
    assert abs((x[::2] * x[1::2]).mean()) < 4 / np.sqrt(n / 2)
    again = sampler.normals(200_000)  # the next call is another stream
    assert abs((x * again).mean()) < 4 / np.sqrt(n)
    u = sampler.uniforms(100_000)
    assert 0 < u.min() < u.max() < 1
    assert abs(u.mean() - 0.5) < 4 * np.sqrt(1 / 12 / len(u))


@pytest.mark.parametrize(("task", "nu"), [("spiked", 2.0), ("max", 2.0), ("max", np.inf)])
def test_the_law_is_that_of_the_cpu(device, task, nu):
    law = (task, nu, {2: 0.5, 3: 0.5}, 0.1, 60, 6000)
    found = []
    for data in (draw_on_device(device, *law, 5), draw(*law, 6)):
        rows = []
        for b in data.batches:
            key = b.tokens @ data.key / np.sqrt(60)
            value = b.tokens @ data.value / np.sqrt(60)
            at = np.arange(len(b.labels))
            here = key[at, b.location]
            rows.append(np.stack([
                here, here**2, key.sum(axis=1), b.labels**2, b.labels * value[at, b.location],
                b.labels * here,
            ]))
        found.append(np.concatenate(rows, axis=1))
    means = [x.mean(axis=1) for x in found]
    error = np.sqrt(sum(x.var(axis=1) / x.shape[1] for x in found))
    assert np.all(np.abs(means[0] - means[1]) < 4.5 * error)


def test_training_on_the_device_is_training_on_the_host(device, activation):
    setting = make_setting(
        activation=activation, nu=2.0, length=3, task="spiked", reg=0.5, reg_k=None, reg_v=None,
        noise=0.1,
    )
    simulator = make_simulator(setting)
    data = draw_on_device(device, "spiked", 2.0, {3: 1.0}, 0.1, 30, 60, 1)
    values = setting.values()
    host = TrainingProblem(data, simulator.loss, values, 0.5, 0.5)
    loss = simulator.loss.on(np, scipy.special)
    there = TrainingProblem(
        Dataset(data.batches, data.key, data.value), loss, values, 0.5, 0.5, device
    )
    weights = np.random.default_rng(0).normal(size=60)
    (f, g), (f2, g2) = host.objective(weights), there.objective(weights)
    assert f == pytest.approx(f2, rel=1e-13)
    assert np.allclose(g, g2, rtol=1e-12, atol=1e-14)
    assert there.train(weights).converged


def test_data_sets_beyond_the_memory_are_refused(device, monkeypatch):
    monkeypatch.setattr(device_data, "free_memory", lambda d: 1000)
    with pytest.raises(Exception, match="dimension"):
        draw_on_device(device, "spiked", 2.0, {3: 1.0}, 0.1, 30, 60, 1)
