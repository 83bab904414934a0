"""The benchmark's rivals, in vectorised NumPy and in plain Python, say what the package says."""

import dataclasses
from functools import cache

import jax
import numpy as np
import pytest
from benchmarks import numpy_model, scalar_model
from conftest import close

import jaxoracle
from jaxoracle.layers import padded
from jaxoracle.partition import balanced_stages
from jaxoracle.records import LIMITS
from jaxoracle.strategies import STRATEGIES

pytestmark = pytest.mark.usefixtures("x64")

DNNS = ("resnet18", "cosmoflow")
LENGTH = max(len(jaxoracle.dnn(name).kind) for name in DNNS)  # of one shape, so that programs compile once
#: (p, p2): dividing and not, within one level and beyond the last, more than a network can be split into
PES = [(1, 1), (2, 1), (2, 2), (6, 3), (7, 2), (12, 4), (16, 5), (24, 24), (60, 12), (90, 6), (96, 1), (100, 10)]
PES += [(130, 13), (144, 72), (150, 50), (200, 8), (240, 240), (255, 17), (256, 16), (300, 7), (301, 7), (4, 8)]


@cache
def points(strategy):
    """Scattered jobs and systems, every number of its own."""
    random, count = np.random.default_rng(len(strategy)), 4 * len(PES)
    pes, group = np.tile(np.asarray(PES, float), (4, 1)).T
    sparse = random.random(count) < 0.15
    job = {
        "pes": np.where(random.random(count) < 0.1, 1.0, pes) if strategy == "serial" else pes,
        "group": group,
        "samples_per_pe": np.where(sparse, random.uniform(0.002, 0.1, count), random.uniform(0.5, 40, count)),
        "dataset_size": random.uniform(1e3, 1e6, count),
        "segments": random.integers(1, 12, count).astype(float),
        "bytes_per_item": random.choice([2.0, 4.0], count),
        "reuse": random.uniform(0.1, 1, count),
        "optimizer_copies": random.integers(0, 3, count).astype(float),
        "hierarchical": random.choice([0.0, 1.0, 0.3], count),
    }
    system = jaxoracle.system("abci")
    levels = {
        "capacity": (4.0 + random.integers(0, 5, count), 17.0 + random.integers(0, 9, count), np.full(count, 300.0)),
        "alpha": tuple(random.uniform(1e-7, 1e-4, (3, count))),
        "beta": tuple(random.uniform(1e-12, 1e-9, (3, count))),
        "links": (random.choice([1.0, 2.0, 0.5], count), random.choice([3.0, np.inf], count), np.full(count, np.inf)),
    }
    device = {f.name: getattr(system, f.name) for f in dataclasses.fields(system) if f.name not in levels}
    device = {field: value * random.uniform(0.5, 2, count) for field, value in device.items()}
    device["memory_bytes"] *= random.choice([1.0, 0.01], count)
    return job, jaxoracle.System(**levels, **device)


def times(name, kind):
    """Invented times of a network's layers; some are not measured."""
    if kind == "roofline":
        return None
    random = np.random.default_rng(7)
    forward, backward, update = random.uniform(1e-6, 1e-3, (3, len(jaxoracle.dnn(name).kind)))
    measured = None if kind == "measured" else random.integers(0, 2, len(forward)).astype(float)
    return jaxoracle.Profile(forward=forward, backward=backward, update=update, measured=measured)


def staged(strategy, layers, job):
    """The jobs with stages, if the strategy needs them: balanced by FLOPs."""
    if not STRATEGIES[strategy].staged:
        return job
    parts = job["group" if STRATEGIES[strategy].hybrid else "pes"]
    cost = layers.forward_flops + layers.backward_flops
    return job | {"stages": np.stack([balanced_stages(cost, int(part)) for part in parts])}


@cache
def program(strategy):
    """What the package says of many points at once, without what is not compared."""

    def say(network, profile, job, system):
        found = jaxoracle.project(strategy, network, job, system, profile)
        return {field: getattr(found, field) for field in numpy_model.FIELDS}

    return jax.jit(jax.vmap(say, in_axes=(None, None, 0, 0)))


def projected(strategy, layers, job, system, profile):
    missing = LENGTH - len(layers.kind)
    if "stages" in job:
        job = job | {"stages": np.pad(job["stages"], ((0, 0), (0, missing)), mode="edge")}
    longer = jax.tree.map(lambda values: np.pad(values, (0, missing)), profile)
    found = program(strategy)(padded(layers, LENGTH), longer, jaxoracle.Job(**job), system)
    return {field: np.asarray(values, float) for field, values in found.items()}


@pytest.mark.parametrize("kind", ["roofline", "measured", "partly measured"])
@pytest.mark.parametrize("name", DNNS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_both_models_say_what_the_package_says(strategy, name, kind):
    layers, profile = jaxoracle.dnn(name), times(name, kind)
    job, system = points(strategy)
    job = staged(strategy, layers, job)
    expected = projected(strategy, layers, job, system, profile)
    found = numpy_model.totals(strategy, layers, job, system, profile)
    lists, known = scalar_model.as_lists(layers), profile and scalar_model.as_lists(profile)
    one_by_one = []
    for i in range(len(job["pes"])):
        one_job, one_system = jax.tree.map(lambda values, i=i: values[i], (jaxoracle.Job(**job), system))
        question = strategy, lists, scalar_model.as_lists(one_job), scalar_model.as_lists(one_system), known
        one_by_one.append(scalar_model.totals(*question))
    for field in numpy_model.FIELDS:
        close(found[field], expected[field], rtol=1e-9)
        close([one[field] for one in one_by_one], expected[field], rtol=1e-9)
    needed = {"none", "capacity", "memory", "mini_batch"} | ({"pes"} if strategy != "data" else set())
    needed |= {"group"} if STRATEGIES[strategy].hybrid else set()
    needed |= {"segments"} if STRATEGIES[strategy].staged else set()
    assert needed <= {LIMITS[code] for code in found["limit"]}
    assert np.isnan(found["iteration_time"]).any()
    assert np.isfinite(found["iteration_time"]).any()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_numpy_keeps_to_float32_blocks_and_plain_numbers(strategy, monkeypatch):
    layers, system = jaxoracle.dnn("resnet18"), jaxoracle.system("abci")
    job = staged(strategy, layers, points(strategy)[0])
    whole = numpy_model.totals(strategy, layers, job, system)
    monkeypatch.setattr(numpy_model, "BLOCK", 7)
    narrow = {field: values.astype(np.float32) for field, values in job.items()}
    single = numpy_model.totals(strategy, layers, narrow, system)
    for field in ("iteration_time", "epoch_time", "memory"):
        assert single[field].dtype == np.float32
        close(single[field], whole[field], rtol=1e-5)
