"""Totals and findings, each defined once.

The functions take anything that has the terms as attributes - a `Projection`, or an xarray Dataset of a sweep - and use
arithmetic, comparison and `_where` only, so one definition serves JAX, NumPy and xarray.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxoracle.records import BOTTLENECKS, COMPUTATIONS, LIMITS, MEMORIES, TIMES, Scalar, Terms, record


def _where(condition: Any, value: Any, other: Any) -> Any:
    """`value` where `condition`, else `other`, for JAX, NumPy and xarray."""
    if hasattr(condition, "dims"):
        other = other if hasattr(other, "dims") else condition * 0 + other
        return other.where(~condition, value)
    return (jnp if isinstance(condition, jax.Array) else np).where(condition, value, other)


def iteration_time(t: Any) -> Any:
    """Sum of `TIMES` [s]; nothing overlaps (paper, section 4.1)."""
    return sum(getattr(t, name) for name in TIMES)


def epoch_time(t: Any) -> Any:
    """I · iteration_time [s], I = D/B."""
    return t.iterations * iteration_time(t)


def memory(t: Any) -> Any:
    """Sum of `MEMORIES` [byte]."""
    return sum(getattr(t, name) for name in MEMORIES)


def limit(t: Any) -> Any:
    """Code of the first condition that fails, an index into `LIMITS`; memory comes last."""
    fits = memory(t) <= t.memory_bytes  # not so for a memory beyond all numbers
    full = _where(t.structural_limit == 0, LIMITS.index("memory"), t.structural_limit)
    return _where(fits, t.structural_limit, full)


def feasible(t: Any) -> Any:
    """Within every limit and within the device's memory."""
    return limit(t) == 0


def bottleneck(t: Any) -> Any:
    """Code of the largest time, an index into `BOTTLENECKS`; the first of equals, `none` where times mean nothing."""
    largest = getattr(t, TIMES[0])
    code = _where(largest >= 0, BOTTLENECKS.index(TIMES[0]), 0)
    for name in TIMES[1:]:
        seconds = getattr(t, name)
        greater = seconds > largest
        code = _where(greater, BOTTLENECKS.index(name), code)
        largest = _where(greater, seconds, largest)
    return code


def throughput(t: Any) -> Any:
    """B / iteration_time [sample/s]."""
    return t.mini_batch / iteration_time(t)


def speedup(t: Any) -> Any:
    """Time of the same mini-batch on one PE over iteration_time [1]."""
    return t.serial_time / iteration_time(t)


def parallel_efficiency(t: Any) -> Any:
    """speedup / p [1]."""
    return speedup(t) / t.pes


def epoch_cost(t: Any) -> Any:
    """p · price · epoch_time [USD]; NaN where the system has no price."""
    return t.pes * t.price * epoch_time(t)


def gradient_exchange_share(t: Any) -> Any:
    """gradient_exchange / iteration_time [1]."""
    return t.gradient_exchange / iteration_time(t)


def layer_wise_share(t: Any) -> Any:
    """(layer_exchange + gather) / iteration_time [1]: collectives between layers."""
    return (t.layer_exchange + t.gather) / iteration_time(t)


def point_to_point_share(t: Any) -> Any:
    """(halo_exchange + stage_transfer) / iteration_time [1]."""
    return (t.halo_exchange + t.stage_transfer) / iteration_time(t)


def weight_update_share(t: Any) -> Any:
    """weight_update / iteration_time [1]."""
    return t.weight_update / iteration_time(t)


def congestion(t: Any) -> Any:
    """Part of the β terms that is due to φ [1]."""
    return t.congestion_time / (_where(t.bandwidth_time == 0, 1.0, t.bandwidth_time))


def memory_redundancy(t: Any) -> Any:
    """Bytes that other PEs hold too over bytes held [1]."""
    return t.redundant_memory / memory(t)


def workload_imbalance(t: Any) -> Any:
    """1 - mean/max compute of the pipeline's stages [1]."""
    return t.imbalance


def redundant_computation(t: Any) -> Any:
    """Computation that every PE of a group repeats over computation [1]."""
    return t.replicated_compute / sum(getattr(t, name) for name in COMPUTATIONS)


def number_of_pes(t: Any) -> Any:
    """p (or its factor) over what the network and the batch allow [1]; above 1 is infeasible."""
    return t.pes_over_limit


#: the limitations and bottlenecks of the paper's Table V, each by the rule in its function
FINDINGS: MappingProxyType[str, Callable[[Any], Any]] = MappingProxyType(
    {
        f.__name__: f
        for f in (
            gradient_exchange_share,
            layer_wise_share,
            point_to_point_share,
            congestion,
            memory_redundancy,
            weight_update_share,
            workload_imbalance,
            redundant_computation,
            number_of_pes,
        )
    }
)

TOTALS: MappingProxyType[str, Callable[[Any], Any]] = MappingProxyType(
    {
        f.__name__: f
        for f in (
            iteration_time,
            epoch_time,
            memory,
            feasible,
            limit,
            bottleneck,
            throughput,
            speedup,
            parallel_efficiency,
            epoch_cost,
        )
    }
)

#: what totals need besides the terms
CONTEXT = ("pes", "mini_batch", "iterations", "price", "memory_bytes", "serial_time")


@record
class Projection(Terms):
    """What the oracle says of one strategy, network, job and system.

    Totals (`iteration_time`, `epoch_time`, `memory`, ...) are properties, defined in this module.

    Attributes:
      pes: p [1].
      mini_batch: B [sample].
      iterations: I = D/B [1].
      price: of one PE [USD/s].
      memory_bytes: of one PE [byte].
      serial_time: of the same mini-batch on one PE [s].
    """

    pes: Scalar
    mini_batch: Scalar
    iterations: Scalar
    price: Scalar
    memory_bytes: Scalar
    serial_time: Scalar

    iteration_time = property(iteration_time)
    epoch_time = property(epoch_time)
    memory = property(memory)
    feasible = property(feasible)
    limit = property(limit)
    bottleneck = property(bottleneck)
    throughput = property(throughput)
    speedup = property(speedup)
    parallel_efficiency = property(parallel_efficiency)
    epoch_cost = property(epoch_cost)

    @property
    def findings(self) -> dict[str, Scalar]:
        """The paper's Table V findings: name -> share [1]."""
        return {name: finding(self) for name, finding in FINDINGS.items()}
