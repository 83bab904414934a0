"""Table III again, in plain Python loops: slow, obvious and independent of the package that it checks.

The table is that of Kahira et al., "An Oracle for Guiding Large-Scale Model/Hybrid Parallel Training of
Convolutional Neural Networks", HPDC'21, arXiv 2104.09075, per iteration, with its errata put right and with split
and replicated layers told apart. Scalar floats, lists and dicts only; seconds, bytes, items and FLOPs throughout.

Words: a *group* is the set of PEs that hold one replica of the network together (one PE for serial and data, all
PEs for the other pure strategies); the *replica batch* is what a group works on in one iteration.
"""

import math

COMPUTE = ("forward", "backward", "weight_update")
TRAFFIC = ("gradient_exchange", "layer_exchange", "halo_exchange", "stage_transfer", "gather")
MEMORY = ("weights", "gradients", "optimizer", "activations", "activation_gradients")
TOLERANCE = 1e-6


def reference(strategy: str, layers: list[dict], job: dict, system: dict, profile: list[dict] | None) -> dict:
    """Times per iteration, memory per PE and what limits one strategy at one point."""
    kind = strategy.removeprefix("data+")
    hybrid = strategy.startswith("data+")
    pes = job["pes"]
    if hybrid:
        group = job["group"]
    elif strategy in ("serial", "data"):
        group = 1.0
    else:
        group = pes
    if hybrid and not divides(group, pes):
        limit = "capacity" if exceeds(pes, system["capacity"][-1]) else "group"
        unknown = dict.fromkeys((*COMPUTE, *TRAFFIC, *MEMORY, "memory", "iteration_time"), math.nan)
        return {**unknown, "structural_limit": limit, "feasible": False}

    point = {
        "kind": kind,
        "hybrid": hybrid,
        "layers": layers,
        "job": job,
        "system": system,
        "profile": profile,
        "pes": pes,
        "group": group,
        "replicas": pes / group,
        "replica_batch": job["samples_per_pe"] * (pes if strategy == "serial" else group),
        "mask": split_mask(kind, layers, job["split_layers"]),
        "factors": job["split"] if job["split"] is not None else [group, 1.0, 1.0],
        "segments": job["segments"] if job["segments"] is not None else group,
        "stages": None,
    }
    if kind == "pipeline":
        point["stages"] = job["stages"] if job["stages"] is not None else [0] * len(layers)

    limit = structural_limit(point)
    memory = pipeline_memory(point) if kind == "pipeline" else memory_of(point, range(len(layers)))
    times = dict.fromkeys((*COMPUTE, *TRAFFIC), math.nan) if limit == "capacity" else times_of(point)

    result = {**times, **memory}
    result["structural_limit"] = limit
    result["memory"] = sum(memory.values())
    result["iteration_time"] = sum(times.values())
    result["feasible"] = limit == "none" and result["memory"] <= system["memory_bytes"]
    return result


def times_of(point: dict) -> dict:
    return {
        "forward": compute_time(point, "forward"),
        "backward": compute_time(point, "backward"),
        "weight_update": update_time(point),
        "gradient_exchange": gradient_exchange(point),
        "layer_exchange": layer_exchange(point),
        "halo_exchange": halo_exchange(point),
        "stage_transfer": stage_transfer(point),
        "gather": gather(point),
    }


# Comparisons


def exceeds(value: float, bound: float) -> bool:
    return value > bound * (1 + TOLERANCE)


def divides(group: float, pes: float) -> bool:
    quotient = pes / group
    return round(quotient) >= 1 and abs(quotient - round(quotient)) <= TOLERANCE * quotient


# Which layers are split


def is_global_pool(layer: dict) -> bool:
    """A pool that takes in a whole map and leaves a single item of it per channel."""
    if layer["kind"] != "pool":
        return False
    for axis in range(3):
        if layer["output_extent"][axis] != 1 or layer["kernel"][axis] < layer["input_extent"][axis]:
            return False
    return max(layer["input_extent"]) > 1


def split_mask(kind: str, layers: list[dict], given: list | None) -> list[bool]:
    """True for a layer that the group divides, False for one that each of its PEs repeats."""
    if given is not None:
        return [bool(flag) for flag in given]
    mask = []
    weighted_before = False
    in_prefix = True
    for layer in layers:
        if layer["kind"] == "dense" or is_global_pool(layer):
            in_prefix = False
        if kind == "filter":
            mask.append(weighted_before or layer["weighted"])
        elif kind == "channel":
            mask.append(weighted_before and layer["weighted"])
        elif kind == "spatial":
            mask.append(in_prefix)
        else:
            mask.append(True)
        if layer["weighted"]:
            weighted_before = True
    return mask


def split_layers(point: dict) -> list[dict]:
    return [layer for layer, split in zip(point["layers"], point["mask"], strict=True) if split]


# Limits


def structural_limit(point: dict) -> str:
    """The first failed condition; that the group divides the PEs was seen to before."""
    if exceeds(point["pes"], point["system"]["capacity"][-1]):
        return "capacity"
    if point["kind"] == "spatial":
        parts = point["factors"][0] * point["factors"][1] * point["factors"][2]
        if exceeds(parts, point["group"]) or exceeds(point["group"], parts):
            return "split"
    if too_many_pes(point):
        return "pes"
    if exceeds(1.0, point["replica_batch"]):
        return "mini_batch"
    if point["kind"] == "pipeline" and exceeds(point["segments"], point["replica_batch"]):
        return "segments"
    return "none"


def too_many_pes(point: dict) -> bool:
    kind, group = point["kind"], point["group"]
    if kind == "serial":
        return exceeds(point["pes"], 1.0)
    if kind == "pipeline":
        return exceeds(group, len(point["layers"]))
    for layer in split_layers(point):
        if kind == "spatial":
            for extent in (layer["input_extent"], layer["output_extent"]):
                if any(exceeds(point["factors"][axis], extent[axis]) for axis in range(3)):
                    return True
        elif kind in ("filter", "channel") and layer["weighted"]:
            if exceeds(group, layer["filters" if kind == "filter" else "channels"]):
                return True
    return False


# Memory


def local_weights(point: dict, index: int) -> float:
    """Weights of one layer that one PE holds [item]."""
    weights = point["layers"][index]["weight_items"]
    if point["kind"] in ("filter", "channel") and point["mask"][index]:
        return weights / point["group"]
    return weights


def memory_of(point: dict, indices) -> dict:
    """Bytes that one PE keeps for the layers of these indices, by kind."""
    job = point["job"]
    weights = 0.0
    activations = 0.0
    for index in indices:
        layer = point["layers"][index]
        batch = point["replica_batch"]
        if point["kind"] == "spatial" and point["mask"][index]:
            batch = point["replica_batch"] / point["group"]
        weights += local_weights(point, index)
        activations += batch * (layer["input_items"] + layer["output_items"])
    return {
        "weights": job["bytes_per_item"] * weights,
        "gradients": job["bytes_per_item"] * weights,
        "optimizer": job["optimizer_copies"] * job["bytes_per_item"] * weights,
        "activations": job["reuse"] * job["bytes_per_item"] * activations,
        "activation_gradients": job["reuse"] * job["bytes_per_item"] * activations,
    }


def layers_of_stages(stages: list[int]) -> list[list[int]]:
    """The indices of the layers of each stage, in order of stages."""
    return [[index for index, stage in enumerate(stages) if stage == wanted] for wanted in sorted(set(stages))]


def largest_stage(point: dict, values: list[float]) -> float:
    """The largest sum, over the layers of a stage, of something that each layer has."""
    return max(sum(values[index] for index in indices) for indices in layers_of_stages(point["stages"]))


def pipeline_memory(point: dict) -> dict:
    """That of the stage which needs most; of the later one where two need the same."""
    largest = None
    for indices in layers_of_stages(point["stages"]):
        memory = memory_of(point, indices)
        if largest is None or sum(memory.values()) >= sum(largest.values()):
            largest = memory
    return largest


# Compute


def pass_time(point: dict, index: int, direction: str) -> float:
    """Time of one layer in one pass; for a pipeline that of one segment."""
    layer, kind, group = point["layers"][index], point["kind"], point["group"]
    split = point["mask"][index]
    samples = point["replica_batch"]  # samples' worth of FLOPs
    inputs = point["replica_batch"] * layer["input_items"]  # items read and written by this PE
    outputs = point["replica_batch"] * layer["output_items"]
    if kind == "pipeline":
        samples = samples / point["segments"]
        inputs = inputs / point["segments"]
        outputs = outputs / point["segments"]
    elif kind in ("spatial", "filter", "channel") and split:
        samples = point["job"]["samples_per_pe"]
        if kind in ("spatial", "channel"):
            inputs = inputs / group
        if kind in ("spatial", "filter"):
            outputs = outputs / group
    if point["profile"] is not None:
        return samples * point["profile"][index][direction]

    system = point["system"]
    moved = point["job"]["bytes_per_item"] * (inputs + outputs + local_weights(point, index))
    if direction == "backward":
        moved = 2 * moved
    arithmetic = samples * layer[direction + "_flops"] / (system["peak_flops"] * system["efficiency"])
    return system["layer_overhead"] + max(arithmetic, moved / system["memory_bandwidth"])


def compute_time(point: dict, direction: str) -> float:
    times = [pass_time(point, index, direction) for index in range(len(point["layers"]))]
    if point["kind"] != "pipeline":
        return sum(times)
    return (point["group"] + point["segments"] - 1) * largest_stage(point, times)


def layer_update_time(point: dict, index: int) -> float:
    if point["profile"] is not None:
        update = point["profile"][index]["update"]
        if point["kind"] in ("filter", "channel") and point["mask"][index]:
            return update / point["group"]
        return update
    weights = local_weights(point, index)
    if weights == 0:
        return 0.0
    touched = 3 + point["job"]["optimizer_copies"]  # weights read and written, gradients and optimizer state read
    moved = point["job"]["bytes_per_item"] * touched * weights
    return point["system"]["layer_overhead"] + moved / point["system"]["memory_bandwidth"]


def update_time(point: dict) -> float:
    times = [layer_update_time(point, index) for index in range(len(point["layers"]))]
    if point["kind"] != "pipeline":
        return sum(times)
    return largest_stage(point, times)


# Communication


def level_of(span: float, system: dict) -> int:
    """The innermost level one unit of which holds so many PEs."""
    for level, capacity in enumerate(system["capacity"]):
        if not exceeds(span, capacity):
            return level
    raise ValueError(f"no level holds {span} PEs")


def message_time(count: float, size: float, span: float, system: dict, contention: float = 1.0) -> float:
    """So many messages of so many bytes in all, one after another, at the slowest level spanned."""
    if size == 0:
        return 0.0
    spanned = level_of(span, system) + 1
    alpha = max(system["alpha"][:spanned])
    beta = max(system["beta"][:spanned])
    return count * alpha + size * contention * beta


def allgather_time(size: float, group: float, span: float, system: dict) -> float:
    """A ring Allgather over a group; size is that of the gathered buffer."""
    return (group - 1) * message_time(1, size / group, span, system)


def allreduce_time(size: float, group: float, span: float, system: dict, contention: float = 1.0) -> float:
    """A ring Allreduce over a group; size is that of the full buffer."""
    return 2 * (group - 1) * message_time(1, size / group, span, system, contention)


def self_contention(rings: float, span: float, system: dict) -> float:
    """How many of the rings that leave a unit at once share one of its links, at the worst level below the top one."""
    worst = 1.0
    for level in range(level_of(span, system)):
        worst = max(worst, min(rings, system["capacity"][level]) / system["links"][level])
    return worst


def gradient_exchange(point: dict) -> float:
    kind, system, item = point["kind"], point["system"], point["job"]["bytes_per_item"]
    pes, group, replicas = point["pes"], point["group"], point["replicas"]
    if kind == "serial":
        return 0.0

    pairs = list(zip(point["layers"], point["mask"], strict=True))
    split = sum(layer["weight_items"] for layer, is_split in pairs if is_split)
    replicated = sum(layer["weight_items"] for layer, is_split in pairs if not is_split)
    everything = item * (split + replicated)

    if kind == "data":
        return allreduce_time(everything, pes, pes, system)

    contention = self_contention(group, pes, system)
    if kind in ("filter", "channel"):
        size = item * (split / group + replicated)
        return allreduce_time(size, replicas, pes, system, contention)

    if kind == "pipeline":
        largest = largest_stage(point, [layer["weight_items"] for layer in point["layers"]])
        return allreduce_time(item * largest, replicas, pes, system, contention)

    # Spatial: weights are whole everywhere, gradients of split layers are partial on every PE.
    if replicas == pes:
        return allreduce_time(everything, pes, pes, system)
    if point["job"]["hierarchical"] and point["hybrid"]:
        inner = allreduce_time(everything, group, group, system)
        return inner + allreduce_time(everything, replicas, pes, system)
    time = allreduce_time(item * split, pes, pes, system)
    return time + allreduce_time(item * replicated, replicas, pes, system, contention)


def layer_exchange(point: dict) -> float:
    """Filter: Allgather of outputs, Allreduce of gradients; channel: Allreduce of outputs, Allgather of gradients."""
    if point["kind"] == "filter":
        gathered, reduced = "exchanged_items", "entered_items"
    elif point["kind"] == "channel":
        gathered, reduced = "entered_items", "reduced_items"
    else:
        return 0.0
    group, system = point["group"], point["system"]
    scale = point["job"]["bytes_per_item"] * point["replica_batch"]
    time = 0.0
    for layer in split_layers(point):
        time += allgather_time(scale * layer[gathered], group, group, system)
        time += allreduce_time(scale * layer[reduced], group, group, system)
    return time


def face(depth: float, planes: float, extent: list[float], factors: list[float], axis: int) -> float:
    """Items of a slab so deep, across one axis, of one PE's part of a map [item/sample]."""
    items = depth * planes
    for other in range(3):
        if other != axis:
            items *= extent[other] / factors[other]
    return items


def halo_exchange(point: dict) -> float:
    """Both neighbours along each split extent: x going forward, dL/dy going backward."""
    if point["kind"] != "spatial":
        return 0.0
    group, system, factors = point["group"], point["system"], point["factors"]
    scale = 2 * point["job"]["bytes_per_item"] * point["replica_batch"]
    time = 0.0
    for layer in split_layers(point):
        if layer["kind"] not in ("convolution", "pool"):
            continue
        for axis in range(3):
            rows = math.floor((layer["kernel"][axis] - 1) / 2)
            if rows < 1 or not factors[axis] > 1:
                continue
            inputs = face(rows, layer["channels"], layer["input_extent"], factors, axis)
            gradients = face(rows, layer["filters"], layer["output_extent"], factors, axis)
            time += message_time(2, scale * inputs, group, system)
            time += message_time(2, scale * gradients, group, system)
    return time


def stage_transfer(point: dict) -> float:
    if point["kind"] != "pipeline":
        return 0.0
    stages, segments = point["stages"], point["segments"]
    samples = point["replica_batch"] / segments
    slowest = 0.0
    for index in range(len(stages) - 1):
        if stages[index] != stages[index + 1]:
            size = point["job"]["bytes_per_item"] * samples * point["layers"][index]["output_items"]
            slowest = max(slowest, message_time(1, size, point["group"], point["system"]))
    return 2 * (point["group"] + segments - 2) * slowest


def gather(point: dict) -> float:
    """The output of the last spatially split layer is put together for the layers that follow."""
    if point["kind"] != "spatial" or not any(point["mask"]):
        return 0.0
    last = max(index for index, split in enumerate(point["mask"]) if split)
    if last == len(point["layers"]) - 1:
        return 0.0
    size = point["job"]["bytes_per_item"] * point["replica_batch"] * point["layers"][last]["output_items"]
    return allgather_time(size, point["group"], point["group"], point["system"])
