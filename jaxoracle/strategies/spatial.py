"""Spatial parallelism: the extents of each sample are divided among PEs (Table III, row "spatial")."""

from __future__ import annotations

from typing import ClassVar, final

import jax.numpy as jnp

from jaxoracle.records import (
    CONVOLUTION,
    DENSE,
    POOL,
    Bound,
    Event,
    Job,
    Layers,
    Memory,
    PerExtent,
    PerLayer,
    Scalar,
    Share,
    Work,
)
from jaxoracle.strategies.base import (
    UNLIMITED,
    Held,
    Strategy,
    fits_batch,
    gradient_ring,
    is_layer,
    nonzero,
    once,
    smallest,
)


@final
class Spatial(Strategy):
    """Spatial parallelism: p PEs each hold a part of every sample and all weights (Table III)."""

    name: ClassVar[str] = "spatial"
    source: ClassVar[str] = "Table III, spatial"
    summary: ClassVar[str] = "every sample divided by its extents, halos exchanged around each convolution"
    bound: ClassVar[str] = "each split factor <= the extent it splits"
    formulas: ClassVar[dict[str, str]] = {
        "forward": "b sum_split FW_l + B sum_replicated FW_l",
        "backward": "b sum_split BW_l + B sum_replicated BW_l",
        "weight_update": "sum WU_l",
        "gradient_exchange": "2 (p-1) (alpha + delta sum_split |w_l| beta/p)",
        "halo_exchange": "sum_split 2 (2 alpha + B delta beta (halo(x_l) + halo(dL/dy_l)))",
        "gather": "(p-1) (alpha + B |y_s| delta beta/p)",
        "memory": "2 delta (B sum_split (|x_l|+|y_l|)/p + B sum_replicated (|x_l|+|y_l|) + sum |w_l|)",
    }

    def default_split(self, layers: Layers) -> PerLayer:
        """The layers before the first dense or global-pooling layer."""
        return spatial_prefix(layers)

    def work(self, layers: Layers, job: Job) -> Work:
        """(B/p)(FW+BW) of split layers, B(FW+BW) of others; all of WU."""
        return spatial_work(self.split_layers(layers, job), job, job.pes)

    def traffic(self, layers: Layers, job: Job) -> tuple[Event, ...]:
        """Gradient Allreduce of split layers over p, halos, gather; replicated layers have equal gradients already."""
        split = self.split_layers(layers, job)
        gradients = gradient_ring(jnp.sum(split * layers.weight_items), job, job.pes)
        return (gradients, *halo(layers, job, split, job.pes), gathered(layers, job, split, job.pes))

    def memory(self, layers: Layers, job: Job) -> Memory:
        """2δΣ(B(|x|+|y|)/p+|w|)."""
        return divided_tensors(layers, job, self.split_layers(layers, job), job.pes, job.pes)

    def bounds(self, layers: Layers, job: Job) -> tuple[Bound, ...]:
        """Each factor ≤ the extent that it splits."""
        split = self.split_layers(layers, job)
        return (*extent_bounds(layers, job, split, job.pes), fits_batch(1.0, job.mini_batch))


def spatial_work(split: PerLayer, job: Job, group: Scalar) -> Work:
    """Split layers: input and output divided by the group, weights whole."""
    own, whole = job.samples_per_pe, job.samples_per_pe * group
    return Work(
        split_layers=split,
        split=Share(flops=own, input=own, output=own),
        replicated=Share(flops=whole, input=whole, output=whole),
        parts=group,
    )


def divided_tensors(layers: Layers, job: Job, split: PerLayer, group: Scalar, pes: Scalar) -> Memory:
    """Tensors of split layers divided by the group (b samples' worth), of others whole; all weights."""
    own, whole = job.samples_per_pe, job.samples_per_pe * group
    return Held(layers, split).memory(
        job,
        samples=(own, whole),
        tensor_holders=(1.0, group),
        weight_holders=(pes, pes),
    )


def spatial_prefix(layers: Layers) -> PerLayer:
    """1 for the layers before the first dense or global-pooling layer."""
    whole = jnp.all((layers.output_extent == 1) & (layers.kernel >= layers.input_extent), axis=-1)
    shrinks = jnp.any(layers.input_extent > 1, axis=-1)
    ends = (layers.kind == DENSE) | ((layers.kind == POOL) & whole & shrinks)
    return jnp.where(jnp.cumsum(ends) == 0, 1.0, 0.0) * is_layer(layers)


def split_factors(job: Job, group: Scalar) -> PerExtent:
    """By how much each extent is split; the first by all PEs of the group if the job does not say. A list of three."""
    if job.split is None:
        return [group, 1.0, 1.0]
    return [job.split[d] for d in range(3)]


def halo(layers: Layers, job: Job, split: PerLayer, group: Scalar) -> tuple[Event, Event]:
    """Borders of x_l forward and of dL/dy_l backward, to the two neighbours along each split extent.

    Per split convolution or pool 2(2α + B δ β (halo(x_l) + halo(dL/dy_l))) (paper, Table III), where halo(x_l) is
    h = floor((K-1)/2) rows of C_l channels and the other extents divided by their own factors; h = 0 pays no α. PEs at
    an edge send less; an interior PE is priced. The span is the group's.
    """
    slides = split * jnp.where((layers.kind == CONVOLUTION) | (layers.kind == POOL), 1.0, 0.0)
    rows = jnp.floor((layers.kernel - 1) / 2)
    factors = split_factors(job, group)
    messages, forward, backward = jnp.zeros(()), jnp.zeros(()), jnp.zeros(())
    for extent in range(3):
        others = [d for d in range(3) if d != extent]
        wanted = slides * rows[:, extent]
        x_face = jnp.sum(wanted * layers.channels * jnp.prod(layers.input_extent[:, jnp.array(others)], axis=-1))
        y_face = jnp.sum(wanted * layers.filters * jnp.prod(layers.output_extent[:, jnp.array(others)], axis=-1))
        along = jnp.where(factors[extent] > 1, 1.0, 0.0)
        part = along / (factors[others[0]] * factors[others[1]])
        messages += 2 * along * nonzero(wanted)
        forward += 2 * part * x_face
        backward += 2 * part * y_face
    samples = job.samples_per_pe * group

    def event(phase: str, items: Scalar) -> Event:
        return Event(
            operation="point_to_point",
            component="halo_exchange",
            phase=phase,
            messages=messages,
            volume=job.bytes_per_item * samples * items,
            group=group,
            span=group,
        )

    return event("forward", forward), event("backward", backward)


def gathered(layers: Layers, job: Job, split: PerLayer, group: Scalar) -> Event:
    """Allgather of the last split layer's output, if a layer follows; nothing backward: every PE has all of it."""
    order = jnp.arange(1.0, layers.kind.shape[0] + 1)
    last = jnp.max(order * jnp.where(split > 0, 1.0, 0.0))
    follows = jnp.any((order > last) & (is_layer(layers) > 0)) & (last > 0)
    items = jnp.where(follows, jnp.sum(jnp.where(order == last, layers.output_items, 0.0)), 0.0)
    volume = job.bytes_per_item * job.samples_per_pe * group * items
    return Event(
        operation="ring_allgather",
        component="gather",
        phase="forward",
        messages=once(volume),
        volume=volume,
        group=group,
        span=group,
    )


def extent_bounds(layers: Layers, job: Job, split: PerLayer, group: Scalar) -> tuple[Bound, ...]:
    """Each factor ≤ the extent that it splits, in and out, over split layers; their product is the group."""
    factors = split_factors(job, group)
    extents = jnp.minimum(layers.input_extent, layers.output_extent)
    used = [job.split is None and d == 0 for d in range(3)]
    excess = [
        jnp.where((factors[d] > 1) | used[d], factors[d] / smallest(extents[:, d], split), 1 / UNLIMITED)
        for d in range(3)
    ]
    most = jnp.maximum(jnp.maximum(excess[0], excess[1]), excess[2])
    fits = (Bound(code="pes", value=group, limit=group / most),)
    if job.split is None:
        return fits
    product = factors[0] * factors[1] * factors[2]
    return (Bound(code="split", value=jnp.abs(product - group), limit=0.0), *fits)
