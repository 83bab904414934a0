"""Rows of answers for people and scripts: one strategy of one job each, with names instead of codes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from jaxoracle.catalog import Machine, Measured, Network
from jaxoracle.engine.programs import precise
from jaxoracle.errors import fail
from jaxoracle.oracle import default_group, project
from jaxoracle.projection import FINDINGS, Projection
from jaxoracle.records import BOTTLENECKS, LIMITS, MEMORIES, TIMES, Job
from jaxoracle.strategies import STRATEGIES
from jaxoracle.units import show

#: samples per PE are looked for up to this many
MOST_SAMPLES = 2**24


@dataclasses.dataclass(frozen=True)
class Question:
    """What is asked: everything but the strategy.

    Attributes:
      network: the network.
      machine: the system.
      measured: its profile, None for the roofline.
      job: the job; with `largest_batch` its samples per PE are replaced.
      largest_batch: look for the largest batch that fits.
      all_groups: look for the best p₁ x p₂.
      precision: 32 or 64.
    """

    network: Network
    machine: Machine
    measured: Measured | None
    job: Job
    largest_batch: bool = False
    all_groups: bool = False
    precision: int = 32

    def project(self, strategy: str, job: Job) -> Projection:
        """One projection, as NumPy numbers, whose totals keep their precision."""
        profile = None if self.measured is None else self.measured.profile
        with precise(self.precision):
            found = project(strategy, self.network.layers, job, self.machine.system, profile)
            projection: Projection = jax.tree.map(np.asarray, found)
        return projection


def group_of(strategy: str, question: Question, job: Job) -> float:
    """PEs that split one replica."""
    if job.group is None:
        job = dataclasses.replace(job, group=default_group(job, question.machine.system))
    return float(STRATEGIES[strategy].parts(job))


def divisors(pes: int) -> list[int]:
    """All p₂ that divide p."""
    small = [d for d in range(1, math.isqrt(pes) + 1) if pes % d == 0]
    return sorted({*small, *(pes // d for d in small)})


def _jobs(strategy: str, question: Question) -> Iterator[Job]:
    if question.all_groups and STRATEGIES[strategy].hybrid:
        for group in divisors(int(question.job.pes)):
            yield dataclasses.replace(question.job, group=float(group))
    else:
        yield question.job


def largest_batch(strategy: str, question: Question, job: Job) -> Job:
    """The job with the largest whole samples per PE that fit the memory, or one where none does.

    Memory never falls as the batch grows, so halving finds it.
    """

    def fits(samples: int) -> bool:
        found = question.project(strategy, dataclasses.replace(job, samples_per_pe=float(samples)))
        return bool(found.memory <= found.memory_bytes)

    low, high = 1, 2
    while high <= MOST_SAMPLES and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return dataclasses.replace(job, samples_per_pe=float(low))


def _rank(row: dict[str, Any]) -> tuple[bool, float]:
    epoch = row["epoch_time"]
    return not row["feasible"], math.inf if epoch is None else epoch


def answer(strategy: str, question: Question) -> dict[str, Any]:
    """The best row of one strategy over the groups and batches that are asked for."""
    rows = []
    for given in _jobs(strategy, question):
        job = largest_batch(strategy, question, given) if question.largest_batch else given
        rows.append(_row(strategy, question, job))
    return min(rows, key=_rank)


def answers(strategies: tuple[str, ...], question: Question) -> list[dict[str, Any]]:
    """Rows ranked by epoch time, infeasible ones last. Programs compile in two threads."""
    with ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(lambda strategy: answer(strategy, question), strategies))
    return sorted(rows, key=_rank)


def _number(value: Any) -> float | None:
    result = float(value)
    return result if math.isfinite(result) else None


def _row(strategy: str, question: Question, job: Job) -> dict[str, Any]:
    found = question.project(strategy, job)
    group = group_of(strategy, question, job)
    row: dict[str, Any] = {
        "strategy": strategy,
        "pes": int(job.pes),
        "group": int(group),
        "samples_per_pe": _number(job.samples_per_pe),
        "mini_batch": _number(np.float64(job.samples_per_pe) * job.pes),
    }
    for name in ("iteration_time", "epoch_time", "memory", *TIMES, *MEMORIES, "memory_bytes", "serial_time"):
        row[name] = _number(getattr(found, name))
    for name in ("throughput", "speedup", "parallel_efficiency", "epoch_cost"):
        row[name] = _number(getattr(found, name))
    row["feasible"] = bool(found.feasible)
    row["limit"] = LIMITS[int(found.limit)]
    row["bottleneck"] = BOTTLENECKS[int(found.bottleneck)]
    row["reason"] = reason(strategy, question, job, found)
    row["findings"] = {name: _number(finding(found)) for name, finding in FINDINGS.items()}
    row["profile"] = "none (roofline)" if question.measured is None else question.measured.description
    return row


def reason(strategy: str, question: Question, job: Job, found: Projection) -> str:
    """Why the row is infeasible, every condition that fails; empty if it is not."""
    code = LIMITS[int(found.structural_limit)]
    parts = []
    if code != "none":
        parts.append(_structural_reason(code, strategy, question, job, found))
    if found.memory > found.memory_bytes:
        needed, available = show(float(found.memory), "B"), show(float(found.memory_bytes), "B")
        parts.append(f"memory: needs {needed} of {available}")
    return "; ".join(parts)


def _structural_reason(code: str, strategy: str, question: Question, job: Job, found: Projection) -> str:
    kind, group = STRATEGIES[strategy], group_of(strategy, question, job)
    batch = float(job.samples_per_pe) * float(job.pes)
    over = float(found.pes_over_limit)
    split_over = group if kind.parted else float(job.pes)
    return {
        "capacity": f"{question.machine.name} holds {question.machine.system.capacity[-1]:g} PEs",
        "group": f"p2 = {group:g} does not divide p = {float(job.pes):g}",
        "split": f"the split factors must multiply to {group:g}",
        "pes": f"{kind.bound}: {split_over:g} PEs, at most {split_over / over if over else 0:g}{_hint(strategy, job)}",
        "mini_batch": f"fewer samples ({batch:g}) than replicas ({float(job.pes) / group:g})",
        "segments": f"more segments than samples of a replica ({batch * group / float(job.pes):g})",
    }[code]


def _hint(strategy: str, job: Job) -> str:
    """What else could be tried."""
    return " (one extent; --split divides several)" if "spatial" in strategy and job.split is None else ""


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as aligned text with units."""
    header = (
        "strategy",
        "p1 x p2",
        "B",
        "iteration",
        "epoch",
        "samples/s",
        "speed-up",
        "memory",
        "bottleneck",
        "feasible",
    )
    lines = [header]
    for row in rows:
        replicas = row["pes"] / row["group"]
        lines.append(
            (
                row["strategy"],
                f"{replicas:g} x {row['group']}",
                f"{row['mini_batch']:g}",
                _show(row["iteration_time"], "s"),
                _show(row["epoch_time"], "s"),
                _plain(row["throughput"]),
                _plain(row["speedup"]),
                _show(row["memory"], "B"),
                row["bottleneck"],
                "yes" if row["feasible"] else f"no: {row['limit']}: {row['reason'].removeprefix(row['limit'] + ': ')}",
            )
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def _show(value: float | None, unit: str) -> str:
    return "-" if value is None else show(value, unit)


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def read_job(values: dict[str, Any]) -> Job:
    """A job from checked numbers, without those that are None.

    Raises:
      OracleError: neither samples per PE nor mini-batch, or both.
    """
    batch = values.pop("mini_batch", None)
    if (batch is None) == (values.get("samples_per_pe") is None):
        fail("give either --samples-per-pe (weak scaling) or --mini-batch (strong scaling).")
    if batch is not None:
        values["samples_per_pe"] = batch / values["pes"]
    return Job(**{name: value for name, value in values.items() if value is not None})
