"""The precision traps that were each seen to fail."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import close
from hypothesis import given, settings
from questions import dnns, jobs, levelled, network, project, strategies, systems

import jaxoracle
from jaxoracle.layers import Builder
from jaxoracle.records import MEMORIES, TIMES
from jaxoracle.strategies import STRATEGIES


def test_importing_does_not_change_the_precision_of_the_process():
    code = "import jaxoracle, jax; jaxoracle.project; assert not jax.config.jax_enable_x64"
    subprocess.run([sys.executable, "-c", code], check=True)


@settings(max_examples=40, deadline=None)
@given(strategies, dnns, systems, jobs())
def test_float32_is_good_to_three_millionths(strategy, dnn, system, job):
    single = project(strategy, network(dnn), job, levelled(system))
    with jax.enable_x64(True):
        double = project(strategy, network(dnn), job, levelled(system))
    assert single.iteration_time.dtype == np.float32
    assert double.iteration_time.dtype == np.float64
    assert int(single.structural_limit) == int(double.structural_limit)
    # kinds of a pipeline's memory are those of its largest stage: of two nearly equal ones either may be found
    memories = ("memory",) if STRATEGIES[strategy].staged else MEMORIES
    for name in (*TIMES, *memories, "serial_time"):
        close(getattr(single, name), getattr(double, name), rtol=3e-6)


def test_counts_beyond_32_bits_do_not_wrap():
    """64 samples of 2,122,416,000 items of 4 byte are 543,338,496,000 byte."""
    net = Builder(4, (512, 512, 512))
    net.convolution(net.input, 16, 3, bias=False)
    found = jaxoracle.project("serial", net.layers(), jaxoracle.Job(pes=1, samples_per_pe=64), jaxoracle.system("abci"))
    close(found.activations, 543_338_496_000 + 64 * 4 * 512**3 * 4, rtol=3e-7)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_whole_numbers_are_as_good_as_floats(strategy):
    layers, system = jaxoracle.dnn("alexnet"), jaxoracle.system("abci")
    whole = jaxoracle.project(
        strategy, layers, jaxoracle.Job(pes=8, samples_per_pe=3, group=2, dataset_size=2**40), system
    )
    real = jaxoracle.project(
        strategy, layers, jaxoracle.Job(pes=8.0, samples_per_pe=3.0, group=2.0, dataset_size=2.0**40), system
    )
    assert float(whole.epoch_time) == float(real.epoch_time)


def test_a_mini_batch_of_one_sample_a_replica_is_within_its_bound_for_every_p():
    """(B/p)·p₂ with B = p/p₂ is not always 1 in float32."""
    layers, system = jaxoracle.dnn("alexnet"), jaxoracle.system("abci")

    def limit(strategy, group):
        def ask(p):
            job = jaxoracle.Job(pes=p, samples_per_pe=(p / group) / p, group=group)
            return jaxoracle.project(strategy, layers, job, system).structural_limit

        return ask

    pes = jnp.arange(1.0, 2000.0)
    assert set(np.asarray(jax.vmap(limit("data", 1.0))(pes)).tolist()) == {0.0}
    assert set(np.asarray(jax.vmap(limit("data+filter", 7.0))(7 * pes[:600])).tolist()) == {0.0}


def test_whether_a_group_divides_is_exact_under_jit():
    layers, system = jaxoracle.dnn("alexnet"), jaxoracle.system("summit")

    def ask(p, g):
        job = jaxoracle.Job(pes=p, samples_per_pe=9.0, group=g)
        return jaxoracle.project("data+filter", layers, job, system).structural_limit

    p, g = (a.ravel() for a in np.meshgrid(np.arange(1, 301), np.arange(1, 41)))
    found = jax.vmap(ask)(jnp.asarray(p, float), jnp.asarray(g, float))
    assert ((np.asarray(found) == 2) == (p % g != 0)).all()
