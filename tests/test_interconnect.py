"""Levels spanned and contention on ABCI: node 4, leaf 68, rack 136, system 4352 PEs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import close

import jaxoracle
from jaxoracle import interconnect

ABCI = jaxoracle.system("abci")


def scalar(value):
    return jnp.asarray(float(value))


@pytest.mark.parametrize(
    ("span", "microseconds", "gigabytes"),
    [
        (1, 9, 50),
        (4, 9, 50),
        (5, 40.31, 12.5),
        (68, 40.31, 12.5),
        (69, 40.49, 12.5),
        (136, 40.49, 12.5),
        (137, 40.98, 12.5),
    ],
)
def test_a_communicator_finds_the_slowest_level_that_it_spans(span, microseconds, gigabytes, x64):
    system = jax.tree.map(jnp.asarray, ABCI)
    close(interconnect.alpha(system, scalar(span)), microseconds * 1e-6)
    close(1 / interconnect.beta(system, scalar(span)), gigabytes * 1e9)


def test_a_slow_inner_level_is_not_hidden_by_a_fast_outer_one(x64):
    system = jax.tree.map(jnp.asarray, dataclasses.replace(ABCI, beta=np.array([1e-9, 1e-10, 1e-10, 1e-10])))
    close(interconnect.beta(system, scalar(1000)), 1e-9)


@pytest.mark.parametrize(
    ("rings", "span", "phi"),
    [
        (4, 4, 1.0),  # stays in the node
        (4, 8, 2.0),  # four rings over two links
        (1, 64, 1.0),  # one ring has both links
        (8, 64, 2.0),  # a node holds four of them
        (3, 64, 1.5),
        (2, 4352, 1.0),
    ],
)
def test_contention_is_rings_over_links(rings, span, phi, x64):
    close(interconnect.contention(jax.tree.map(jnp.asarray, ABCI), scalar(span), scalar(rings)), phi)


def test_contention_is_that_of_the_worst_level_below_the_outermost_spanned(x64):
    system = dataclasses.replace(ABCI, links=np.array([2.0, 4.0, 64.0, np.inf]))
    system = jax.tree.map(jnp.asarray, system)
    close(interconnect.contention(system, scalar(64), scalar(32)), 2.0)  # min(32, 4)/2
    close(interconnect.contention(system, scalar(100), scalar(32)), 8.0)  # min(32, 68)/4


def test_equal_levels_do_not_share_a_gradient():
    """The three outer levels of ABCI have one bandwidth: the innermost of them is the one that prices."""

    def cost(beta):
        return interconnect.beta(dataclasses.replace(ABCI, beta=beta), 1000.0)

    assert jax.grad(cost)(jnp.asarray(ABCI.beta)).tolist() == [0.0, 1.0, 0.0, 0.0]
