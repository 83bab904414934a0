"""What users of related tools complain about, each as a number (other rows are tests of the modules they touch)."""

import dataclasses

import numpy as np
import pytest
from conftest import close

import jaxoracle
from jaxoracle.layers import Builder


@pytest.mark.parametrize("pes", [1, 2, 3, 8, 64])
def test_filter_weights_are_divided_by_p_once(pes, x64):
    """paradl-resnet50, B = 64, every line split: memory falls by 8 x 22,734,016 x (1 - 1/p) byte, no more."""
    layers = jaxoracle.dnn("paradl-resnet50")
    job = jaxoracle.Job(pes=pes, samples_per_pe=64 / pes, split_layers=np.ones(len(layers.kind)))
    found = jaxoracle.project("filter", layers, job, jaxoracle.system("abci"))
    close(found.memory, 34_063_977_984 - 8 * 22_734_016 * (1 - 1 / pes))


def test_seventy_billion_parameters_of_two_bytes_are_141_gigabytes(x64):
    net = Builder(1, ())
    net.dense(net.input, 70_550_000_000, bias=False)
    job = jaxoracle.Job(pes=1, samples_per_pe=1, bytes_per_item=2)
    found = jaxoracle.project("serial", net.layers(), job, jaxoracle.system("abci"))
    close(found.weights, 141.1e9)
    assert not bool(found.feasible)


@pytest.mark.parametrize("strategy", [s for s, k in jaxoracle.STRATEGIES.items() if k.parted])
@pytest.mark.parametrize("figure", ["alpha", "beta"])
def test_no_figure_of_a_link_is_read_and_ignored(strategy, figure):
    """Across nodes: every spanned level's latency and bandwidth is felt where it is the slowest."""
    layers, base = jaxoracle.dnn("alexnet"), jaxoracle.system("abci")
    job = jaxoracle.Job(pes=8, samples_per_pe=4, group=4)

    def time(level):
        values = np.array(getattr(base, figure))
        values[level] *= 100
        return float(
            jaxoracle.project(strategy, layers, job, dataclasses.replace(base, **{figure: values})).iteration_time
        )

    plain = float(jaxoracle.project(strategy, layers, job, base).iteration_time)
    assert time(0) > plain  # the node is spanned by all
    assert time(3) == plain  # the outermost level is not reached by eight PEs
    assert time(1) > plain  # the leaf switch joins the two nodes
