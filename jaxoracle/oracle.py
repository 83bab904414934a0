"""The one question: `project(strategy, layers, job, system, profile)`."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxoracle.errors import brief, fail, unknown
from jaxoracle.partition import balanced_stages
from jaxoracle.price import computation, price
from jaxoracle.projection import Projection
from jaxoracle.records import Job, Layers, PerLayer, Profile, Scalar, System, Terms
from jaxoracle.strategies import STRATEGIES
from jaxoracle.strategies.serial import Serial


def default_group(job: Job, system: System) -> Scalar:
    """PEs of the innermost level, at most p."""
    return jnp.minimum(system.capacity[0], job.pes)


def stage_costs(layers: Layers, profile: Profile | None) -> PerLayer:
    """FW + BW of each layer by which stages are balanced: measured times, else FLOPs."""
    if profile is None or profile.measured is not None:
        return layers.forward_flops + layers.backward_flops
    return profile.forward + profile.backward


def terms(name: str, layers: Layers, job: Job, system: System, profile: Profile | None) -> Terms:
    """Terms of one design point; every field of `job` that the strategy needs is given."""
    plan = STRATEGIES[name].plan(layers, job)
    return price(plan, layers, job, system, profile)


def serial_time(layers: Layers, job: Job, system: System, profile: Profile | None) -> Scalar:
    """Seconds of an iteration of the whole mini-batch on one PE, whatever its memory."""
    passes = computation(layers, job, system, profile, Serial().work(layers, job)).passes
    return sum(passes)


@functools.partial(jax.jit, static_argnums=0)
def _project(name: str, layers: Layers, job: Job, system: System, profile: Profile | None) -> Projection:
    found = terms(name, layers, job, system, profile)
    return Projection(
        **{field.name: getattr(found, field.name) for field in dataclasses.fields(Terms)},
        pes=job.pes,
        mini_batch=job.mini_batch,
        iterations=job.iterations,
        price=system.price,
        memory_bytes=system.memory_bytes,
        serial_time=serial_time(layers, job, system, profile),
    )


#: numbers of a job that may be zero
ZERO_ALLOWED = ("optimizer_copies", "hierarchical")
NUMBERS = ("pes", "samples_per_pe", "group", "dataset_size", "segments", "bytes_per_item", "reuse", *ZERO_ALLOWED)


def _check(layers: Layers, job: Job, system: System, profile: Profile | None) -> None:
    """Records of the right kind, one number each, positive where it is known; arrays as long as the network."""
    records = {"layers": (layers, Layers), "job": (job, Job), "system": (system, System)}
    for name, (given, kind) in (records | {"profile": (profile, Profile | None)}).items():
        if not isinstance(given, kind):
            fail(f"{name} must be the record of that name, as from jaxoracle.dnn, Job, system; got {brief(given)}.")
    for name in NUMBERS:
        _check_number(name, getattr(job, name))
    if job.split is not None and np.shape(job.split) != (3,):
        fail(f"job: split must have three factors; got {brief(job.split)}.")
    count = np.shape(layers.kind)
    arrays = {"split_layers": job.split_layers, "stages": job.stages, "profile": profile and profile.forward}
    for name, values in arrays.items():
        if values is not None and np.shape(values) != count:
            fail(f"{name} must have one entry for each of the {count[0]} layers; got shape {np.shape(values)}.")


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, jax.core.Tracer) or (value is None and name in ("group", "segments")):
        return
    try:
        number = float(value) if not isinstance(value, str) and np.ndim(value) == 0 else None
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None:
        fail(f"job: {name} must be one number (map over several with jax.vmap); got {brief(value)}.")
    if not np.isfinite(number) or number < 0 or (number == 0 and name not in ZERO_ALLOWED):
        fail(f"job: {name} must be finite and positive; got {brief(value)}.")


def _stages(layers: Layers, profile: Profile | None, stages: Scalar) -> PerLayer:
    """Balanced stages; on traced values by a callback to the same NumPy code (constant under differentiation)."""
    cost = stage_costs(layers, profile)
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in (cost, stages)):
        return balanced_stages(np.asarray(cost, float), int(stages))

    def host(cost: Any, stages: Any) -> Any:
        owner = balanced_stages(np.asarray(cost, float), int(stages))
        return owner.astype(shape.dtype)

    arguments = jax.lax.stop_gradient((jnp.asarray(cost, float), jnp.asarray(stages, float)))
    shape = jax.ShapeDtypeStruct(arguments[0].shape, arguments[0].dtype)
    return jax.pure_callback(host, shape, *arguments, vmap_method="sequential")


def project(strategy: str, layers: Layers, job: Job, system: System, profile: Profile | None = None) -> Projection:
    """What the oracle says of one strategy.

    Works under `jax.jit`, `jax.vmap` and `jax.grad` for every float of `Job` and `System`; numbers of PEs, groups and
    segments enter through steps, whose derivatives mean nothing. Numbers are JAX's default precision: float32, or
    float64 inside `with jax.enable_x64(True)`.

    Args:
      strategy: a name in `STRATEGIES`.
      layers: the network.
      job: the job; what it leaves `None` takes its default.
      system: the computer system.
      profile: measured times of this network on this system; None: roofline.

    Raises:
      OracleError: unknown strategy, or a job or profile that does not fit.
    """
    arguments = completed(strategy, layers, job, system, profile)
    projection: Projection = _project(strategy, *jax.tree.map(lambda leaf: jnp.asarray(leaf, float), arguments))
    return projection


def completed(
    strategy: str, layers: Layers, job: Job, system: System, profile: Profile | None
) -> tuple[Layers, Job, System, Profile | None]:
    """The arguments with the job's group and stages filled in.

    Raises:
      OracleError: unknown strategy.
    """
    if strategy not in STRATEGIES:
        unknown("strategy", strategy, STRATEGIES)
    _check(layers, job, system, profile)
    kind = STRATEGIES[strategy]
    if job.group is None:
        job = dataclasses.replace(job, group=default_group(job, system))
    if kind.staged and job.stages is None:
        job = dataclasses.replace(job, stages=_stages(layers, profile, kind.parts(job)))
    return layers, job, system, profile
