"""Serial training on one PE (Table III, row "serial")."""

from __future__ import annotations

from typing import ClassVar, final

from jaxoracle.records import Bound, Event, Job, Layers, Memory, Share, Work
from jaxoracle.strategies.base import Held, Strategy, fits_batch, is_layer


@final
class Serial(Strategy):
    """One PE does all of the mini-batch; with p > 1 infeasible (Table III)."""

    name: ClassVar[str] = "serial"
    source: ClassVar[str] = "Table III, serial"
    summary: ClassVar[str] = "one PE, the whole mini-batch"
    bound: ClassVar[str] = "p = 1"
    parted: ClassVar[bool] = False
    formulas: ClassVar[dict[str, str]] = {
        "forward": "B sum FW_l",
        "backward": "B sum BW_l",
        "weight_update": "sum WU_l",
        "memory": "2 delta sum (B (|x_l|+|y_l|) + |w_l|)",
    }

    def work(self, layers: Layers, job: Job) -> Work:
        """BΣ(FW+BW) + ΣWU."""
        share = Share(flops=job.mini_batch, input=job.mini_batch, output=job.mini_batch)
        return Work(split_layers=is_layer(layers), split=share, replicated=share, parts=1.0)

    def traffic(self, layers: Layers, job: Job) -> tuple[Event, ...]:
        """None."""
        return ()

    def memory(self, layers: Layers, job: Job) -> Memory:
        """2δΣ(B(|x|+|y|)+|w|)."""
        samples = (job.mini_batch, job.mini_batch)
        held = Held(layers, is_layer(layers))
        return held.memory(job, samples=samples, tensor_holders=(1.0, 1.0), weight_holders=(1.0, 1.0))

    def bounds(self, layers: Layers, job: Job) -> tuple[Bound, ...]:
        """p = 1."""
        return (Bound(code="pes", value=job.pes, limit=1.0), fits_batch(1.0, job.mini_batch))
