"""Every variable and coordinate of a dataset: its unit and long name. The only writer of attributes.

xarray keeps attributes through arithmetic, so units are attached last, from here.
"""

from __future__ import annotations

import re
from types import MappingProxyType

import xarray as xr

from jaxoracle.catalog import DEVICE, LEVEL
from jaxoracle.errors import fail
from jaxoracle.records import BOTTLENECKS, LIMITS
from jaxoracle.units import KINDS

#: name -> (unit, long name)
VARIABLES: MappingProxyType[str, tuple[str, str]] = MappingProxyType(
    {
        # coordinates
        "dnn": ("1", "network"),
        "system": ("1", "computer system"),
        "strategy": ("1", "parallel strategy"),
        # job
        "pes": ("1", "processing elements"),
        "group": ("1", "processing elements that split one replica in a hybrid"),
        "samples_per_pe": ("sample", "samples per processing element and iteration"),
        "mini_batch": ("sample", "mini-batch of an iteration"),
        "dataset_size": ("sample", "samples of an epoch"),
        "segments": ("1", "pipeline segments of a mini-batch"),
        "bytes_per_item": ("byte", "bytes per item"),
        "reuse": ("1", "part of the activation memory bound that is held"),
        "optimizer_copies": ("1", "copies of the weights that the optimizer keeps"),
        "hierarchical": ("1", "leader-based gradient exchange (1) or one flat ring (0)"),
        "iterations": ("1", "iterations of an epoch"),
        # times of one iteration
        "forward": ("s", "forward computation per iteration"),
        "backward": ("s", "backward computation per iteration"),
        "weight_update": ("s", "weight update per iteration"),
        "gradient_exchange": ("s", "gradient exchange per iteration"),
        "layer_exchange": ("s", "collectives between split layers per iteration"),
        "halo_exchange": ("s", "halo exchange per iteration"),
        "stage_transfer": ("s", "transfers between pipeline stages per iteration"),
        "gather": ("s", "gather after spatially split layers per iteration"),
        "iteration_time": ("s", "time of one iteration"),
        "epoch_time": ("s", "time of one epoch"),
        "serial_time": ("s", "time of one iteration of the same mini-batch on one processing element"),
        "replicated_compute": ("s", "computation repeated by every processing element of a group"),
        "bandwidth_time": ("s", "bandwidth terms of all communication per iteration"),
        "congestion_time": ("s", "part of the bandwidth terms due to contention"),
        # memory of one PE
        "weights": ("byte", "memory of weights per processing element"),
        "gradients": ("byte", "memory of weight gradients per processing element"),
        "optimizer": ("byte", "memory of optimizer state per processing element"),
        "activations": ("byte", "memory of activations per processing element"),
        "activation_gradients": ("byte", "memory of activation gradients per processing element"),
        "redundant_memory": ("byte", "memory that other processing elements hold too"),
        "memory": ("byte", "memory per processing element"),
        "memory_bytes": ("byte", "memory of the device"),
        # answers
        "throughput": ("sample s-1", "samples per second"),
        "speedup": ("1", "speed-up over one processing element"),
        "parallel_efficiency": ("1", "speed-up over processing elements"),
        "price": ("USD s-1", "price of one processing element"),
        "epoch_cost": ("USD", "price of one epoch"),
        "feasible": ("1", "within every limit and the device's memory"),
        "limit": ("1", "first condition that fails"),
        "structural_limit": ("1", "first condition but memory that fails"),
        "bottleneck": ("1", "largest component of the iteration time"),
        "imbalance": ("1", "one minus mean over largest stage time"),
        "pes_over_limit": ("1", "processing elements over what the strategy allows"),
        # findings (the paper's Table V)
        "gradient_exchange_share": ("1", "gradient exchange over iteration time"),
        "layer_wise_share": ("1", "collectives between layers over iteration time"),
        "point_to_point_share": ("1", "point-to-point communication over iteration time"),
        "weight_update_share": ("1", "weight update over iteration time"),
        "congestion": ("1", "part of the bandwidth terms due to contention"),
        "memory_redundancy": ("1", "memory that other processing elements hold too over memory held"),
        "workload_imbalance": ("1", "one minus mean over largest stage time"),
        "redundant_computation": ("1", "computation repeated within a group over computation"),
        "number_of_pes": ("1", "processing elements over what the strategy allows"),
    }
)

FLAGS = MappingProxyType({"limit": LIMITS, "structural_limit": LIMITS, "bottleneck": BOTTLENECKS})

_SYSTEM = {f"device.{key}": kind for key, (_, kind) in DEVICE.items()}
_LEVELS = {key: kind for key, (_, kind) in LEVEL.items()}


def quantity_kind(name: str) -> str | None:
    """Kind of quantity of a system's field such as `interconnect.node.bandwidth`; None for a plain number."""
    return _SYSTEM.get(name, _LEVELS.get(name.rpartition(".")[2]))


def attributes(name: str) -> dict[str, object]:
    """Unit and long name of a variable or coordinate, and flags where it is a code."""
    if name in VARIABLES:
        unit, long_name = VARIABLES[name]
    elif re.match(r"(device|interconnect)\.", name):
        kind = quantity_kind(name)
        unit, long_name = KINDS[kind][0] if kind else "1", " ".join(reversed(name.split("."))).replace("_", " ")
    else:
        fail(f"the schema must know every variable; got {name!r}.")
    found: dict[str, object] = {"units": unit, "long_name": long_name}
    if name in FLAGS:
        found["flag_values"] = list(range(len(FLAGS[name])))
        found["flag_meanings"] = " ".join(FLAGS[name])
    return found


def describe(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset with the schema's attributes on every variable and coordinate."""
    for name in dataset.variables:
        dataset[name].attrs = attributes(str(name))
    return dataset
