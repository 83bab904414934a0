"""Every noun of the oracle: frozen pytrees of numbers, SI units, no verbs.

Names are not leaves and not static fields (each would cost a compilation); they are coordinates of a sweep. Nothing is
validated here: JAX rebuilds records from tracers. The doors (`catalog`, sweep files, the command line) validate once.

Source of the quantities: Kahira et al., "An Oracle for Guiding Large-Scale Model/Hybrid Parallel Training of
Convolutional Neural Networks", HPDC'21, arXiv 2104.09075 ("the paper"); its Table III lists the strategies.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, TypeAlias, dataclass_transform

import jax

Scalar: TypeAlias = Any  # a float, or an array or tracer of shape ()
PerLayer: TypeAlias = Any  # shape [layer]
PerExtent: TypeAlias = Any  # shape [3]
PerLayerExtent: TypeAlias = Any  # shape [layer, 3]
PerLevel: TypeAlias = Any  # shape [level], from the inside out, or a tuple of scalars

#: codes of `Layers.kind`; `padding` fills a network up to the length of a longer one and is no layer
KINDS = ("padding", "convolution", "dense", "pool", "norm", "activation", "elementwise")
PADDING, CONVOLUTION, DENSE, POOL, NORM, ACTIVATION, ELEMENTWISE = range(len(KINDS))


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: type | None = None, *, static: tuple[str, ...] = ()) -> Any:
    """Class decorator: a frozen, keyword-only dataclass that is a pytree; `static` fields are part of the program."""
    if cls is None:
        return functools.partial(record, static=static)
    frozen: Any = dataclasses.dataclass(frozen=True, kw_only=True, eq=False)(cls)
    names = [f.name for f in dataclasses.fields(frozen) if f.name not in static]
    return jax.tree_util.register_dataclass(frozen, data_fields=names, meta_fields=list(static))


@record
class Layers:
    """A network as arrays, one entry per layer in topological order.

    Reshape, flatten, identity, dropout and an output softmax are no layers. In a list of extents missing dims are 1.

    Attributes:
      forward_flops: [FLOP/sample].
      backward_flops: [FLOP/sample]; twice forward for weighted layers (data and weight gradients), else once.
      input_items: |x_l|, all inputs of the layer together [item/sample].
      output_items: |y_l| [item/sample].
      weight_items: |w_l|, biases and norm parameters included [item].
      exchanged_items: e_l, the output of weighted layer l as it enters the next weighted layer [item/sample];
        0 for other layers, the last weighted layer and a projection shortcut.
      entered_items: n_l, the tensor whose gradient layer l completes in backward [item/sample]; 0 for non-weighted
        layers, the first weighted layer and a projection shortcut.
      reduced_items: r_l, the raw output of a weighted layer [item/sample], else 0.
      channels: C_l [1].
      filters: F_l [1].
      input_extent: X_l, shape [layer, 3] [1].
      output_extent: Y_l, shape [layer, 3] [1].
      kernel: K_l, shape [layer, 3], the extent of the window with its dilation [1].
      stride: shape [layer, 3] [1].
      kind: code, an index into `KINDS`.
      weighted: 1 for layers whose weights a strategy may split (convolution, dense; not norm), else 0.
    """

    forward_flops: PerLayer
    backward_flops: PerLayer
    input_items: PerLayer
    output_items: PerLayer
    weight_items: PerLayer
    exchanged_items: PerLayer
    entered_items: PerLayer
    reduced_items: PerLayer
    channels: PerLayer
    filters: PerLayer
    input_extent: PerLayerExtent
    output_extent: PerLayerExtent
    kernel: PerLayerExtent
    stride: PerLayerExtent
    kind: PerLayer
    weighted: PerLayer


@record
class Profile:
    """Measured times of one network on one system; they replace the roofline.

    Attributes:
      forward: FW_l [s/sample].
      backward: BW_l [s/sample].
      update: WU_l [s/iteration].
      measured: 1 where the layer was measured, 0 where the roofline prices it; None: all were.
    """

    forward: PerLayer
    backward: PerLayer
    update: PerLayer
    measured: PerLayer = None


@record
class Job:
    """What is to be trained, on how many PEs, how.

    Attributes:
      pes: p, processing elements (a GPU each) [1].
      samples_per_pe: b = B/p, samples per PE and iteration [sample].
      group: p₂, PEs that split one replica in a hybrid [1]; None: as many as the innermost level holds, at most p.
        Pure strategies ignore it.
      dataset_size: D, samples of an epoch [sample]; the default is ImageNet-1k's training set.
      segments: S, pieces of a mini-batch in a pipeline [1]; None: as many as stages.
      bytes_per_item: δ [byte/item].
      reuse: γ, the part of the activation memory bound that is held at a time [1]; 1 is the paper's bound.
      optimizer_copies: copies of the weights that the optimizer keeps [1]: SGD 0, momentum 1, Adam 2.
      split_layers: 1 for the layers that the strategy splits, shape [layer]; None: the strategy's default.
      split: factors by which spatial parallelism splits each extent, shape [3]; None: the first extent only.
      stages: pipeline stage of each layer, counted from 0, shape [layer]; None: balanced by the partitioner.
      hierarchical: 1: leader-based gradient exchange of data+spatial, 0: one flat ring.
    """

    pes: Scalar
    samples_per_pe: Scalar
    group: Scalar = None
    dataset_size: Scalar = 1_281_167.0
    segments: Scalar = None
    bytes_per_item: Scalar = 4.0
    reuse: Scalar = 1.0
    optimizer_copies: Scalar = 0.0
    split_layers: PerLayer = None
    split: PerExtent = None
    stages: PerLayer = None
    hierarchical: Scalar = 0.0

    @property
    def mini_batch(self) -> Scalar:
        """B = b p [sample]."""
        return self.samples_per_pe * self.pes

    @property
    def iterations(self) -> Scalar:
        """I = D/B, iterations of an epoch, a real number [1]."""
        return self.dataset_size / self.mini_batch


@record
class System:
    """A computer system: one device and the levels of its interconnect, from the inside out.

    Attributes:
      peak_flops: of one PE [FLOP/s].
      memory_bandwidth: of one PE [byte/s].
      memory_bytes: of one PE [byte].
      layer_overhead: start-up time of one layer and pass [s].
      efficiency: part of the peak that a compute-bound layer reaches [1].
      price: of one PE [USD/s]; NaN: unknown.
      capacity: PEs that one unit of the level holds, shape [level] [1].
      alpha: α, start-up time of one message, shape [level] [s].
      beta: β, inverse bandwidth of one direction, shape [level] [s/byte].
      links: parallel links that a unit has to the next level, shape [level] [1]; infinite: no contention.
    """

    peak_flops: Scalar
    memory_bandwidth: Scalar
    memory_bytes: Scalar
    layer_overhead: Scalar
    efficiency: Scalar
    capacity: PerLevel
    alpha: PerLevel
    beta: PerLevel
    links: PerLevel
    price: Scalar = float("nan")


@record
class Share:
    """What one PE handles of the layers that it splits, or of those that it replicates.

    Attributes:
      flops: samples' worth of a layer's FLOPs [sample].
      input: samples' worth of |x_l| [sample].
      output: samples' worth of |y_l| [sample].
      weight: part of |w_l| [1].
    """

    flops: Scalar
    input: Scalar
    output: Scalar
    weight: Scalar = 1.0


@record
class Work:
    """Computation of one iteration on one PE.

    Attributes:
      split_layers: 1 for layers that are split, 0 for layers that are replicated in the group, shape [layer].
      split: share of a split layer; in a pipeline, of one segment.
      replicated: share of a replicated layer.
      stages: pipeline stage of each layer, shape [layer]; None: no pipeline.
      rounds: how often the slowest stage's segment is waited for, p + S - 1 in a pipeline [1].
      parts: PEs that split one replica [1].
    """

    split_layers: PerLayer
    split: Share
    replicated: Share
    parts: Scalar
    stages: PerLayer = None
    rounds: Scalar = 1.0


@record(static=("operation", "component", "phase"))
class Event:
    """One kind of communication of an iteration.

    Attributes:
      operation: name in `collectives.OPERATIONS`.
      component: the time that it counts towards, one of `EXCHANGES`.
      phase: "forward", "backward", or "update" (the gradient exchange).
      messages: how many times the operation runs [1].
      volume: bytes of the full buffers, summed over messages [byte].
      group: PEs of one communicator [1].
      span: PEs that the communicator reaches across [1].
      rings: communicators that run at once over the same links [1].
    """

    operation: str
    component: str
    phase: str
    messages: Scalar
    volume: Scalar
    group: Scalar
    span: Scalar
    rings: Scalar = 1.0


@record
class Memory:
    """Memory of one PE by kind [byte]; in a pipeline, of the stage that needs most.

    Attributes:
      weights: δ|w|.
      gradients: as weights.
      optimizer: state of the optimizer.
      activations: γδB(|x| + |y|).
      activation_gradients: as activations.
      redundant: the part of all of these that other PEs hold too.
    """

    weights: Scalar
    gradients: Scalar
    optimizer: Scalar
    activations: Scalar
    activation_gradients: Scalar
    redundant: Scalar


@record(static=("code",))
class Bound:
    """One condition of a strategy: `value` ≤ `limit`.

    Attributes:
      code: name in `LIMITS`.
      value: what the job asks for.
      limit: what the network or the batch allows.
    """

    code: str
    value: Scalar
    limit: Scalar


@record
class Plan:
    """What a strategy does, moves and keeps in one iteration; no seconds.

    Attributes:
      work: computation.
      events: communication.
      memory: bytes by kind.
      bounds: what limits it.
    """

    work: Work
    events: tuple[Event, ...]
    memory: Memory
    bounds: tuple[Bound, ...]


COMPUTATIONS = ("forward", "backward", "weight_update")
EXCHANGES = ("gradient_exchange", "layer_exchange", "halo_exchange", "stage_transfer", "gather")
TIMES = COMPUTATIONS + EXCHANGES
MEMORIES = ("weights", "gradients", "optimizer", "activations", "activation_gradients")

#: codes of `limit`, in the order in which they are looked at; `none` is feasible
LIMITS = ("none", "capacity", "group", "split", "pes", "mini_batch", "segments", "memory")
#: codes of `bottleneck`; `none` where the times mean nothing
BOTTLENECKS = ("none", *TIMES)


@record
class Terms:
    """What one design point costs: the terms that every total is formed from (`totals`).

    Times are per iteration [s]; they are NaN where they mean nothing (p above the system's capacity, p₂ not dividing p,
    split factors of another product).
    Memory is per PE [byte].

    Attributes:
      forward: computation of the forward pass.
      backward: computation of the backward pass.
      weight_update: computation of the optimizer.
      gradient_exchange: reduction of weight gradients.
      layer_exchange: collectives between layers that are split by filter or channel.
      halo_exchange: borders of spatially split layers.
      stage_transfer: activations and their gradients between pipeline stages.
      gather: collection of a spatially split tensor before a replicated layer.
      weights: δ|w|.
      gradients: as weights.
      optimizer: state of the optimizer.
      activations: γδB(|x| + |y|).
      activation_gradients: as activations.
      redundant_memory: bytes that other PEs hold too.
      replicated_compute: computation of layers that every PE of a group repeats [s].
      bandwidth_time: the β terms of all exchanges [s].
      congestion_time: the part of them that is due to contention φ [s].
      imbalance: 1 - mean/max of the compute of pipeline stages [1]; 0 where there is no pipeline.
      pes_over_limit: PEs over what the strategy's conditions allow [1].
      structural_limit: first failed condition but memory, an index into `LIMITS`.
    """

    forward: Scalar
    backward: Scalar
    weight_update: Scalar
    gradient_exchange: Scalar
    layer_exchange: Scalar
    halo_exchange: Scalar
    stage_transfer: Scalar
    gather: Scalar
    weights: Scalar
    gradients: Scalar
    optimizer: Scalar
    activations: Scalar
    activation_gradients: Scalar
    redundant_memory: Scalar
    replicated_compute: Scalar
    bandwidth_time: Scalar
    congestion_time: Scalar
    imbalance: Scalar
    pes_over_limit: Scalar
    structural_limit: Scalar
