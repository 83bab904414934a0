"""Strict JAX for every test, and small inputs."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

# programs run once here: compiling them with fewer passes takes half the time
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"

import jax
import numpy as np
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

#: a run's workers share compiled programs
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".pytest_cache" / "programs"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)

DATA = Path(__file__).parent / "data"


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


def relabelled(record, **changes):
    return dataclasses.replace(record, **changes)


def close(actual, expected, rtol=1e-12):
    np.testing.assert_allclose(np.asarray(actual, float), np.asarray(expected, float), rtol=rtol, atol=0)
