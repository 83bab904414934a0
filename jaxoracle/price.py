"""Plan and system -> terms: the only place where work, traffic and memory become seconds and conditions.

Computation is measured (`Profile`) or a roofline per layer and pass; communication is the α-β model (paper, section
4.1).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxoracle import interconnect
from jaxoracle.collectives import OPERATIONS
from jaxoracle.records import (
    EXCHANGES,
    LIMITS,
    PADDING,
    Bound,
    Event,
    Job,
    Layers,
    PerLayer,
    Plan,
    Profile,
    Scalar,
    Share,
    System,
    Terms,
    Work,
)
from jaxoracle.strategies.pipeline import stage_starts

#: conditions are met up to this relative excess, so that (B/p)·p is not above B
TOLERANCE = 1e-6
#: where these fail, times mean nothing and are NaN
MEANINGLESS = ("capacity", "group", "split")


class Passes(NamedTuple):
    """Seconds of the three passes."""

    forward: Scalar
    backward: Scalar
    update: Scalar


class Seconds(NamedTuple):
    """Seconds of one event by cause: α terms, β terms at φ = 1, and what φ adds to them."""

    startup: Scalar
    transfer: Scalar
    congestion: Scalar


def roofline(layers: Layers, job: Job, system: System, share: Share) -> Passes:
    """overhead + max(FLOP/(peak·efficiency), bytes/bandwidth) per layer and pass [s], shape [layer].

    Forward moves δ(B(|x|+|y|)+|w|), backward twice that; the update reads weights, gradients and optimizer state and
    writes weights, and only layers with weights have one. The overhead is paid once, not per sample.
    """
    overhead = jnp.where(layers.kind == PADDING, 0.0, system.layer_overhead)
    second_per_flop = 1 / (system.peak_flops * system.efficiency)
    second_per_item = job.bytes_per_item / system.memory_bandwidth
    weights = share.weight * layers.weight_items
    moved = second_per_item * (share.input * layers.input_items + share.output * layers.output_items + weights)
    forward = jnp.maximum(share.flops * second_per_flop * layers.forward_flops, moved)
    backward = jnp.maximum(share.flops * second_per_flop * layers.backward_flops, 2 * moved)
    update = second_per_item * (3 + job.optimizer_copies) * weights
    return Passes(
        forward=overhead + forward,
        backward=overhead + backward,
        update=jnp.where(layers.weight_items > 0, overhead + update, 0.0),
    )


def layer_seconds(layers: Layers, job: Job, system: System, profile: Profile | None, share: Share) -> Passes:
    """Each layer's seconds in the three passes: measured where measured, else the roofline, shape [layer]."""
    if profile is None:
        return roofline(layers, job, system, share)
    measured = Passes(
        forward=share.flops * profile.forward,
        backward=share.flops * profile.backward,
        update=share.weight * profile.update,
    )
    if profile.measured is None:
        return measured
    estimated = roofline(layers, job, system, share)
    return Passes(*(jnp.where(profile.measured > 0, m, e) for m, e in zip(measured, estimated, strict=True)))


def _longest_stage(seconds: Passes, stages: PerLayer) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """(max FW_g, max BW_g, max WU_g, max (FW+BW)_g): sums over contiguous stages in one pass over layers."""
    rows = (seconds.forward, seconds.backward, seconds.update, seconds.forward + seconds.backward)
    carry = tuple((jnp.zeros_like(row[0]), jnp.zeros_like(row[0])) for row in rows)

    def add(state: Any, layer: Any) -> tuple[Any, None]:
        following = []
        for (running, most), value in zip(state, layer[1:], strict=True):
            total = jnp.where(layer[0], 0.0, running) + value
            following.append((total, jnp.where(total > most, total, most)))
        return tuple(following), None

    final, _ = lax.scan(add, carry, (stage_starts(stages), *rows), unroll=4)
    return tuple(most for _, most in final)  # type: ignore[return-value]


class Computed(NamedTuple):
    """Computation of one iteration."""

    passes: Passes
    replicated: Scalar
    imbalance: Scalar


def computation(layers: Layers, job: Job, system: System, profile: Profile | None, work: Work) -> Computed:
    """Seconds of forward, backward and weight update in one iteration on the slowest PE."""
    if work.stages is not None:
        seconds = layer_seconds(layers, job, system, profile, work.split)
        forward, backward, update, both = _longest_stage(seconds, work.stages)
        mean = jnp.sum(seconds.forward + seconds.backward) / work.parts
        imbalance = jnp.where(both > 0, 1 - mean / jnp.where(both > 0, both, 1.0), 0.0)
        passes = Passes(work.rounds * forward, work.rounds * backward, update)
        return Computed(passes, jnp.zeros(()), imbalance)
    mask = work.split_layers
    share = work.split
    if work.replicated is not work.split:
        pairs = zip(_fields(work.split), _fields(work.replicated), strict=True)
        share = Share(**{name: jnp.where(mask > 0, s, r) for (name, s), (_, r) in pairs})
    seconds = layer_seconds(layers, job, system, profile, share)
    passes = Passes(*(jnp.sum(s) for s in seconds))
    if work.replicated is work.split:
        return Computed(passes, jnp.zeros(()), jnp.zeros(()))
    repeated = sum(jnp.sum(s * (1 - mask)) for s in seconds)
    return Computed(passes, jnp.where(work.parts > 1, repeated, 0.0), jnp.zeros(()))


def _fields(share: Share) -> tuple[tuple[str, Scalar], ...]:
    return tuple((name, getattr(share, name)) for name in ("flops", "input", "output", "weight"))


def event_seconds(event: Event, system: System) -> Seconds:
    """messages · startups(n) α + volume · volume(n) φ β [s] (`collectives`)."""
    startups, volume = OPERATIONS[event.operation](event.group)
    transfer = event.volume * volume * interconnect.beta(system, event.span)
    phi = interconnect.contention(system, event.span, event.rings)
    startup = event.messages * startups * interconnect.alpha(system, event.span)
    return Seconds(startup, transfer, transfer * (phi - 1))


def _exceeded(bound: Bound) -> Scalar:
    return bound.value > bound.limit * (1 + TOLERANCE)


def structural_limit(bounds: tuple[Bound, ...]) -> Scalar:
    """Code of the first condition, in the order of `LIMITS`, that fails; 0 if none does."""
    code = jnp.zeros(())
    for bound in sorted(bounds, key=lambda b: -LIMITS.index(b.code)):
        code = jnp.where(_exceeded(bound), float(LIMITS.index(bound.code)), code)
    return code


def price(
    plan: Plan, layers: Layers, job: Job, system: System, profile: Profile | None, *, masked: bool = True
) -> Terms:
    """All terms of one design point; with `masked` times are NaN where they mean nothing."""
    computed = computation(layers, job, system, profile, plan.work)
    exchanges = dict.fromkeys(EXCHANGES, jnp.zeros(()))
    bandwidth, congestion = jnp.zeros(()), jnp.zeros(())
    for event in plan.events:
        seconds = event_seconds(event, system)
        exchanges[event.component] += sum(seconds)
        bandwidth += seconds.transfer + seconds.congestion
        congestion += seconds.congestion
    bounds = (Bound(code="capacity", value=job.pes, limit=system.capacity[-1]), *plan.bounds)
    meaningless = structural_limit(tuple(b for b in bounds if b.code in MEANINGLESS)) > 0

    def meant(seconds: Scalar) -> Scalar:
        return jnp.where(meaningless, jnp.nan, seconds) if masked else seconds

    over = jnp.zeros(())
    for bound in plan.bounds:
        if bound.code in ("pes", "mini_batch"):
            over = jnp.maximum(over, bound.value / bound.limit)
    memory = plan.memory
    return Terms(
        forward=meant(computed.passes.forward),
        backward=meant(computed.passes.backward),
        weight_update=meant(computed.passes.update),
        **{name: meant(seconds) for name, seconds in exchanges.items()},
        weights=memory.weights,
        gradients=memory.gradients,
        optimizer=memory.optimizer,
        activations=memory.activations,
        activation_gradients=memory.activation_gradients,
        redundant_memory=memory.redundant,
        replicated_compute=computed.replicated,
        bandwidth_time=bandwidth,
        congestion_time=congestion,
        imbalance=computed.imbalance,
        pes_over_limit=over,
        structural_limit=structural_limit(bounds),
    )
