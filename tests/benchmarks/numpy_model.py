"""The whole model in vectorised NumPy: a benchmark's yardstick, and an independent twin of the package.

What a competent engineer would write who has n scattered design points of one strategy and one network: what depends
on the network alone is summed up first, layers are a Python loop, points are arrays, in blocks that stay in a core's
cache. It takes codes from the package, no formula. A strategy splits the layers that it splits by default, and spatial
ones the first extent; networks have no padding.
"""

from __future__ import annotations

import numpy as np

from jaxoracle.records import CONVOLUTION, DENSE, LIMITS, POOL

FIELDS = ("iteration_time", "epoch_time", "memory", "feasible", "limit")
LEVELS = ("capacity", "alpha", "beta", "links")
TOLERANCE = 1e-6
#: points of a block: enough for calls not to cost, few enough for arrays to stay in a cache
BLOCK = 1 << 17


def totals(strategy, layers, points, system, profile=None):
    """`FIELDS` of every point, shape (n,); numbers are of the type of `points["pes"]`.

    Args:
      strategy: name.
      layers: the network's arrays.
      points: job field -> array (n,); `stages`, which only pipelines need, is (n, layers).
      system: a record whose figures, of the device or of a level, are each a number or an array (n,).
      profile: measured times; None: roofline.
    """
    network = Network(strategy, layers, profile)
    dtype, count = points["pes"].dtype, len(points["pes"])
    device = {name: np.asarray(value, dtype) for name, value in vars(system).items() if name not in LEVELS}
    levels = {name: [np.asarray(value, dtype) for value in getattr(system, name)] for name in LEVELS}
    blocks = []
    for start in range(0, count, BLOCK):
        here = slice(start, start + BLOCK)
        job = {name: values[here] for name, values in points.items()}
        figures = {name: _part(value, here) for name, value in device.items()}
        figures |= {name: [_part(value, here) for value in values] for name, values in levels.items()}
        blocks.append(_block(network, job, figures))
    return {name: np.concatenate([block[name] for block in blocks]) for name in FIELDS}


def _part(value, here):
    return value[here] if value.ndim else value


# The network


class Network:
    """What depends on strategy, network and profile alone."""

    def __init__(self, strategy, layers, profile):
        self.kind, self.hybrid = strategy.removeprefix("data+"), strategy.startswith("data+")
        self.count = len(layers.kind)
        split = _split(self.kind, layers)
        self.split, self.whole = Share(layers, split, profile), Share(layers, ~split, profile)
        self.steps = _steps(layers, profile) if self.kind == "pipeline" else None
        self.most_parts = _most_parts(self.kind, layers, split)
        #: start-ups and items of the ring collectives between layers, an Allreduce counted as two Allgathers
        self.gathers = self.gathered = 0.0
        if self.kind in ("filter", "channel"):
            once = (layers.exchanged_items if self.kind == "filter" else layers.entered_items)[split]
            twice = (layers.entered_items if self.kind == "filter" else layers.reduced_items)[split]
            self.gathers = float(np.sum(once > 0) + 2 * np.sum(twice > 0))
            self.gathered = float(once.sum() + 2 * twice.sum())
        self.halos = self.halo = 0.0
        if self.kind == "spatial":
            self._borders(layers, split)

    def _borders(self, layers, split):
        """Halos, and the Allgather of the last split layer's output."""
        rows = np.floor((layers.kernel[:, 0] - 1) / 2) * (split & np.isin(layers.kind, (CONVOLUTION, POOL)))
        inputs = layers.channels * layers.input_extent[:, 1:].prod(axis=1)
        outputs = layers.filters * layers.output_extent[:, 1:].prod(axis=1)
        self.halos, self.halo = float(np.sum(rows > 0)), float(rows @ (inputs + outputs))
        last = np.flatnonzero(split).max(initial=-1)
        if 0 <= last < self.count - 1:
            self.gathers, self.gathered = 1.0, float(layers.output_items[last])


class Share:
    """Layers of which a PE handles the same part: their sums, and the rows that the roofline prices."""

    def __init__(self, layers, members, profile):
        estimated = members & ~_measured(layers, profile)
        weights = layers.weight_items[estimated]
        self.rows = _rows(layers)[estimated].tolist()
        self.tensors = float((layers.input_items + layers.output_items)[members].sum())
        self.weights = float(layers.weight_items[members].sum())
        self.updated = float(weights.sum())
        #: launches of an iteration
        self.launches = float(2 * estimated.sum() + np.sum(weights > 0))
        self.passes = self.update = 0.0
        if profile is not None:
            known = members & ~estimated
            self.passes = float(np.sum(profile.forward[known]) + np.sum(profile.backward[known]))
            self.update = float(np.sum(profile.update[known]))


def _rows(layers):
    """FLOPs forward and backward, |x|, |y| and |w| of each layer."""
    flops = layers.forward_flops, layers.backward_flops
    return np.stack((*flops, layers.input_items, layers.output_items, layers.weight_items), axis=1)


def _measured(layers, profile):
    """Whether a layer's times are measured."""
    if profile is None or profile.measured is None:
        return np.full(len(layers.kind), profile is not None)
    return np.asarray(profile.measured) > 0


def _steps(layers, profile):
    """Each layer's row, and its times if they are measured."""
    rows = _rows(layers).tolist()
    if profile is None:
        return [(row, None) for row in rows]
    times = np.stack((profile.forward, profile.backward, profile.update), axis=1).tolist()
    known = _measured(layers, profile)
    return [(row, time if is_known else None) for row, time, is_known in zip(rows, times, known, strict=True)]


def _split(kind, layers):
    """Whether the strategy splits a layer."""
    weighted = layers.weighted > 0
    if kind == "filter":
        return np.cumsum(weighted) > 0
    if kind == "channel":
        return weighted & (np.cumsum(weighted) > 1)
    if kind == "spatial":
        to_one = np.all((layers.output_extent == 1) & (layers.kernel >= layers.input_extent), axis=1)
        is_global = (layers.kind == POOL) & to_one & np.any(layers.input_extent > 1, axis=1)
        return np.cumsum((layers.kind == DENSE) | is_global) == 0
    return np.ones(len(layers.kind), bool)


def _most_parts(kind, layers, split):
    """The most parts that a replica can be split into; 1 if no layer is split."""
    if kind == "pipeline":
        return len(layers.kind)
    if kind == "spatial":
        limits = np.minimum(layers.input_extent, layers.output_extent)[split, 0]
    elif kind in ("filter", "channel"):
        limits = (layers.filters if kind == "filter" else layers.channels)[split & (layers.weighted > 0)]
    else:
        return 1
    return float(limits.min()) if limits.size else 1


# Points


def _block(network, job, system):
    """`FIELDS` of a block of points."""
    kind, pes, samples = network.kind, job["pes"], job["samples_per_pe"]
    point = _point(network, job, system)
    seconds, memory = (_pipelined if kind == "pipeline" else _divided)(network, job, system, point)
    margin = 1 + TOLERANCE
    failed = {"capacity": pes > system["capacity"][-1] * margin, "mini_batch": point["batch"] * margin < 1}
    meaningless = failed["capacity"]
    if network.hybrid:
        failed["group"] = point["uneven"]
        meaningless = meaningless | point["uneven"]
    if kind != "data":
        failed["pes"] = (pes if kind == "serial" else point["group"]) > network.most_parts * margin
    if kind == "pipeline":
        failed["segments"] = job["segments"] > point["batch"] * margin
    np.copyto(seconds, np.nan, where=meaningless)
    limit = np.where(memory <= system["memory_bytes"], 0, LIMITS.index("memory")).astype(np.int8)
    for code in reversed(LIMITS):
        if code in failed:
            np.copyto(limit, LIMITS.index(code), where=failed[code])
    return {
        "iteration_time": seconds,
        "epoch_time": job["dataset_size"] / (samples * pes) * seconds,
        "memory": memory,
        "feasible": limit == 0,
        "limit": limit,
    }


def _point(network, job, system):
    """Samples of a PE and of a replica, PEs of a replica, replicas, and the interconnect within a replica."""
    pes, samples = job["pes"], job["samples_per_pe"]
    if network.kind == "serial":
        return {"own": samples * pes, "batch": samples * pes}
    if network.kind == "data":
        return {"own": samples, "batch": samples}
    group = job["group"] if network.hybrid else pes
    point = {"own": samples, "batch": samples * group, "group": group, "hop": _hop(system, group)}
    if network.hybrid:
        quotient = pes / group
        whole = np.rint(quotient)
        point |= {"uneven": quotient != whole, "replicas": np.maximum(whole, 1)}
    return point


# Computation and memory


def _divided(network, job, system, point):
    """Seconds of an iteration and bytes of all strategies but pipelines."""
    kind, split, whole, own, batch = network.kind, network.split, network.whole, point["own"], point["batch"]
    item, copies = job["bytes_per_item"], job["optimizer_copies"]
    by_weight = kind in ("filter", "channel")
    part = 1 / point["group"] if by_weight else 1.0
    flop = 1 / (system["peak_flops"] * system["efficiency"])
    byte = 1 / system["memory_bandwidth"] * item
    seconds = own * split.passes + batch * whole.passes + (part * split.update + whole.update)
    seconds += (split.launches + whole.launches) * system["layer_overhead"]
    seconds += byte * (3 + copies) * (part * split.updated + whole.updated)
    if split.rows:
        read, written = byte * (batch if kind == "filter" else own), byte * (batch if kind == "channel" else own)
        seconds += _roofline(split.rows, flop * own, read, written if by_weight else None, byte * part)
    if whole.rows:
        seconds += _roofline(whole.rows, flop * batch, byte * batch, None, byte)
    tensors = (batch if by_weight else own) * split.tensors + batch * whole.tensors
    weights = part * split.weights + whole.weights
    memory = item * (2 * job["reuse"] * tensors + (2 + copies) * weights)
    if kind not in ("serial", "data"):
        seconds += _within_group(network, item, point)
    return seconds + _gradients(network, job, system, point, item * weights), memory


def _roofline(rows, flop, read, written, weight):
    """Seconds of both passes of these layers without launches, counted in units of `read`.

    Args:
      rows: FLOPs forward and backward, |x|, |y| and |w| of each layer.
      flop: seconds of a FLOP of all of a PE's samples, (n,).
      read: of an item of x, likewise.
      written: of an item of y; None: as `read`.
      weight: of an item of w.
    """
    flop, weight = flop / read, weight / read
    written = None if written is None else written / read
    once, thrice, work, moved, other = np.zeros((5, len(read)), read.dtype)
    for forward, backward, x, y, w in rows:
        items = x + y if written is None else np.add(np.multiply(written, y, out=moved), x, out=moved)
        if w:
            items = np.add(np.multiply(weight, w, out=work), items, out=moved)
        np.multiply(flop, forward, out=work)
        if backward == 2 * forward:  # the larger is the same in both passes
            thrice += np.maximum(work, items, out=work)
            continue
        once += np.maximum(work, items, out=other)
        if backward != forward:
            np.multiply(flop, backward, out=work)
        items *= 2
        once += np.maximum(work, items, out=work)
    thrice *= 3
    once += thrice
    return np.multiply(once, read, out=once)


def _pipelined(network, job, system, point):
    """Seconds of an iteration and bytes of pipelines."""
    item, group, segments, batch = job["bytes_per_item"], point["group"], job["segments"], point["batch"]
    samples, copies = batch / segments, job["optimizer_copies"]
    byte, launch = 1 / system["memory_bandwidth"] * item, system["layer_overhead"]
    rates = {
        "flop": 1 / (system["peak_flops"] * system["efficiency"]),
        "item": byte,
        "weight": byte / samples,
        "launch": launch / samples,
        "update": byte * (3 + copies),
        "launch_update": launch,
        "held": 2 * item * job["reuse"] * batch,
        "held_weight": item * (2 + copies),
    }
    (forward, backward, memory, update, *weights), boundary = _largest_stages(network, job["stages"], rates)
    seconds = (group + segments - 1) * samples * (forward + backward) + update
    alpha, slope = point["hop"]
    message = item * samples * boundary
    seconds += 2 * (group + segments - 2) * ((message > 0) & (group > 1)) * (alpha + message * slope)
    if network.hybrid:
        seconds += _ring(item * weights[0], point["replicas"], _hop(system, job["pes"], group))
    return seconds, memory


def _largest_stages(network, stages, rates):
    """Largest sums over a stage of forward and backward [s/sample], bytes, update [s], weights; and largest boundary.

    Sums start anew where a stage starts. As all terms are positive, those of whole stages are the largest.
    """
    dtype, count = stages.dtype, len(stages)
    stays = np.ones((network.count, count), bool)
    stays[:-1] = (stages[:, 1:] == stages[:, :-1]).T
    running, largest, values = np.zeros((3, 5 if network.hybrid else 4, count), dtype)
    boundary, stay, work = np.zeros((3, count), dtype)
    for layer, (row, times) in enumerate(network.steps):
        _, _, x, y, w = row
        np.multiply(rates["held"], x + y, out=values[2])
        if w:
            values[2] += np.multiply(rates["held_weight"], w, out=work)
        terms = slice(None) if w or times else slice(3)
        _stage_seconds(row, times, rates, values, work)
        running[terms] += values[terms]
        np.maximum(largest[terms], running[terms], out=largest[terms])
        np.copyto(stay, stays[layer])
        running *= stay
        np.maximum(boundary, np.multiply(np.subtract(1, stay, out=stay), y, out=work), out=boundary)
    return largest, boundary


def _stage_seconds(row, times, rates, values, work):
    """One layer's seconds forward, backward and, if it has weights, of the update, and its weights, into `values`."""
    forward, backward, x, y, w = row
    ahead, back, _, update = values[:4]
    values[4:] = w
    if times:
        ahead[:], back[:], update[:] = times
        return
    np.multiply(rates["item"], x + y, out=back)
    if w:
        back += np.multiply(rates["weight"], w, out=work)
        np.multiply(rates["update"], w, out=update)
        update += rates["launch_update"]
    np.maximum(np.multiply(rates["flop"], forward, out=work), back, out=ahead)
    if backward == 2 * forward:  # the larger is the same in both passes
        np.multiply(ahead, 2, out=back)
    else:
        back *= 2
        np.maximum(np.multiply(rates["flop"], backward, out=work), back, out=back)
    values[:2] += rates["launch"]


# Communication


def _hop(system, span, rings=1.0):
    """(α, φβ) of a communicator: the largest over the levels that `span` PEs reach across."""
    alpha, beta, contention = system["alpha"][0], system["beta"][0], 1.0
    for level, capacity in enumerate(system["capacity"][:-1]):
        beyond = span > capacity
        alpha = np.maximum(alpha, beyond * system["alpha"][level + 1])
        beta = np.maximum(beta, beyond * system["beta"][level + 1])
        flows = np.minimum(rings, capacity) / system["links"][level]
        if np.any(flows > 1):
            contention = np.maximum(contention, beyond * flows)
    return alpha, beta * contention


def _ring(volume, pes, hop):
    """Ring Allreduce [s]."""
    alpha, slope = hop
    return 2 * (pes - 1) * (alpha * (volume > 0) + volume / pes * slope)


def _within_group(network, item, point):
    """Collectives between layers, halos, and the gathering of a spatially split tensor [s]."""
    alpha, slope = point["hop"]
    seconds = (point["group"] - 1) * (network.gathers * alpha + network.gathered * item * point["own"] * slope)
    if network.halos:
        volume = 2 * network.halo * item * point["batch"]
        seconds += (point["group"] > 1) * (4 * network.halos * alpha + volume * slope)
    return seconds


def _gradients(network, job, system, point, held):
    """Gradient exchange [s]; `held` are the bytes of weights that a PE holds."""
    kind, pes, item = network.kind, job["pes"], job["bytes_per_item"]
    if kind == "data":
        return _ring(held, pes, _hop(system, pes))
    if kind == "spatial" and not network.hybrid:
        return _ring(item * network.split.weights, pes, point["hop"])
    if not network.hybrid:
        return 0.0
    group, replicas = point["group"], point["replicas"]
    contended = _hop(system, pes, group)
    if kind != "spatial":
        return _ring(held, replicas, contended)
    everywhere, leaders, alone = _hop(system, pes), job["hierarchical"], group == 1
    flat = (1 - leaders) * item
    seconds = _ring(flat * network.split.weights + flat * alone * network.whole.weights, pes, everywhere)
    seconds += _ring(flat * ~alone * network.whole.weights, replicas, contended)
    return seconds + _ring(leaders * held, group, point["hop"]) + _ring(leaders * held, replicas, everywhere)
