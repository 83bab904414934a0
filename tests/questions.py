"""Questions over the whole registry, for hypothesis; all of one shape, so that programs compile once."""

from __future__ import annotations

import dataclasses
from functools import cache

import jax
import numpy as np
from hypothesis import strategies as st

import jaxoracle
from jaxoracle.catalog import dnn_names, system_names
from jaxoracle.layers import padded
from jaxoracle.strategies import STRATEGIES

LENGTH, LEVELS = 514, 4
HYBRIDS = tuple(name for name, s in STRATEGIES.items() if s.hybrid)
PURE = tuple(name for name, s in STRATEGIES.items() if s.parted and not s.hybrid)


@cache
def network(name):
    return padded(jaxoracle.dnn(name), LENGTH)


@cache
def levelled(name):
    """A system with its outermost level repeated, which no communicator reaches beyond."""
    system = jaxoracle.system(name)
    missing = LEVELS - len(system.capacity)
    levels = {f: np.pad(getattr(system, f), (0, missing), mode="edge") for f in ("capacity", "alpha", "beta", "links")}
    return dataclasses.replace(system, **levels)


def profile(name, seed):
    """Invented times of a network's layers."""
    layers, random = jaxoracle.dnn(name), np.random.default_rng(seed)
    times = random.uniform(1e-6, 1e-3, (3, len(layers.kind)))
    fill = ((0, 0), (0, LENGTH - len(layers.kind)))
    forward, backward, update = np.pad(times, fill)
    return jaxoracle.Profile(forward=forward, backward=backward, update=update)


dnns = st.sampled_from(dnn_names())
systems = st.sampled_from(system_names())
strategies = st.sampled_from(list(STRATEGIES))


ANY_PES = st.integers(1, 200)


@st.composite
def jobs(draw, pes=ANY_PES, **fixed):
    """A job; the group divides p in most cases, and is any number in others."""
    p = draw(pes)
    dividing = st.sampled_from([d for d in range(1, p + 1) if p % d == 0])
    values = {
        "pes": float(p),
        "group": float(draw(st.one_of(dividing, dividing, st.integers(1, 12)))),
        "samples_per_pe": draw(st.one_of(st.integers(1, 64).map(float), st.floats(0.02, 70.0))),
        "dataset_size": float(draw(st.integers(1, 2_000_000))),
        "segments": float(draw(st.integers(1, 9))),
        "bytes_per_item": draw(st.sampled_from([2.0, 4.0, 8.0])),
        "reuse": draw(st.floats(0.1, 1.0)),
        "optimizer_copies": draw(st.sampled_from([0.0, 1.0, 2.0])),
        "hierarchical": draw(st.sampled_from([0.0, 1.0])),
    }
    return jaxoracle.Job(**(values | fixed))


def as_dict(projection):
    return {f.name: float(getattr(projection, f.name)) for f in dataclasses.fields(projection)}


def tree_close(one, other, rtol, names=None):
    for name in names or as_dict(one):
        np.testing.assert_allclose(
            float(getattr(one, name)), float(getattr(other, name)), rtol=rtol, atol=0, err_msg=name
        )


def project(strategy, layers, job, system, profile=None):
    return jax.tree.map(np.asarray, jaxoracle.project(strategy, layers, job, system, profile))
