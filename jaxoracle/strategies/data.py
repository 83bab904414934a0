"""Data parallelism: the mini-batch is divided among PEs (Table III, row "data")."""

from __future__ import annotations

from typing import ClassVar, final

import jax.numpy as jnp

from jaxoracle.records import Bound, Event, Job, Layers, Memory, Share, Work
from jaxoracle.strategies.base import Held, Strategy, fits_batch, gradient_ring, is_layer


@final
class Data(Strategy):
    """Data parallelism: p PEs each hold every weight and b samples (Table III)."""

    name: ClassVar[str] = "data"
    source: ClassVar[str] = "Table III, data"
    summary: ClassVar[str] = "mini-batch divided, gradients reduced over all PEs"
    bound: ClassVar[str] = "p <= B"
    parted: ClassVar[bool] = False
    formulas: ClassVar[dict[str, str]] = {
        "forward": "b sum FW_l",
        "backward": "b sum BW_l",
        "weight_update": "sum WU_l",
        "gradient_exchange": "2 (p-1) (alpha + delta sum |w_l| beta/p)",
        "memory": "2 delta sum (b (|x_l|+|y_l|) + |w_l|)",
    }

    def work(self, layers: Layers, job: Job) -> Work:
        """(B/p)Σ(FW+BW) + ΣWU."""
        share = Share(flops=job.samples_per_pe, input=job.samples_per_pe, output=job.samples_per_pe)
        return Work(split_layers=is_layer(layers), split=share, replicated=share, parts=1.0)

    def traffic(self, layers: Layers, job: Job) -> tuple[Event, ...]:
        """One Allreduce of δΣ|w| over all p."""
        return (gradient_ring(jnp.sum(layers.weight_items), job, job.pes),)

    def memory(self, layers: Layers, job: Job) -> Memory:
        """2δΣ(b(|x|+|y|)+|w|)."""
        samples = (job.samples_per_pe, job.samples_per_pe)
        held = Held(layers, is_layer(layers))
        return held.memory(job, samples=samples, tensor_holders=(1.0, 1.0), weight_holders=(job.pes, job.pes))

    def bounds(self, layers: Layers, job: Job) -> tuple[Bound, ...]:
        """p ≤ B, that is 1 ≤ b."""
        return (fits_batch(1.0, job.samples_per_pe),)
