"""The whole model for one point in plain Python floats and lists: a benchmark's yardstick, and an independent twin.

What one writes for a single question: `as_lists` takes arrays apart once, what depends on the network alone is summed
up once, and the rest is a loop over layers. It takes codes from the package, no formula. A strategy splits the layers
that it splits by default, and spatial ones the first extent; networks have no padding.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np

from jaxoracle.records import CONVOLUTION, DENSE, LIMITS, POOL

TOLERANCE = 1e-6


def as_lists(record):
    """A record of the package (network, job, system or profile) with floats and lists for its arrays."""
    fields = {
        name: None if value is None else np.asarray(value, float).tolist() for name, value in vars(record).items()
    }
    return SimpleNamespace(**fields, networks={})


def totals(strategy, layers, job, system, profile=None):
    """Iteration and epoch time, memory, feasibility and limit of one point.

    Args:
      strategy: name.
      layers: `as_lists` of the network, as are the others.
      job: with everything that the strategy needs, `stages` of a pipeline too.
      system: the computer system.
      profile: measured times of this network; None: roofline.
    """
    kind, hybrid = strategy.removeprefix("data+"), strategy.startswith("data+")
    known = layers.networks if profile is None else profile.networks
    if kind not in known:
        known[kind] = _network(kind, layers, profile)
    network = known[kind]
    group = job.group if hybrid else 1.0 if kind in ("serial", "data") else job.pes
    own = job.samples_per_pe * (job.pes if kind == "serial" else 1.0)
    replicas = max(round(job.pes / group), 1.0)
    point = SimpleNamespace(kind=kind, hybrid=hybrid, group=group, own=own, batch=own * group, replicas=replicas)
    seconds, memory = (_pipelined if kind == "pipeline" else _divided)(network, job, system, point)
    limit = _limit(network, job, system, point)
    if limit in ("capacity", "group"):
        seconds = math.nan
    if limit == "none" and not memory <= system.memory_bytes:
        limit = "memory"
    return {
        "iteration_time": seconds,
        "epoch_time": job.dataset_size / (job.samples_per_pe * job.pes) * seconds,
        "memory": memory,
        "feasible": limit == "none",
        "limit": LIMITS.index(limit),
    }


def _limit(network, job, system, point):
    """The first condition that fails, but memory."""
    margin = 1 + TOLERANCE
    if job.pes > system.capacity[-1] * margin:
        return "capacity"
    if point.hybrid and math.fmod(job.pes, point.group) > 0:
        return "group"
    if (job.pes if point.kind == "serial" else point.group) > network.most_parts * margin:
        return "pes"
    if point.batch * margin < 1:
        return "mini_batch"
    if point.kind == "pipeline" and job.segments > point.batch * margin:
        return "segments"
    return "none"


# The network


def _network(kind, layers, profile):
    """What depends on strategy, network and profile alone."""
    count = len(layers.kind)
    split = _split(kind, layers)
    chosen = [i for i in range(count) if split[i]]
    network = SimpleNamespace(
        rows=_rows(layers, range(count)),
        times=_times(layers, profile),
        split=_share(layers, profile, chosen),
        whole=_share(layers, profile, [i for i in range(count) if not split[i]]),
        most_parts=_most_parts(kind, layers, chosen),
        gathers=0,
        gathered=0.0,
        halos=0,
        halo=0.0,
    )
    if kind in ("filter", "channel"):  # an Allreduce counts as two Allgathers
        once = layers.exchanged_items if kind == "filter" else layers.entered_items
        twice = layers.entered_items if kind == "filter" else layers.reduced_items
        network.gathers = sum((once[i] > 0) + 2 * (twice[i] > 0) for i in chosen)
        network.gathered = sum(once[i] + 2 * twice[i] for i in chosen)
    if kind == "spatial":
        _borders(network, layers, chosen)
    return network


def _borders(network, layers, chosen):
    """Halos, and the Allgather of the last split layer's output."""
    for i in chosen:
        rows = math.floor((layers.kernel[i][0] - 1) / 2)
        if rows and layers.kind[i] in (CONVOLUTION, POOL):
            network.halos += 1
            network.halo += rows * layers.channels[i] * math.prod(layers.input_extent[i][1:])
            network.halo += rows * layers.filters[i] * math.prod(layers.output_extent[i][1:])
    if chosen and chosen[-1] < len(layers.kind) - 1:
        network.gathers, network.gathered = 1, layers.output_items[chosen[-1]]


def _rows(layers, members):
    """FLOPs forward and backward, |x|, |y| and |w| of layers."""
    fields = ("forward_flops", "backward_flops", "input_items", "output_items", "weight_items")
    columns = [getattr(layers, name) for name in fields]
    return [tuple(column[i] for column in columns) for i in members]


def _times(layers, profile):
    """Measured times forward, backward and of the update of each layer; None where there are none."""
    if profile is None:
        return [None] * len(layers.kind)
    times = list(zip(profile.forward, profile.backward, profile.update, strict=True))
    if profile.measured is None:
        return times
    return [time if known > 0 else None for time, known in zip(times, profile.measured, strict=True)]


def _share(layers, profile, members):
    """Layers of which a PE handles the same part: their sums, and the rows that the roofline prices."""
    times = _times(layers, profile)
    rows = _rows(layers, [i for i in members if times[i] is None])
    known = [times[i] for i in members if times[i] is not None]
    return SimpleNamespace(
        rows=rows,
        tensors=sum(layers.input_items[i] + layers.output_items[i] for i in members),
        weights=sum(layers.weight_items[i] for i in members),
        updated=sum(row[-1] for row in rows),
        launches=sum(3 if row[-1] > 0 else 2 for row in rows),
        passes=sum(forward + backward for forward, backward, _ in known),
        update=sum(update for _, _, update in known),
    )


def _split(kind, layers):
    """Whether the strategy splits a layer."""
    split, weighted, ended = [], 0, False
    for i, code in enumerate(layers.kind):
        weighted += layers.weighted[i] > 0
        ended = ended or code == DENSE or (code == POOL and _is_global(layers, i))
        by_kind = {"filter": weighted > 0, "channel": layers.weighted[i] > 0 and weighted > 1, "spatial": not ended}
        split.append(by_kind.get(kind, True))
    return split


def _is_global(layers, i):
    """Whether a pool leaves one item of each channel."""
    inputs, outputs, kernel = layers.input_extent[i], layers.output_extent[i], layers.kernel[i]
    return max(inputs) > 1 and max(outputs) == 1 and all(k >= x for k, x in zip(kernel, inputs, strict=True))


def _most_parts(kind, layers, chosen):
    """The most parts that a replica can be split into; 1 if no layer is split."""
    if kind in ("filter", "channel"):
        sizes = layers.filters if kind == "filter" else layers.channels
        return min((sizes[i] for i in chosen if layers.weighted[i] > 0), default=1)
    if kind == "spatial":
        return min((min(layers.input_extent[i][0], layers.output_extent[i][0]) for i in chosen), default=1)
    return len(layers.kind) if kind == "pipeline" else 1


# Computation and memory


def _divided(network, job, system, point):
    """Seconds of an iteration and bytes of all strategies but pipelines."""
    kind, split, whole, own, batch = point.kind, network.split, network.whole, point.own, point.batch
    by_weight = kind in ("filter", "channel")
    part = 1 / point.group if by_weight else 1.0
    flop = 1 / (system.peak_flops * system.efficiency)
    byte = job.bytes_per_item / system.memory_bandwidth
    seconds = own * split.passes + batch * whole.passes + part * split.update + whole.update
    seconds += (split.launches + whole.launches) * system.layer_overhead
    seconds += byte * (3 + job.optimizer_copies) * (part * split.updated + whole.updated)
    if split.rows:
        read, written = byte * (batch if kind == "filter" else own), byte * (batch if kind == "channel" else own)
        seconds += _roofline(split.rows, flop * own, read, written, byte * part)
    if whole.rows:
        seconds += _roofline(whole.rows, flop * batch, byte * batch, byte * batch, byte)
    tensors = (batch if by_weight else own) * split.tensors + batch * whole.tensors
    weights = part * split.weights + whole.weights
    memory = job.bytes_per_item * (2 * job.reuse * tensors + (2 + job.optimizer_copies) * weights)
    seconds += _within_group(network, job, system, point)
    return seconds + _gradients(network, job, system, point, job.bytes_per_item * weights), memory


def _roofline(rows, flop, read, written, weight):
    """Seconds of both passes of these layers without launches."""
    seconds = 0.0
    for forward, backward, x, y, w in rows:
        moved = read * x + written * y + weight * w
        work = flop * forward
        seconds += work if work > moved else moved
        moved += moved
        work = flop * backward
        seconds += work if work > moved else moved
    return seconds


def _pipelined(network, job, system, point):
    """Seconds of an iteration and bytes of pipelines; every sum is one over the layers of a stage."""
    stages, group, segments, item = job.stages, point.group, job.segments, job.bytes_per_item
    samples = point.batch / segments
    costs = _layer_costs(network, job, system, samples)
    held, held_weight = 2 * item * job.reuse * point.batch, item * (2 + job.optimizer_copies)
    ahead = back = update = memory = weights = boundary = 0.0
    most_ahead = most_back = most_update = most_memory = most_weights = 0.0
    last = len(stages) - 1
    for layer, (_, _, x, y, w) in enumerate(network.rows):
        one_ahead, one_back, one_update = costs[layer]
        ahead, back, update, weights = ahead + one_ahead, back + one_back, update + one_update, weights + w
        memory += held * (x + y) + held_weight * w
        if layer == last or stages[layer + 1] != stages[layer]:
            most_ahead, most_back, most_update = max(most_ahead, ahead), max(most_back, back), max(most_update, update)
            most_memory, most_weights = max(most_memory, memory), max(most_weights, weights)
            boundary = boundary if layer == last else max(boundary, y)
            ahead = back = update = memory = weights = 0.0
    seconds = (group + segments - 1) * (most_ahead + most_back) + most_update
    message = item * samples * boundary
    if message > 0 and group > 1:
        alpha, slope = _hop(system, group)
        seconds += 2 * (group + segments - 2) * (alpha + message * slope)
    if point.hybrid:
        seconds += _ring(item * most_weights, point.replicas, _hop(system, job.pes, group))
    return seconds, most_memory


def _layer_costs(network, job, system, samples):
    """Seconds of each layer forward and backward for so many samples, and of its update."""
    flop = samples / (system.peak_flops * system.efficiency)
    byte, launch = job.bytes_per_item / system.memory_bandwidth, system.layer_overhead
    tensor, touched = byte * samples, byte * (3 + job.optimizer_copies)
    costs = []
    for (forward, backward, x, y, w), times in zip(network.rows, network.times, strict=True):
        if times is not None:
            costs.append((samples * times[0], samples * times[1], times[2]))
            continue
        moved = tensor * (x + y) + byte * w
        ahead, back = max(flop * forward, moved), max(flop * backward, 2 * moved)
        costs.append((launch + ahead, launch + back, launch + touched * w if w > 0 else 0.0))
    return costs


# Communication


def _hop(system, span, rings=1.0):
    """(α, φβ) of a communicator: the largest over the levels that `span` PEs reach across."""
    alpha, beta, contention = system.alpha[0], system.beta[0], 1.0
    for level, capacity in enumerate(system.capacity[:-1]):
        if span > capacity:
            alpha, beta = max(alpha, system.alpha[level + 1]), max(beta, system.beta[level + 1])
            contention = max(contention, min(rings, capacity) / system.links[level])
    return alpha, beta * contention


def _ring(volume, pes, hop):
    """Ring Allreduce [s]."""
    return 2 * (pes - 1) * (hop[0] + volume / pes * hop[1]) if volume > 0 else 0.0


def _within_group(network, job, system, point):
    """Collectives between layers, halos, and the gathering of a spatially split tensor [s]."""
    if not (network.gathers or network.halos) or point.group == 1:
        return 0.0
    alpha, slope = _hop(system, point.group)
    item = job.bytes_per_item
    seconds = (point.group - 1) * (network.gathers * alpha + network.gathered * item * point.own * slope)
    return seconds + 4 * network.halos * alpha + 2 * network.halo * item * point.batch * slope


def _gradients(network, job, system, point, held):
    """Gradient exchange [s]; `held` are the bytes of weights that a PE holds."""
    kind, pes, group, replicas = point.kind, job.pes, point.group, point.replicas
    if kind == "data":
        return _ring(held, pes, _hop(system, pes))
    split, whole = job.bytes_per_item * network.split.weights, job.bytes_per_item * network.whole.weights
    if kind == "spatial" and not point.hybrid:
        return _ring(split, pes, _hop(system, pes))
    if not point.hybrid:
        return 0.0
    contended = _hop(system, pes, group)
    if kind != "spatial":
        return _ring(held, replicas, contended)
    everywhere, leaders = _hop(system, pes), job.hierarchical
    flat, tree = 1 - leaders, leaders * held
    seconds = _ring(tree, group, _hop(system, group)) + _ring(tree, replicas, everywhere)
    if group == 1:
        return seconds + _ring(flat * held, pes, everywhere)
    return seconds + _ring(flat * split, pes, everywhere) + _ring(flat * whole, replicas, contended)
