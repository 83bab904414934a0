"""Which layers a pipeline stage holds: the exact minimum of the largest stage, in NumPy, at the door.

Stages are data: they depend on the network, its profile and the number of stages, never on the hardware of a sweep.
"""

from __future__ import annotations

import bisect
import itertools

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: sums of layers that differ by less are equal
TOLERANCE = 1e-9


def _greedy(prefix: list[float], stages: int, most: float) -> list[int] | None:
    """Starts of stages from the last to the first, each as early as `most` allows; None if it takes more stages."""
    end, starts = len(prefix) - 1, []
    for remaining in range(stages - 1, 0, -1):
        start = max(bisect.bisect_left(prefix, prefix[end] - most, 0, end), remaining)
        if start >= end:
            return None
        starts.append(start)
        end = start
    return starts if prefix[end] - prefix[0] <= most else None


def _largest(prefix: list[float], starts: list[int]) -> float:
    """The largest stage."""
    bounds = [len(prefix) - 1, *starts, 0]
    return max(prefix[end] - prefix[start] for end, start in itertools.pairwise(bounds))


def balanced_stages(cost: Array, stages: int) -> Array:
    """Stage of each layer, contiguous, minimising the largest Σ cost; shape [layer], counted from 0.

    Ties: the last stage starts as early as possible, then the one before. With more stages than layers each layer is
    its own stage. Costs that differ by `TOLERANCE` relative are equal. The minimum is found by halving between what is
    reached and what is too little.
    """
    layers = len(cost)
    stages = max(1, min(int(stages), layers))
    prefix = [0.0, *np.cumsum(np.asarray(cost, float)).tolist()]
    reached, too_little = prefix[-1], 0.0
    while reached - too_little > TOLERANCE / 1000 * reached:
        middle = (reached + too_little) / 2
        starts = _greedy(prefix, stages, middle)
        if starts is None:
            too_little = middle
        else:
            reached = min(middle, _largest(prefix, starts))
    starts = _greedy(prefix, stages, reached * (1 + TOLERANCE))
    assert starts is not None, "what was reached once is reached again"
    owner = np.zeros(layers)
    owner[starts] = 1.0
    return np.cumsum(owner)
