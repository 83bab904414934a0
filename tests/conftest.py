"""Strict JAX for every test, and small inputs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

DATA = Path(__file__).parent / "data"


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


def relabelled(record, **changes):
    return dataclasses.replace(record, **changes)


def close(actual, expected, rtol=1e-12):
    np.testing.assert_allclose(np.asarray(actual, float), np.asarray(expected, float), rtol=rtol, atol=0)
