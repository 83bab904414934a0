"""Data + filter parallelism: replicas whose weights are divided within a group of PEs (Table III)."""

from __future__ import annotations

from typing import ClassVar, final

from jaxoracle.records import Bound, Event, Job, Layers, Memory, PerLayer, Work
from jaxoracle.strategies.base import Strategy, fits_batch, replicas
from jaxoracle.strategies.filter import (
    divided_gradients,
    divided_weights,
    filter_bound,
    filter_traffic,
    filter_work,
    from_first_weighted,
)


@final
class DataFilter(Strategy):
    """p₁ replicas of a group of p₂ PEs that divide filters; p₂ gradient rings run at once (Table III)."""

    name: ClassVar[str] = "data+filter"
    source: ClassVar[str] = "Table III, data + filter"
    summary: ClassVar[str] = "filter parallelism in groups of p2 PEs, data parallelism across them"
    bound: ClassVar[str] = "p1 <= B and p2 <= least filters of a split layer"
    hybrid: ClassVar[bool] = True
    formulas: ClassVar[dict[str, str]] = {
        "forward": "b sum_split FW_l + b p2 sum_replicated FW_l",
        "backward": "b sum_split BW_l + b p2 sum_replicated BW_l",
        "weight_update": "sum_split WU_l / p2 + sum_replicated WU_l",
        "gradient_exchange": "2 (p1-1) (alpha + delta (sum_split |w_l|/p2 + sum_replicated |w_l|) phi beta/p1)",
        "layer_exchange": (
            "(p2-1) sum_split (alpha + B/p1 e_l delta beta/p2) + 2 (p2-1) sum_split (alpha + B/p1 n_l delta beta/p2)"
        ),
        "memory": "2 delta sum (B/p1 (|x_l|+|y_l|) + |w_l|/p2)",
    }

    def default_split(self, layers: Layers) -> PerLayer:
        """Weighted layers and what follows each up to the next."""
        return from_first_weighted(layers)

    def work(self, layers: Layers, job: Job) -> Work:
        """(B/p)(FW+BW) and WU/p₂ of split layers."""
        return filter_work(self.split_layers(layers, job), job, job.group)

    def traffic(self, layers: Layers, job: Job) -> tuple[Event, ...]:
        """Filter's within a group; Allreduce of what one PE holds across replicas."""
        split = self.split_layers(layers, job)
        return (*filter_traffic(layers, job, split, job.group), divided_gradients(layers, job, split))

    def memory(self, layers: Layers, job: Job) -> Memory:
        """2δΣ(B(|x|+|y|)/p₁+|w|/p₂)."""
        return divided_weights(layers, job, self.split_layers(layers, job), job.group, replicas(job))

    def bounds(self, layers: Layers, job: Job) -> tuple[Bound, ...]:
        """p₁ ≤ B and p₂ ≤ min F_l."""
        split = self.split_layers(layers, job)
        return (filter_bound(layers, split, job.group), fits_batch(1.0, job.samples_per_pe * job.group))
