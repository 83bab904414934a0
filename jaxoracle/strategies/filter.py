"""Filter parallelism: the filters of each split layer are divided among PEs (Table III, row "filter")."""

from __future__ import annotations

from typing import ClassVar, final

import jax.numpy as jnp

from jaxoracle.records import Bound, Event, Job, Layers, Memory, PerLayer, Scalar, Share, Work
from jaxoracle.strategies.base import (
    Held,
    Strategy,
    fits_batch,
    gradient_ring,
    is_layer,
    layer_collective,
    replicas,
    smallest,
)

SOURCE = "Table III, filter"


@final
class Filter(Strategy):
    """Filter parallelism: p PEs each hold 1/p of the filters and see the whole mini-batch (Table III)."""

    name: ClassVar[str] = "filter"
    source: ClassVar[str] = SOURCE
    summary: ClassVar[str] = "weights divided by output filters, activations gathered after each layer"
    bound: ClassVar[str] = "p <= least filters of a split layer"
    formulas: ClassVar[dict[str, str]] = {
        "forward": "b sum_split FW_l + B sum_replicated FW_l",
        "backward": "b sum_split BW_l + B sum_replicated BW_l",
        "weight_update": "sum_split WU_l / p + sum_replicated WU_l",
        "layer_exchange": (
            "(p-1) sum_split (alpha + B e_l delta beta/p) forward + "
            "2 (p-1) sum_split (alpha + B n_l delta beta/p) backward"
        ),
        "memory": "2 delta sum (B (|x_l|+|y_l|) + |w_l|/p)",
    }

    def default_split(self, layers: Layers) -> PerLayer:
        """Weighted layers and what follows each up to the next."""
        return from_first_weighted(layers)

    def work(self, layers: Layers, job: Job) -> Work:
        """(B/p)(FW+BW) and WU/p of split layers, the whole of others."""
        return filter_work(self.split_layers(layers, job), job, job.pes)

    def traffic(self, layers: Layers, job: Job) -> tuple[Event, ...]:
        """Allgather of e_l forward, Allreduce of n_l backward, over all p."""
        return filter_traffic(layers, job, self.split_layers(layers, job), job.pes)

    def memory(self, layers: Layers, job: Job) -> Memory:
        """2δΣ(B(|x|+|y|)+|w|/p); tensors are whole on every PE."""
        return divided_weights(layers, job, self.split_layers(layers, job), job.pes, 1.0)

    def bounds(self, layers: Layers, job: Job) -> tuple[Bound, ...]:
        """p ≤ min F_l over split layers."""
        return (filter_bound(layers, self.split_layers(layers, job), job.pes), fits_batch(1.0, job.mini_batch))


def from_first_weighted(layers: Layers) -> PerLayer:
    """1 from the first weighted layer on: weighted layers and what follows each up to the next."""
    return jnp.where(jnp.cumsum(layers.weighted) > 0, 1.0, 0.0) * is_layer(layers)


def filter_work(split: PerLayer, job: Job, group: Scalar) -> Work:
    """Split layers: whole input, output and weights divided by the group."""
    own, whole = job.samples_per_pe, job.samples_per_pe * group
    return Work(
        split_layers=split,
        split=Share(flops=own, input=whole, output=own, weight=1 / group),
        replicated=Share(flops=whole, input=whole, output=whole),
        parts=group,
    )


def filter_traffic(layers: Layers, job: Job, split: PerLayer, group: Scalar) -> tuple[Event, ...]:
    """Allgather of e_l forward and Allreduce of n_l backward over a group, split layers only.

    Note: the paper charges |y_l| for both; the tensor that is moved has passed norm, activation and pooling.
    """
    return (
        layer_collective("ring_allgather", "forward", split * layers.exchanged_items, job, group),
        layer_collective("ring_allreduce", "backward", split * layers.entered_items, job, group),
    )


def divided_weights(layers: Layers, job: Job, split: PerLayer, group: Scalar, copies: Scalar) -> Memory:
    """Tensors of b p₂ samples whole on every PE of a group, weights of split layers divided once; `copies` replicas."""
    samples = job.samples_per_pe * group
    return Held(layers, split).memory(
        job,
        samples=(samples, samples),
        weight=(1 / group, 1.0),
        tensor_holders=(group, group),
        weight_holders=(copies, copies * group),
    )


def filter_bound(layers: Layers, split: PerLayer, group: Scalar) -> Bound:
    """p₂ ≤ min F_l over split weighted layers."""
    return Bound(code="pes", value=group, limit=smallest(layers.filters, split * layers.weighted))


def divided_gradients(layers: Layers, job: Job, split: PerLayer) -> Event:
    """p₂ rings at once over p₁, each of δ(Σ_split|w|/p₂ + Σ_replicated|w|) [byte]."""
    divided = jnp.sum(split * layers.weight_items) / job.group
    whole = jnp.sum((1 - split) * layers.weight_items)
    return gradient_ring(divided + whole, job, replicas(job), job.group)
