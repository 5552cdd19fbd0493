"""Fixtures that several test packages share."""

from __future__ import annotations

from functools import cache

import pytest

from derivations.slr import single_location
from replica.codegen.programs import Programs, build_programs
from replica.derivation.chain import SaddlePointEquations, derive_erm

ACTIVATIONS = ("softmax", "linear", "erf", "softplus")


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


@cache
def derived(activation: str, task: str = "spiked", strongest: bool = False) -> SaddlePointEquations:
    return derive_erm(single_location(task, activation, strongest=strongest))


@cache
def programs_of(activation: str, task: str = "spiked", stein: bool = True) -> Programs:
    return build_programs(derived(activation, task), stein=stein)


@pytest.fixture(params=ACTIVATIONS)
def activation(request) -> str:
    return request.param
