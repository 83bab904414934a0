"""The published ParaDL layer files (arXiv 2104.09075, analysis tool), kept as they are, errors included.

Every line is a layer, ReLU and dropout too. The exchange sizes are the published ones: each weighted layer but the last
exchanges its raw output |y_l|, forward and backward (Table III sums Σ_{l<G}|y_l| for both), where our own networks
count the tensor as it enters the next layer. FLOPs are recounted correctly; times are in `profiles/`.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from jaxoracle.records import ACTIVATION, CONVOLUTION, DENSE, ELEMENTWISE, NORM, POOL, Layers

KINDS = {
    "CONV": CONVOLUTION,
    "FC": DENSE,
    "MPOOL": POOL,
    "APOOL": POOL,
    "BNORM": NORM,
    "RELU": ACTIVATION,
    "ADD": ELEMENTWISE,
    "DROPOUT": ELEMENTWISE,
}


def read_published(path: Path) -> tuple[Layers, tuple[str, ...]]:
    """A published layer file and the names of its lines, numbered where they repeat."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))

    def column(name: str) -> np.ndarray:
        return np.asarray([float(row[name]) for row in rows])

    def extents(name: str) -> np.ndarray:
        values = [[max(1, int(n)) for n in row[name].split("x")] for row in rows]
        return np.asarray([[*v, 1, 1, 1][:3] for v in values], float)

    kind = np.asarray([float(KINDS[row["kind"]]) for row in rows])
    weighted = np.where((kind == CONVOLUTION) | (kind == DENSE), 1.0, 0.0)
    flops, output = column("flops_fwd_per_sample"), column("y_items")
    exchanged = output * weighted
    exchanged[np.flatnonzero(weighted)[-1]] = 0.0
    layers = Layers(
        forward_flops=flops,
        backward_flops=flops * (1 + weighted),
        input_items=column("x_items"),
        output_items=output,
        weight_items=column("params"),
        exchanged_items=exchanged,
        entered_items=exchanged,
        reduced_items=exchanged,
        channels=column("in_c"),
        filters=column("filters"),
        input_extent=extents("in_dims"),
        output_extent=extents("out_dims"),
        kernel=extents("kernel"),
        stride=np.ceil(extents("in_dims") / extents("out_dims")),
        kind=kind,
        weighted=weighted,
    )
    return layers, tuple(f"{row['name']}.{index}" for index, row in enumerate(rows))
