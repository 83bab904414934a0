"""Which layers a pipeline stage holds: the exact minimum of the largest stage, in NumPy, at the door.

Stages are data: they depend on the network, its profile and the number of stages, never on the hardware of a sweep.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: sums of layers that differ by less are equal
TOLERANCE = 1e-9


def _greedy(prefix: Array, stages: int, most: float) -> list[int] | None:
    """Starts of stages from the last to the first, each as early as `most` allows; None if it takes more stages."""
    end, starts = len(prefix) - 1, []
    for remaining in range(stages - 1, -1, -1):
        earliest = int(np.searchsorted(prefix, prefix[end] - most, side="left"))
        start = max(earliest, remaining)
        if start >= end:
            return None
        starts.append(start if remaining else 0)
        if not remaining and start > 0:
            return None
        end = start
    return starts


def balanced_stages(cost: Array, stages: int) -> Array:
    """Stage of each layer, contiguous, minimising the largest Σ cost; shape [layer], counted from 0.

    Ties: the last stage starts as early as possible, then the one before. With more stages than layers each layer is
    its own stage. Costs that differ by `TOLERANCE` relative are equal.
    """
    layers = len(cost)
    stages = max(1, min(int(stages), layers))
    prefix = np.concatenate([[0.0], np.cumsum(np.asarray(cost, float))])
    candidates = np.unique((prefix[None, 1:] - prefix[:-1, None])[np.triu_indices(layers)])
    slack = 1 + TOLERANCE
    low, high = 0, len(candidates) - 1
    while low < high:
        middle = (low + high) // 2
        if _greedy(prefix, stages, candidates[middle] * slack) is None:
            low = middle + 1
        else:
            high = middle
    starts = _greedy(prefix, stages, candidates[low] * slack)
    assert starts is not None, "the sum of all layers always fits"
    owner = np.zeros(layers)
    owner[[s for s in starts if s > 0]] = 1.0
    return np.cumsum(owner)
