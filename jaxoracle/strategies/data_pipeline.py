"""Data + pipeline parallelism: replicas that are pipelines of p₂ stages."""

from __future__ import annotations

from typing import ClassVar, final

from jaxoracle.records import Bound, Event, Job, Layers, Memory, Work
from jaxoracle.strategies.base import Strategy, fits_batch, gradient_ring, replicas
from jaxoracle.strategies.pipeline import largest_stage, pipeline_work, stage_bounds, stage_transfer, stage_weights


@final
class DataPipeline(Strategy):
    """p₁ replicas of a pipeline of p₂ stages; p₂ gradient rings run at once."""

    name: ClassVar[str] = "data+pipeline"
    source: ClassVar[str] = "Table III, layer (pipeline) within a group, data across groups"
    summary: ClassVar[str] = "pipelines of p2 stages, data parallelism across them"
    bound: ClassVar[str] = "p1 <= B and p2 <= layers"
    hybrid: ClassVar[bool] = True
    staged: ClassVar[bool] = True
    formulas: ClassVar[dict[str, str]] = {
        "forward": "(p2+S-1) max_g FW_g(b p2/S samples)",
        "backward": "(p2+S-1) max_g BW_g(b p2/S samples)",
        "weight_update": "max_g WU_g",
        "gradient_exchange": "2 (p1-1) (alpha + delta max_g |w_g| phi beta/p1)",
        "stage_transfer": "2 (p2+S-2) max_g (alpha + b p2/S |y_g| delta beta)",
        "memory": "2 delta max_g sum (b p2 (|x_l|+|y_l|) + |w_l|)",
    }

    def work(self, layers: Layers, job: Job) -> Work:
        """Pipeline's, with B/p₁ samples and p₂ stages."""
        return pipeline_work(layers, job, job.group)

    def traffic(self, layers: Layers, job: Job) -> tuple[Event, ...]:
        """Stage transfers; p₂ rings at once over p₁ of the largest stage's weights."""
        gradients = gradient_ring(stage_weights(layers, job), job, replicas(job), job.group)
        return (*stage_transfer(layers, job, job.group), gradients)

    def memory(self, layers: Layers, job: Job) -> Memory:
        """2δ max_g Σ(B(|x|+|y|)/p₁+|w|)."""
        return largest_stage(layers, job, job.samples_per_pe * job.group, replicas(job))

    def bounds(self, layers: Layers, job: Job) -> tuple[Bound, ...]:
        """p₁ ≤ B, p₂ ≤ layers, S ≤ B/p₁."""
        return (*stage_bounds(layers, job, job.group), fits_batch(1.0, job.samples_per_pe * job.group))
