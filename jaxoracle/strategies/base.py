"""What every strategy answers, and the pieces that several are made of.

A strategy returns work, traffic and memory, never seconds; only `price` knows the machine. Local batches are written
from b, the samples per PE (a group of p₂ PEs works on b p₂), never as B/p: nothing cancels (b p)/p, and the result
would depend on p for no reason. Symbols are those of the paper; sums over layers run over arrays of shape [layer].
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
from jax import lax

from jaxoracle.records import (
    PADDING,
    Bound,
    Event,
    Job,
    Layers,
    Memory,
    PerLayer,
    Plan,
    Scalar,
    Work,
)

#: an extent or count that limits nothing
UNLIMITED = 1e30


class Strategy(abc.ABC):
    """One way of distributing training: `plan` puts its four answers together.

    Attributes:
      name: as on the command line and in datasets.
      source: where its formulas come from.
      summary: one line for people.
      bound: the limit on PEs, for people.
      parted: whether a replica is split over PEs at all.
      hybrid: whether it is split over `Job.group` PEs, and not over all.
      staged: whether it uses `Job.stages` and `Job.segments`.
      formulas: component or memory kind -> its formula, for people.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    summary: ClassVar[str]
    bound: ClassVar[str]
    parted: ClassVar[bool] = True
    hybrid: ClassVar[bool] = False
    staged: ClassVar[bool] = False
    formulas: ClassVar[Mapping[str, str]]

    @abc.abstractmethod
    def work(self, layers: Layers, job: Job) -> Work:
        """Computation of one iteration on one PE."""

    @abc.abstractmethod
    def traffic(self, layers: Layers, job: Job) -> tuple[Event, ...]:
        """Communication of one iteration."""

    @abc.abstractmethod
    def memory(self, layers: Layers, job: Job) -> Memory:
        """Bytes that one PE keeps."""

    @abc.abstractmethod
    def bounds(self, layers: Layers, job: Job) -> tuple[Bound, ...]:
        """Conditions that the job must meet."""

    def default_split(self, layers: Layers) -> PerLayer:
        """1 for the layers that the strategy splits if the job does not say."""
        return is_layer(layers)

    def parts(self, job: Job) -> Scalar:
        """PEs that split one replica [1]."""
        if not self.parted:
            return 1.0
        return job.group if self.hybrid else job.pes

    def plan(self, layers: Layers, job: Job) -> Plan:
        """All four answers."""
        return Plan(
            work=self.work(layers, job),
            events=self.traffic(layers, job),
            memory=self.memory(layers, job),
            bounds=self.bounds(layers, job) + (divides(job) if self.hybrid else ()),
        )

    def split_layers(self, layers: Layers, job: Job) -> PerLayer:
        """The layers that are split: the job's, or the default; never padding."""
        mask = self.default_split(layers) if job.split_layers is None else job.split_layers
        return mask * is_layer(layers)


def is_layer(layers: Layers) -> PerLayer:
    """1 for layers, 0 for padding."""
    return jnp.where(layers.kind != PADDING, 1.0, 0.0)


def divides(job: Job) -> tuple[Bound, ...]:
    """p₂ divides p (so p₂ ≤ p)."""
    return (Bound(code="group", value=lax.rem(*jnp.broadcast_arrays(job.pes, job.group)), limit=0.0),)


def replicas(job: Job) -> Scalar:
    """p₁ = p/p₂ [1], whole: compiled for a grid the quotient of 6 and 6 is not always 1, and one replica must cost 0.

    Where p₂ does not divide p times mean nothing; there p₁ only has to be safe.
    """
    return jnp.maximum(jnp.round(job.pes / job.group), 1.0)


def once(volume: Scalar, messages: Scalar = 1.0) -> Scalar:
    """`messages` if there is anything to send, else 0: an event of zero bytes costs nothing, α included."""
    return jnp.where(volume > 0, messages, 0.0)


def tensor_bytes(items: PerLayer, samples: Scalar, job: Job) -> Scalar:
    """δ · samples · Σ_l items_l [byte]."""
    return job.bytes_per_item * samples * jnp.sum(items)


def nonzero(items: PerLayer) -> Scalar:
    """Number of entries that are not 0."""
    return jnp.sum(jnp.where(items > 0, 1.0, 0.0))


def smallest(values: PerLayer, where: PerLayer) -> Scalar:
    """The least of `values` over the layers in `where`; 1 if there is none: what splits nothing uses one PE."""
    return jnp.where(jnp.any(where > 0), jnp.min(jnp.where(where > 0, values, UNLIMITED)), 1.0)


def fits_batch(replicas_of_batch: Scalar, mini_batch: Scalar) -> Bound:
    """p₁ ≤ B, every replica has a sample. Written with both sides divided by the same number where dims demand it."""
    return Bound(code="mini_batch", value=replicas_of_batch, limit=mini_batch)


def gradient_ring(
    weights: Scalar, job: Job, group: Scalar, rings: Scalar = 1.0, *, span: Scalar | None = None
) -> Event:
    """Ring Allreduce of δ·`weights` over `group` PEs that reach across `span`, all p if not given (section 4.2)."""
    volume = job.bytes_per_item * weights
    return Event(
        operation="ring_allreduce",
        component="gradient_exchange",
        phase="update",
        messages=once(volume),
        volume=volume,
        group=group,
        span=job.pes if span is None else span,
        rings=rings,
    )


class Held:
    """Memory of one PE from what it holds of split and replicated layers.

    A pair is (of split layers, of replicated layers).
    """

    def __init__(self, layers: Layers, split: PerLayer) -> None:
        tensors = layers.input_items + layers.output_items
        self.tensors = (jnp.sum(tensors * split), jnp.sum(tensors * (1 - split)))
        self.weights = (jnp.sum(layers.weight_items * split), jnp.sum(layers.weight_items * (1 - split)))

    def memory(
        self,
        job: Job,
        *,
        samples: tuple[Scalar, Scalar],
        weight: tuple[Scalar, Scalar] = (1.0, 1.0),
        tensor_holders: tuple[Scalar, Scalar],
        weight_holders: tuple[Scalar, Scalar],
    ) -> Memory:
        """γδΣ samples (|x|+|y|) and δΣ weight |w|, each twice (value and gradient; paper, Table III) [byte].

        Args:
          job: δ, γ and the optimizer.
          samples: samples whose |x| + |y| are held.
          weight: part of |w| that is held.
          tensor_holders: PEs that hold the same part of a tensor; more than one is redundant.
          weight_holders: PEs that hold the same part of a weight.
        """
        tensors = [job.reuse * job.bytes_per_item * s * t for s, t in zip(samples, self.tensors, strict=True)]
        weights = [job.bytes_per_item * s * t for s, t in zip(weight, self.weights, strict=True)]
        copies = 2 + job.optimizer_copies
        spare = sum(2 * t * shared(h) for t, h in zip(tensors, tensor_holders, strict=True))
        spare += sum(copies * w * shared(h) for w, h in zip(weights, weight_holders, strict=True))
        return Memory(
            weights=sum(weights),
            gradients=sum(weights),
            optimizer=job.optimizer_copies * sum(weights),
            activations=sum(tensors),
            activation_gradients=sum(tensors),
            redundant=spare,
        )


def shared(holders: Scalar) -> Scalar:
    """1 if more than one PE holds it, else 0."""
    return jnp.where(holders > 1, 1.0, 0.0)


def layer_collective(operation: str, phase: str, items: PerLayer, job: Job, group: Scalar) -> Event:
    """`operation` over a group on the whole tensor of each split layer: Σ_l items_l of its b p₂ samples."""
    volume = tensor_bytes(items, job.samples_per_pe * group, job)
    return Event(
        operation=operation,
        component="layer_exchange",
        phase=phase,
        messages=nonzero(items),
        volume=volume,
        group=group,
        span=group,
    )
