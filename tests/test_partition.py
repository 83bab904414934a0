"""Pipeline stages: the exact minimum of the largest stage, against brute force and the published cuts."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_published import layer_times, rows, table3_layers

from jaxoracle.partition import balanced_stages


def cuts(stages):
    return tuple(np.flatnonzero(np.diff(stages) > 0) + 1)


def brute_force(cost, stages):
    """Best cuts; ties: the last stage starts as early as possible, then the one before."""
    best = None
    for chosen in itertools.combinations(range(1, len(cost)), stages - 1):
        bounds = [0, *chosen, len(cost)]
        largest = max(sum(cost[a:b]) for a, b in itertools.pairwise(bounds))
        key = (largest, tuple(reversed(chosen)))
        best = key if best is None or key < best else best
    return best[0], tuple(reversed(best[1]))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.integers(1, 9))
def test_stages_are_what_trying_all_cuts_finds(cost, stages):
    stages = min(stages, len(cost))
    found = balanced_stages(np.asarray(cost, float), stages)
    assert found[0] == 0
    assert set(np.diff(found)) <= {0.0, 1.0}
    assert found[-1] == stages - 1
    assert cuts(found) == brute_force(cost, stages)[1]


def test_more_stages_than_layers_gives_each_layer_its_own():
    assert balanced_stages(np.ones(3), 8).tolist() == [0, 1, 2]


def test_a_long_network_is_cut_without_looking_at_every_pair_of_layers():
    cost = np.random.default_rng(0).random(50_000)
    found = balanced_stages(cost, 64)
    loads = np.bincount(found.astype(int), weights=cost)
    assert len(loads) == 64
    assert loads.max() <= cost.sum() / 64 + cost.max()


def test_published_cuts_are_found_but_for_eight_exact_ties():
    times, different, seen = layer_times(), set(), set()
    for row in rows("golden_table3.csv"):
        if not row["cuts"]:
            continue
        key = row["model"], row["layer_scope"], int(row["p"]), row["cuts"]
        if key in seen:
            continue
        seen.add(key)
        cost = times[row["model"]][table3_layers(row["model"], row["layer_scope"])[1]]
        found = balanced_stages(cost, int(row["p"]))
        published = tuple(int(c) for c in row["cuts"].split())

        def largest(chosen, cost=cost):
            return max(cost[a:b].sum() for a, b in itertools.pairwise([0, *chosen, len(cost)]))

        assert largest(cuts(found)) == pytest.approx(largest(published), rel=1e-9)
        if cuts(found) != published:
            different.add(key[:3])
    assert len(seen) > 10
    assert len(different) <= 8
