"""Communication operations against hand-worked numbers."""

import itertools

import jax.numpy as jnp
import pytest
from conftest import close

from jaxoracle.collectives import OPERATIONS, point_to_point, ring_allgather, ring_allreduce


def test_ring_allreduce_of_eight_ranks(x64):
    # 2 x 7 (10 ns + 100e6 / 8 byte / 50e9 byte/s) = 14 (1e-8 + 2.5e-4)
    close(ring_allreduce(100e6, 8.0, 10e-9, 1 / 50e9), 3.50014e-3, rtol=1e-12)


def test_ring_allreduce_of_two_ranks_is_two_messages_of_half(x64):
    close(ring_allreduce(6e6, 2.0, 1e-6, 1e-9), 2 * (1e-6 + 3e6 * 1e-9))


def test_ring_allgather_is_half_an_allreduce(x64):
    close(2 * ring_allgather(5e6, 7.0, 2e-6, 3e-9), ring_allreduce(5e6, 7.0, 2e-6, 3e-9))


def test_point_to_point_is_start_up_and_transfer(x64):
    close(point_to_point(1e6, 9e-6, 1 / 12.5e9), 9e-6 + 80e-6)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_one_pe_costs_nothing(operation):
    assert [float(f) for f in OPERATIONS[operation](jnp.asarray(1.0))] == [0.0, 0.0]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_cost_never_falls_with_more_pes(operation):
    costs = [OPERATIONS[operation](jnp.asarray(float(p))) for p in range(1, 40)]
    for less, more in itertools.pairwise(costs):
        assert more[0] >= less[0]
        assert more[1] >= less[1]
