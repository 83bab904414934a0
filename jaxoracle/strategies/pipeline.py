"""Layer parallelism in a pipeline: stages of layers, segments of a mini-batch (Table III, row "layer/pipeline")."""

from __future__ import annotations

from typing import ClassVar, final

import jax.numpy as jnp
from jax import lax

from jaxoracle.records import Bound, Event, Job, Layers, Memory, PerLayer, Scalar, Share, Work
from jaxoracle.strategies.base import Strategy, fits_batch, is_layer, once, shared


@final
class Pipeline(Strategy):
    """Pipeline parallelism: p stages of contiguous layers work on S segments of a mini-batch (Table III)."""

    name: ClassVar[str] = "pipeline"
    source: ClassVar[str] = "Table III, layer (pipeline)"
    summary: ClassVar[str] = "layers placed on stages, segments of a mini-batch passed on"
    bound: ClassVar[str] = "p <= layers"
    staged: ClassVar[bool] = True
    formulas: ClassVar[dict[str, str]] = {
        "forward": "(p+S-1) max_g FW_g(B/S samples)",
        "backward": "(p+S-1) max_g BW_g(B/S samples)",
        "weight_update": "max_g WU_g",
        "stage_transfer": "2 (p+S-2) max_g (alpha + B/S |y_g| delta beta)",
        "memory": "2 delta max_g sum (B (|x_l|+|y_l|) + |w_l|)",
    }

    def work(self, layers: Layers, job: Job) -> Work:
        """(B(p+S-1)/S)(max FW_g + max BW_g) + max WU_g."""
        return pipeline_work(layers, job, job.pes)

    def traffic(self, layers: Layers, job: Job) -> tuple[Event, ...]:
        """Stage transfers, forward and backward."""
        return stage_transfer(layers, job, job.pes)

    def memory(self, layers: Layers, job: Job) -> Memory:
        """2δ max_g Σ(B(|x|+|y|)+|w|)."""
        return largest_stage(layers, job, job.mini_batch, 1.0)

    def bounds(self, layers: Layers, job: Job) -> tuple[Bound, ...]:
        """p ≤ layers, S ≤ B."""
        return (*stage_bounds(layers, job, job.pes), fits_batch(1.0, job.mini_batch))


def pipeline_work(layers: Layers, job: Job, group: Scalar) -> Work:
    """Each stage computes segments of b p₂ / S samples; the slowest is waited for p₂ + S - 1 times.

    Note: Table III writes max WU_g per epoch; it is paid once per iteration (equation 12 multiplies it by the rounds).
    """
    pieces = segments(job, group)
    samples = job.samples_per_pe * group / pieces
    share = Share(flops=samples, input=samples, output=samples)
    return Work(
        split_layers=is_layer(layers),
        split=share,
        replicated=share,
        parts=group,
        stages=job.stages,
        rounds=group + pieces - 1,
    )


def segments(job: Job, stages: Scalar) -> Scalar:
    """S, as many as stages if the job does not say."""
    return stages if job.segments is None else job.segments


def boundaries(layers: Layers, job: Job) -> PerLayer:
    """|y_l| of the last layer of each stage but the last stage, else 0 [item/sample]."""
    following = jnp.concatenate([job.stages[1:], job.stages[-1:]])
    return jnp.where(following != job.stages, layers.output_items, 0.0)


def stage_transfer(layers: Layers, job: Job, group: Scalar) -> tuple[Event, Event]:
    """Activations forward, their gradients backward: 2(p+S-2) max_g (α + (B/S)|y_g| δ β) (paper, Table III)."""
    pieces = segments(job, group)
    message = job.bytes_per_item * (job.samples_per_pe * group / pieces) * jnp.max(boundaries(layers, job))
    messages = once(message, group + pieces - 2)

    def event(phase: str) -> Event:
        return Event(
            operation="point_to_point",
            component="stage_transfer",
            phase=phase,
            messages=messages,
            volume=messages * message,
            group=group,
            span=group,
        )

    return event("forward"), event("backward")


def largest_stage(layers: Layers, job: Job, samples: Scalar, holders: Scalar) -> Memory:
    """Memory by kind of the stage that needs most, 2δ max_g Σ_{l in g}(B(|x_l|+|y_l|)+|w_l|) at γ = 1 (Table III).

    One pass over layers: sums start anew where a stage starts, and every sum is at most its stage's.
    """
    per_sample = 2 * job.reuse * job.bytes_per_item * samples
    per_weight = (2 + job.optimizer_copies) * job.bytes_per_item
    starts = stage_starts(job.stages)

    def add(state: tuple[Scalar, ...], layer: tuple[Scalar, ...]) -> tuple[tuple[Scalar, ...], None]:
        weights, tensors, most, kept_weights, kept_tensors = state
        starts_here, layer_weights, layer_tensors = layer
        weights = jnp.where(starts_here, 0.0, weights) + layer_weights
        tensors = jnp.where(starts_here, 0.0, tensors) + layer_tensors
        total = per_weight * weights + per_sample * tensors
        take = total >= most
        return (
            weights,
            tensors,
            jnp.where(take, total, most),
            jnp.where(take, weights, kept_weights),
            jnp.where(take, tensors, kept_tensors),
        ), None

    rows = (starts, layers.weight_items, layers.input_items + layers.output_items)
    (_, _, _, weights, tensors), _ = lax.scan(add, (jnp.zeros(()),) * 5, rows, unroll=4)
    weights = job.bytes_per_item * weights
    tensors = job.reuse * job.bytes_per_item * samples * tensors
    return Memory(
        weights=weights,
        gradients=weights,
        optimizer=job.optimizer_copies * weights,
        activations=tensors,
        activation_gradients=tensors,
        redundant=(2 + job.optimizer_copies) * weights * shared(holders),
    )


def stage_starts(stages: PerLayer) -> PerLayer:
    """True where a stage has its first layer."""
    return jnp.concatenate([jnp.ones_like(stages[:1], bool), stages[1:] != stages[:-1]])


def stage_bounds(layers: Layers, job: Job, group: Scalar) -> tuple[Bound, ...]:
    """p ≤ layers and S ≤ B."""
    count = jnp.sum(is_layer(layers))
    return (
        Bound(code="pes", value=group, limit=count),
        Bound(code="segments", value=segments(job, group), limit=job.samples_per_pe * group),
    )


def stage_weights(layers: Layers, job: Job) -> Scalar:
    """max_g Σ_{l in g}|w_l| [item]."""
    starts = stage_starts(job.stages)

    def add(state: tuple[Scalar, Scalar], row: tuple[Scalar, Scalar]) -> tuple[tuple[Scalar, Scalar], None]:
        running = jnp.where(row[0], 0.0, state[0]) + row[1]
        return (running, jnp.maximum(state[1], running)), None

    (_, most), _ = lax.scan(add, (jnp.zeros(()), jnp.zeros(())), (starts, layers.weight_items), unroll=4)
    return most
