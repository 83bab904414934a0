"""Channel parallelism: the input channels of each split layer are divided among PEs (Table III, row "channel")."""

from __future__ import annotations

from typing import ClassVar, final

import jax.numpy as jnp

from jaxoracle.records import Bound, Event, Job, Layers, Memory, PerLayer, Scalar, Share, Work
from jaxoracle.strategies.base import Strategy, fits_batch, layer_collective, smallest
from jaxoracle.strategies.filter import divided_weights

SOURCE = "Table III, channel"


@final
class Channel(Strategy):
    """Channel parallelism: p PEs each hold 1/p of the input channels of every filter (Table III)."""

    name: ClassVar[str] = "channel"
    source: ClassVar[str] = SOURCE
    summary: ClassVar[str] = "weights divided by input channels, partial sums reduced after each layer"
    bound: ClassVar[str] = "p <= least channels of a split layer"
    formulas: ClassVar[dict[str, str]] = {
        "forward": "b sum_split FW_l + B sum_replicated FW_l",
        "backward": "b sum_split BW_l + B sum_replicated BW_l",
        "weight_update": "sum_split WU_l / p + sum_replicated WU_l",
        "layer_exchange": (
            "2 (p-1) sum_split (alpha + B r_l delta beta/p) forward + "
            "(p-1) sum_split (alpha + B n_l delta beta/p) backward"
        ),
        "memory": "2 delta sum (B (|x_l|+|y_l|) + |w_l|/p)",
    }

    def default_split(self, layers: Layers) -> PerLayer:
        """Weighted layers but the first."""
        return weighted_but_first(layers)

    def work(self, layers: Layers, job: Job) -> Work:
        """(B/p)(FW+BW) and WU/p of split layers, the whole of others."""
        return channel_work(self.split_layers(layers, job), job, job.pes)

    def traffic(self, layers: Layers, job: Job) -> tuple[Event, ...]:
        """Allreduce of r_l forward, Allgather of n_l backward, over all p."""
        return channel_traffic(layers, job, self.split_layers(layers, job), job.pes)

    def memory(self, layers: Layers, job: Job) -> Memory:
        """2δΣ(B(|x|+|y|)+|w|/p); tensors are whole on every PE."""
        return divided_weights(layers, job, self.split_layers(layers, job), job.pes, 1.0)

    def bounds(self, layers: Layers, job: Job) -> tuple[Bound, ...]:
        """p ≤ min C_l over split layers."""
        return (channel_bound(layers, self.split_layers(layers, job), job.pes), fits_batch(1.0, job.mini_batch))


def weighted_but_first(layers: Layers) -> PerLayer:
    """1 for weighted layers but the first, whose few input channels are not split."""
    return layers.weighted * jnp.where(jnp.cumsum(layers.weighted) > 1, 1.0, 0.0)


def channel_work(split: PerLayer, job: Job, group: Scalar) -> Work:
    """Split layers: input and weights divided by the group, whole output (of partial sums)."""
    own, whole = job.samples_per_pe, job.samples_per_pe * group
    return Work(
        split_layers=split,
        split=Share(flops=own, input=own, output=whole, weight=1 / group),
        replicated=Share(flops=whole, input=whole, output=whole),
        parts=group,
    )


def channel_traffic(layers: Layers, job: Job, split: PerLayer, group: Scalar) -> tuple[Event, ...]:
    """Allreduce of r_l forward and Allgather of n_l backward over a group, split layers only.

    Note: equal to filter's only where e_l = r_l, because the partial sums are reduced before norm and pooling.
    """
    return (
        layer_collective("ring_allreduce", "forward", split * layers.reduced_items, job, group),
        layer_collective("ring_allgather", "backward", split * layers.entered_items, job, group),
    )


def channel_bound(layers: Layers, split: PerLayer, group: Scalar) -> Bound:
    """p₂ ≤ min C_l over split weighted layers."""
    return Bound(code="pes", value=group, limit=smallest(layers.channels, split * layers.weighted))
