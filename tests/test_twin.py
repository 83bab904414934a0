"""The ten strategies against an independent slow twin in plain Python."""

import math

import numpy as np
import pytest
from conftest import close
from hypothesis import given, settings
from hypothesis import strategies as st
from questions import LENGTH, dnns, jobs, levelled, network, profile, project, strategies, systems
from reference import reference

import jaxoracle
from jaxoracle.partition import balanced_stages
from jaxoracle.records import KINDS, LIMITS, MEMORIES, TIMES
from jaxoracle.strategies import STRATEGIES

pytestmark = pytest.mark.usefixtures("x64")
SCALARS = ("forward_flops", "backward_flops", "input_items", "output_items", "weight_items", "exchanged_items")
SCALARS += ("entered_items", "reduced_items", "channels", "filters")
EXTENTS = ("input_extent", "output_extent", "kernel", "stride")


def rows(layers):
    return [
        {name: float(getattr(layers, name)[i]) for name in SCALARS}
        | {name: getattr(layers, name)[i].tolist() for name in EXTENTS}
        | {"kind": KINDS[int(layers.kind[i])], "weighted": bool(layers.weighted[i])}
        for i in range(len(layers.kind))
    ]


def plain(job, count, stages):
    fields = (
        "pes",
        "group",
        "samples_per_pe",
        "dataset_size",
        "segments",
        "bytes_per_item",
        "reuse",
        "optimizer_copies",
    )
    return {name: getattr(job, name) for name in fields} | {
        "split_layers": None if job.split_layers is None else list(job.split_layers[:count]),
        "split": None if job.split is None else list(job.split),
        "stages": stages,
        "hierarchical": bool(job.hierarchical),
    }


def plain_system(system):
    fields = ("peak_flops", "memory_bandwidth", "memory_bytes", "layer_overhead", "efficiency")
    return {name: float(getattr(system, name)) for name in fields} | {
        name: getattr(system, name).tolist() for name in ("capacity", "alpha", "beta", "links")
    }


@settings(max_examples=200, deadline=None)
@given(strategies, dnns, systems, jobs(), st.one_of(st.none(), st.integers(0, 99)), st.data())
def test_every_strategy_agrees_with_its_slow_twin(strategy, dnn, system, job, seed, data):
    layers = jaxoracle.dnn(dnn)
    count = len(layers.kind)
    times = None if seed is None else profile(dnn, seed)
    changes = {}
    if data.draw(st.booleans(), "own mask"):
        mask = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 2, count)
        mask[np.flatnonzero(layers.weighted)[0]] = 1  # what splits nothing is another question
        changes["split_layers"] = np.pad(mask.astype(float), (0, LENGTH - count))
    if "spatial" in strategy and data.draw(st.booleans(), "own factors"):
        changes["split"] = np.asarray(data.draw(st.sampled_from([(2.0, 2.0, 1.0), (1.0, 3.0, 1.0), (1.0, 2.0, 4.0)])))
    kind, stages = STRATEGIES[strategy], None
    if kind.staged:
        costs = (
            layers.forward_flops + layers.backward_flops if times is None else (times.forward + times.backward)[:count]
        )
        stages = balanced_stages(costs, int(kind.parts(job)))
        changes["stages"] = np.pad(stages, (0, LENGTH - count), mode="edge")
    job = jaxoracle.Job(**({f: getattr(job, f) for f in job.__dataclass_fields__} | changes))
    found = project(strategy, network(dnn), job, levelled(system), times)
    slow_times = None
    if times is not None:
        slow_times = [{n: float(getattr(times, n)[i]) for n in ("forward", "backward", "update")} for i in range(count)]
    twin = reference(strategy, rows(layers), plain(job, count, stages), plain_system(levelled(system)), slow_times)
    assert LIMITS[int(found.structural_limit)] == twin["structural_limit"]
    for name in TIMES:
        # the twin goes on where the split factors do not multiply to the group; such times mean nothing
        expected = math.nan if twin["structural_limit"] == "split" else twin[name]
        assert math.isnan(expected) == bool(np.isnan(getattr(found, name))), name
        close(getattr(found, name), expected, rtol=1e-9)
    if not math.isnan(twin["memory"]):  # the twin has no memory where p2 does not divide p
        for name in (*MEMORIES, "memory"):
            close(getattr(found, name), twin[name], rtol=1e-9)
        assert bool(found.feasible) == twin["feasible"]
