"""Data + spatial parallelism: replicas whose samples are divided within a group of PEs."""

from __future__ import annotations

from typing import ClassVar, final

import jax.numpy as jnp

from jaxoracle.records import Bound, Event, Job, Layers, Memory, PerLayer, Scalar, Work
from jaxoracle.strategies.base import Strategy, fits_batch, gradient_ring, replicas
from jaxoracle.strategies.spatial import divided_tensors, extent_bounds, gathered, halo, spatial_prefix, spatial_work


@final
class DataSpatial(Strategy):
    """p₁ replicas of a group of p₂ PEs that divide each sample (the paper's data + spatial)."""

    name: ClassVar[str] = "data+spatial"
    source: ClassVar[str] = "section 3.3 and Table III, spatial within a group"
    summary: ClassVar[str] = "spatial parallelism in groups of p2 PEs, data parallelism across them"
    bound: ClassVar[str] = "p1 <= B and each split factor <= the extent it splits"
    hybrid: ClassVar[bool] = True
    formulas: ClassVar[dict[str, str]] = {
        "forward": "b sum_split FW_l + b p2 sum_replicated FW_l",
        "backward": "b sum_split BW_l + b p2 sum_replicated BW_l",
        "weight_update": "sum WU_l",
        "gradient_exchange": (
            "flat: 2 (p-1) (alpha + delta sum_split |w_l| beta/p) + "
            "2 (p1-1) (alpha + delta sum_replicated |w_l| phi beta/p1); "
            "hierarchical: 2 (p2-1) (alpha + delta sum |w_l| beta/p2) + 2 (p1-1) (alpha + delta sum |w_l| beta/p1)"
        ),
        "halo_exchange": "sum_split 2 (2 alpha + B/p1 delta beta (halo(x_l) + halo(dL/dy_l)))",
        "gather": "(p2-1) (alpha + B/p1 |y_s| delta beta/p2)",
        "memory": "2 delta (b sum_split (|x_l|+|y_l|) + b p2 sum_replicated (|x_l|+|y_l|) + sum |w_l|)",
    }

    def default_split(self, layers: Layers) -> PerLayer:
        """The layers before the first dense or global-pooling layer."""
        return spatial_prefix(layers)

    def work(self, layers: Layers, job: Job) -> Work:
        """(B/p)(FW+BW) of split layers, B/p₁ of others; all of WU."""
        return spatial_work(self.split_layers(layers, job), job, job.group)

    def traffic(self, layers: Layers, job: Job) -> tuple[Event, ...]:
        """Spatial's within a group; gradients flat or hierarchical."""
        split = self.split_layers(layers, job)
        return (
            *flat_gradients(layers, job, split),
            *leader_gradients(layers, job),
            *halo(layers, job, split, job.group),
            gathered(layers, job, split, job.group),
        )

    def memory(self, layers: Layers, job: Job) -> Memory:
        """2δΣ(B(|x|+|y|)/p+|w|)."""
        return divided_tensors(layers, job, self.split_layers(layers, job), job.group, job.pes)

    def bounds(self, layers: Layers, job: Job) -> tuple[Bound, ...]:
        """p₁ ≤ B, and p₂ as spatial."""
        split = self.split_layers(layers, job)
        batch = fits_batch(1.0, job.samples_per_pe * job.group)
        return (*extent_bounds(layers, job, split, job.group), batch)


def flat_gradients(layers: Layers, job: Job, split: PerLayer) -> tuple[Event, Event]:
    """Split layers over p; replicated layers over p₁, p₂ rings at once. With p₂ = 1 all in one Allreduce over p."""
    used = 1 - job.hierarchical
    divided = jnp.sum(split * layers.weight_items)
    whole = jnp.sum((1 - split) * layers.weight_items)
    alone = jnp.where(job.group == 1, 1.0, 0.0)
    return (
        gradient_ring(used * (divided + alone * whole), job, job.pes),
        gradient_ring(used * (1 - alone) * whole, job, replicas(job), job.group),
    )


def leader_gradients(layers: Layers, job: Job) -> tuple[Event, Event]:
    """The full buffer over the p₂ PEs of a group, then over p₁ leaders, one ring (φ = 1)."""
    weights: Scalar = job.hierarchical * jnp.sum(layers.weight_items)
    inside = gradient_ring(weights, job, job.group, span=job.group)
    return inside, gradient_ring(weights, job, replicas(job))
