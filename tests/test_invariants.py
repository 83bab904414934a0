"""What must hold of every strategy, network and system; nothing here is edited when one is added."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import close
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from questions import (
    HYBRIDS,
    PURE,
    as_dict,
    dnns,
    jobs,
    levelled,
    network,
    profile,
    project,
    strategies,
    systems,
    tree_close,
)

import jaxoracle
from jaxoracle.projection import FINDINGS
from jaxoracle.records import COMPUTATIONS, EXCHANGES, LIMITS, MEMORIES, TIMES
from jaxoracle.strategies import STRATEGIES

MEANINGLESS = tuple(LIMITS.index(name) for name in ("capacity", "group", "split"))
COSTS = (*TIMES, *MEMORIES)
EXAMPLES = settings(max_examples=40, deadline=None)
pytestmark = pytest.mark.usefixtures("x64")


def replaced(system, **factors):
    return dataclasses.replace(system, **{name: getattr(system, name) * factor for name, factor in factors.items()})


@EXAMPLES
@given(strategies, dnns, systems, jobs())
def test_times_and_memory_are_finite_and_not_negative_or_flagged(strategy, dnn, system, job):
    found = project(strategy, network(dnn), job, levelled(system))
    meaningless = int(found.structural_limit) in MEANINGLESS
    for name in TIMES:
        value = float(getattr(found, name))
        assert np.isnan(value) if meaningless else (np.isfinite(value) and value >= 0), name
    for name in MEMORIES:
        assert np.isfinite(getattr(found, name)), name
        assert getattr(found, name) >= 0, name
    if not meaningless:
        close(found.iteration_time, sum(float(getattr(found, name)) for name in TIMES))
        for name, finding in FINDINGS.items():
            assert float(finding(found)) >= -1e-12, name
            assert name == "number_of_pes" or float(finding(found)) <= 1 + 1e-12, name
    assert bool(found.feasible) == (int(found.limit) == 0)
    assert not bool(found.feasible) or found.memory <= found.memory_bytes


@EXAMPLES
@given(
    strategies, dnns, systems, jobs(pes=st.just(1), group=1.0, segments=1.0), st.one_of(st.none(), st.integers(0, 9))
)
def test_one_pe_equals_serial(strategy, dnn, system, job, seed):
    times = None if seed is None else profile(dnn, seed)
    found = project(strategy, network(dnn), job, levelled(system), times)
    serial = project("serial", network(dnn), job, levelled(system), times)
    tree_close(found, serial, 1e-12, COSTS)
    assert sum(float(getattr(found, name)) for name in EXCHANGES) == 0.0
    close(found.iteration_time, found.serial_time)


@EXAMPLES
@given(st.sampled_from(HYBRIDS), dnns, systems, jobs(pes=st.integers(1, 64)))
def test_a_hybrid_of_groups_of_one_equals_data(strategy, dnn, system, job):
    job = dataclasses.replace(job, group=1.0, segments=1.0)
    found = project(strategy, network(dnn), job, levelled(system))
    data = project("data", network(dnn), job, levelled(system))
    tree_close(found, data, 1e-12, (*COSTS, "structural_limit", "redundant_memory"))


@EXAMPLES
@given(st.sampled_from(PURE), dnns, systems, jobs(pes=st.integers(1, 64)))
def test_a_hybrid_of_one_group_equals_its_other_parent(strategy, dnn, system, job):
    job = dataclasses.replace(job, group=job.pes, hierarchical=0.0)
    found = project(f"data+{strategy}", network(dnn), job, levelled(system))
    parent = project(strategy, network(dnn), job, levelled(system))
    tree_close(found, parent, 1e-12, (*COSTS, "structural_limit", "replicated_compute", "imbalance"))


@EXAMPLES
@given(strategies, dnns, systems, jobs(), st.floats(0.1, 10.0))
def test_scaling_every_second_scales_every_time_and_no_memory(strategy, dnn, system, job, k):
    slower = replaced(levelled(system), alpha=k, beta=k, layer_overhead=k, peak_flops=1 / k, memory_bandwidth=1 / k)
    found, scaled = (project(strategy, network(dnn), job, s) for s in (levelled(system), slower))
    for name in TIMES:
        close(getattr(scaled, name), k * getattr(found, name), rtol=1e-9)
    tree_close(scaled, found, 0, MEMORIES)


@EXAMPLES
@given(strategies, dnns, systems, jobs())
def test_communication_is_affine_in_latency_and_inverse_bandwidth(strategy, dnn, system, job):
    base, zero = levelled(system), np.zeros(4)
    both = project(strategy, network(dnn), job, base)
    alpha = project(strategy, network(dnn), job, dataclasses.replace(base, beta=zero))
    beta = project(strategy, network(dnn), job, dataclasses.replace(base, alpha=zero))
    for name in EXCHANGES:
        close(getattr(both, name), float(getattr(alpha, name)) + float(getattr(beta, name)), rtol=1e-9)


@EXAMPLES
@given(strategies, dnns, systems, jobs(bytes_per_item=2.0))
def test_bytes_per_item_multiply_transfers_and_memory(strategy, dnn, system, job):
    still = dataclasses.replace(levelled(system), alpha=np.zeros(4))
    one = project(strategy, network(dnn), job, still)
    two = project(strategy, network(dnn), dataclasses.replace(job, bytes_per_item=4.0), still)
    for name in (*EXCHANGES, *MEMORIES):
        close(getattr(two, name), 2 * getattr(one, name), rtol=1e-9)


@EXAMPLES
@given(strategies, dnns, systems, jobs(), st.sampled_from(["beta", "alpha", "peak_flops", "memory_bandwidth", "links"]))
def test_a_worse_machine_never_speeds_anything_up(strategy, dnn, system, job, figure):
    factor = 2.0 if figure in ("beta", "alpha") else 0.5
    found = project(strategy, network(dnn), job, levelled(system))
    worse = project(strategy, network(dnn), job, replaced(levelled(system), **{figure: factor}))
    assume(not np.isnan(found.iteration_time))
    for name in TIMES:
        assert getattr(worse, name) >= getattr(found, name) * (1 - 1e-12), name


@EXAMPLES
@given(strategies, dnns, systems, jobs())
def test_memory_never_falls_with_the_batch(strategy, dnn, system, job):
    more = dataclasses.replace(job, samples_per_pe=1.5 * job.samples_per_pe)
    assert project(strategy, network(dnn), more, levelled(system)).memory >= project(
        strategy, network(dnn), job, levelled(system)
    ).memory * (1 - 1e-12)


@EXAMPLES
@given(st.sampled_from(["data", *HYBRIDS]), dnns, systems, jobs(), st.integers(1, 7))
def test_gradient_exchange_never_falls_as_replicas_are_added(strategy, dnn, system, job, extra):
    group = job.group
    few = dataclasses.replace(job, pes=3 * group)
    many = dataclasses.replace(job, pes=(3 + extra) * group)
    found = [project(strategy, network(dnn), j, levelled(system)).gradient_exchange for j in (few, many)]
    assume(not np.isnan(found).any())
    assert found[1] >= found[0] * (1 - 1e-12)


@EXAMPLES
@given(st.sampled_from([s for s, k in STRATEGIES.items() if not k.staged]), dnns, systems, jobs())
def test_compiled_equals_eager(strategy, dnn, system, job):
    found = project(strategy, network(dnn), job, levelled(system))
    with jax.disable_jit():
        eager = project(strategy, network(dnn), job, levelled(system))
    tree_close(found, eager, 1e-12)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_mapped_projection_equals_a_loop_and_a_compiled_one(strategy):
    layers, system = network("alexnet"), levelled("abci")
    pes = jnp.asarray([1.0, 2.0, 6.0, 16.0, 48.0])
    batches = jnp.asarray([3.0, 64.0, 1.0, 8.0, 5.5])

    def ask(p, b):
        job = jaxoracle.Job(pes=p, samples_per_pe=b, group=2.0)
        return jaxoracle.project(strategy, layers, job, system)

    mapped = jax.vmap(ask)(pes, batches)
    for row, (p, b) in enumerate(zip(pes, batches, strict=True)):
        loop = ask(float(p), float(b))
        tree_close(jax.tree.map(lambda a, row=row: a[row], mapped), loop, 1e-12)
        tree_close(jax.jit(ask)(p, b), loop, 1e-12)


FIGURES = ("peak_flops", "memory_bandwidth", "layer_overhead", "efficiency", "alpha", "beta", "links")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("pes", [1.0, 12.0, 64.0, 100.0])
def test_gradients_are_central_differences(strategy, pes):
    layers, system = network("resnet50"), levelled("abci")
    job = jaxoracle.Job(pes=pes, samples_per_pe=7.3, group=4.0 if pes > 1 else 1.0, segments=3.0)

    def time(values):
        return jaxoracle.project(strategy, layers, job, dataclasses.replace(system, **values)).iteration_time

    at = {name: jnp.asarray(getattr(system, name), float) for name in FIGURES}
    slopes = jax.grad(time)(at)
    assert all(bool(jnp.isfinite(s).all()) for s in slopes.values())
    for name in FIGURES:
        for index in np.ndindex(at[name].shape):
            value = float(at[name][index])
            if not np.isfinite(value):
                continue
            step = (
                1e-6 * value
            )  # keeps the three equal outer bandwidths apart from a kink: they tie, the innermost moves
            up, down = (float(time(at | {name: at[name].at[index].add(s)})) for s in (step, -step))
            here = float(time(at))
            if not np.isclose(up - here, here - down, rtol=1e-4, atol=1e-13 * here):
                continue  # a kink: one-sided slopes differ, the gradient is one of them
            close(float(slopes[name][index]) * value, (up - down) / 2e-6, rtol=1e-5) if abs(
                up - down
            ) > 1e-9 * here else None


@pytest.mark.parametrize("strategy", ["data", "channel", "data+spatial", "data+pipeline"])
def test_job_floats_have_finite_gradients(strategy):
    layers, system = network("vgg16"), levelled("abci")
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
    at = {"pes": 8.0, "group": 4.0, "samples_per_pe": 5.0, "dataset_size": 1e6, "segments": 2.0, "bytes_per_item": 4.0}
    at |= {"reuse": 0.9, "optimizer_copies": 1.0}

    def costs(values):
        found = jaxoracle.project(strategy, layers, jaxoracle.Job(**values), system)
        return found.epoch_time + 1e-9 * found.memory

    slopes = jax.grad(costs)({name: jnp.asarray(at[name]) for name in fields})
    assert all(np.isfinite(float(s)) for s in slopes.values())
    close(
        slopes["dataset_size"],
        jaxoracle.project(strategy, layers, jaxoracle.Job(**at), system).iteration_time / 40,
        rtol=1e-9,
    )


@pytest.mark.parametrize("strategy", [s for s, k in STRATEGIES.items() if k.parted])
@pytest.mark.parametrize("dnn", ["vgg16", "paradl-resnet50"])
def test_every_bandwidth_and_latency_that_is_spanned_prices_a_strategy(strategy, dnn):
    """The published tool read its platform file and ignored it."""
    job = jaxoracle.Job(pes=4.0, samples_per_pe=4.0, group=2.0, hierarchical=1.0)
    found = project(strategy, network(dnn), job, levelled("abci"))
    for figure in ("alpha", "beta"):
        values = np.array(getattr(levelled("abci"), figure)) * [2.0, 1.0, 1.0, 1.0]
        worse = project(strategy, network(dnn), job, dataclasses.replace(levelled("abci"), **{figure: values}))
        assert worse.iteration_time > found.iteration_time


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"pes": -4}, "positive"),
        ({"pes": 0}, "positive"),
        ({"pes": float("nan")}, "finite"),
        ({"pes": "16"}, "one number"),
        ({"pes": None}, "one number"),
        ({"pes": 1 + 2j}, "one number"),
        ({"pes": 10**400}, "one number"),
        ({"split": (2, 2)}, "three factors"),
        ({"pes": np.array([4, 8])}, "jax.vmap"),
        ({"samples_per_pe": 0.0}, "positive"),
        ({"split_layers": np.ones(3)}, "each of the"),
    ],
)
def test_a_job_that_makes_no_sense_is_an_error(changes, word):
    asked = jaxoracle.Job(**({"pes": 4, "samples_per_pe": 2} | changes)), jaxoracle.system("abci")
    layers = jaxoracle.dnn("alexnet")
    with pytest.raises(jaxoracle.OracleError, match=word):
        jaxoracle.project("data", layers, *asked)


def test_a_profile_of_another_network_is_an_error():
    asked = ("data", jaxoracle.dnn("alexnet"), jaxoracle.Job(pes=4, samples_per_pe=2), jaxoracle.system("abci"))
    times = jaxoracle.profile("vgg16", "abci")
    with pytest.raises(jaxoracle.OracleError, match="profile must have one entry"):
        jaxoracle.project(*asked, times)


def test_records_in_the_wrong_place_are_an_error():
    layers, job, system = jaxoracle.dnn("alexnet"), jaxoracle.Job(pes=4, samples_per_pe=2), jaxoracle.system("abci")
    for asked in ((job, layers, system), ("alexnet", job, system), (layers, job, "abci"), (None, job, system)):
        with pytest.raises(jaxoracle.OracleError, match="must be the record"):
            jaxoracle.project("data", *asked)


def test_every_field_of_a_projection_is_a_number():
    found = as_dict(project("data", network("alexnet"), jaxoracle.Job(pes=2, samples_per_pe=2), levelled("abci")))
    assert {name for name, value in found.items() if np.isnan(value)} == {"price"}
    assert set(COMPUTATIONS) <= set(found)
