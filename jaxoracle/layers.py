"""Shape arithmetic: a network is put together layer by layer and becomes the arrays of `Layers`.

FLOPs are counted as: convolution and dense 2 per multiply-add (biases not), pool one per window item, norm 4 per item,
activation one per item, addition one per item and extra input. Backward is twice forward for weighted layers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from jaxoracle.errors import brief, fail
from jaxoracle.records import ACTIVATION, CONVOLUTION, DENSE, ELEMENTWISE, NORM, PADDING, POOL, Layers

Extent = tuple[int, int, int]

#: no filter count, kernel, stride, padding or dilation is larger
MOST_SIZE = 10**12
#: how many parts of concatenations are kept apart, over all layers
MOST_ENTRIES = 2_000_000
#: no tensor of a sample is larger; guards against hostile shapes
MOST_ITEMS = 1e15


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One sample's tensor: who made it (row index, -1 for the network's input), its channels and extents."""

    source: int
    channels: int
    extent: tuple[int, ...]

    @property
    def items(self) -> int:
        """Number of items of one sample."""
        return self.channels * math.prod(self.extent)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One layer before it becomes a row of arrays."""

    name: str
    kind: int
    inputs: tuple[int, ...]
    forward_flops: float
    input_items: int
    weight_items: int
    channels: int
    output: Tensor
    input_extent: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def weighted(self) -> bool:
        """Whether a strategy may split its weights."""
        return self.kind in (CONVOLUTION, DENSE)


def _each(value: int | Sequence[int], dims: int, what: str, where: str, least: int = 1) -> tuple[int, ...]:
    """`value` once per extent."""
    values = (value,) * dims if isinstance(value, int) else tuple(value)
    whole = all(isinstance(v, int) and not isinstance(v, bool) and least <= v <= MOST_SIZE for v in values)
    if len(values) != dims or not whole:
        several = f", or a list of {dims}" if dims > 1 else ""
        fail(f"{where}: {what} must be a whole number from {least} to {MOST_SIZE:,}{several}; got {brief(value)}.")
    return values


def _three(values: Sequence[int]) -> list[int]:
    return [*values, 1, 1, 1][:3]


class Builder:
    """Puts a network together; every method adds one layer and returns its output.

    Args:
      channels: channels of the input.
      extent: one to three extents of the input; none for a vector.
    """

    def __init__(self, channels: int, extent: Sequence[int] = ()) -> None:
        self.rows: list[Row] = []
        self.input = self._tensor(-1, channels, tuple(extent), "input")

    def _tensor(self, source: int, channels: int, extent: tuple[int, ...], where: str) -> Tensor:
        if any(e < 1 for e in extent):
            fail(f"{where}: its output would have extent {'x'.join(map(str, extent))}; the input is too small for it.")
        tensor = Tensor(source, channels, extent)
        if tensor.items > MOST_ITEMS:
            fail(f"{where}: a tensor of {tensor.items:.3g} items a sample is larger than {MOST_ITEMS:.0e}.")
        return tensor

    def _name(self, name: str | None, kind: str) -> str:
        return name or f"{kind}_{len(self.rows) + 1}"

    def _append(  # noqa: PLR0913  one row has this many facts
        self,
        name: str,
        kind: int,
        inputs: Sequence[Tensor],
        shape: tuple[int, tuple[int, ...]],
        *,
        flops: float,
        weights: int = 0,
        kernel: tuple[int, ...] = (),
        stride: tuple[int, ...] = (),
        read: int | None = None,
    ) -> Tensor:
        output = self._tensor(len(self.rows), *shape, name)
        first = inputs[0]
        self.rows.append(
            Row(
                name=name,
                kind=kind,
                inputs=tuple(t.source for t in inputs),
                forward_flops=float(flops),
                input_items=sum(t.items for t in inputs) if read is None else read,
                weight_items=weights,
                channels=first.channels if kind in (CONVOLUTION, DENSE) else output.channels,
                output=output,
                input_extent=first.extent,
                kernel=kernel,
                stride=stride,
            )
        )
        return output

    def convolution(  # noqa: PLR0913  the operator has this many attributes
        self,
        x: Tensor,
        filters: int,
        kernel: int | Sequence[int],
        *,
        stride: int | Sequence[int] = 1,
        padding: int | str | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        transposed: bool = False,
        name: str | None = None,
    ) -> Tensor:
        """A convolution; `transposed` for its up-sampling counterpart, `padding="same"` for ceil(extent/stride)."""
        name = self._name(name, "convolution")
        dims = len(x.extent)
        if not dims:
            fail(f"{name}: a convolution needs an input with extents; got a vector of {x.channels}.")
        filters, groups = _each(filters, 1, "filters", name)[0], _each(groups, 1, "groups", name)[0]
        if x.channels % groups or filters % groups:
            fail(f"{name}: groups must divide channels and filters; got {groups} of {x.channels} and {filters}.")
        sizes = _each(kernel, dims, "kernel", name)
        steps = _each(stride, dims, "stride", name)
        window = tuple(d * (k - 1) + 1 for k, d in zip(sizes, _each(dilation, dims, "dilation", name), strict=True))
        same = padding == "same"
        pads = (0,) * dims if same else _each(padding, dims, "padding", name, least=0)  # type: ignore[arg-type]
        if transposed:
            extent = tuple(
                e * s if same else (e - 1) * s - 2 * p + w
                for e, s, p, w in zip(x.extent, steps, pads, window, strict=True)
            )
        elif same:
            extent = tuple(-(-e // s) for e, s in zip(x.extent, steps, strict=True))
        else:
            extent = tuple((e + 2 * p - w) // s + 1 for e, s, p, w in zip(x.extent, steps, pads, window, strict=True))
        weights = x.channels // groups * filters * math.prod(sizes)
        return self._append(
            name,
            CONVOLUTION,
            [x],
            (filters, extent),
            flops=2.0 * weights * math.prod(x.extent if transposed else extent),
            weights=weights + (filters if bias else 0),
            kernel=window,
            stride=steps,
        )

    def dense(self, x: Tensor, filters: int, *, bias: bool = True, name: str | None = None) -> Tensor:
        """A fully connected layer on the flattened input."""
        name = self._name(name, "dense")
        filters = _each(filters, 1, "filters", name)[0]
        flat = self.flatten(x)
        return self._append(
            name,
            DENSE,
            [flat],
            (filters, ()),
            flops=2.0 * flat.channels * filters,
            weights=flat.channels * filters + (filters if bias else 0),
        )

    def flatten(self, x: Tensor) -> Tensor:
        """The same items as a vector; no layer."""
        return Tensor(x.source, x.items, ())

    def pool(
        self,
        x: Tensor,
        kernel: int | Sequence[int],
        *,
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        ceil: bool = False,
        name: str | None = None,
    ) -> Tensor:
        """A maximum or average over windows; with `ceil` windows may reach beyond the padded input."""
        name = self._name(name, "pool")
        dims = len(x.extent)
        if not dims:
            fail(f"{name}: a pool needs an input with extents; got a vector of {x.channels}.")
        sizes = _each(kernel, dims, "kernel", name)
        steps = sizes if stride is None else _each(stride, dims, "stride", name)
        pads = _each(padding, dims, "padding", name, least=0)
        extent = []
        for e, k, s, p in zip(x.extent, sizes, steps, pads, strict=True):
            reach = e + 2 * p - k
            count = (-(-reach // s) if ceil else reach // s) + 1
            if ceil and (count - 1) * s >= e + p:
                count -= 1  # the last window must start inside the input
            extent.append(count)
        out = tuple(extent)
        flops = float(x.channels) * math.prod(sizes) * math.prod(out)
        return self._append(name, POOL, [x], (x.channels, out), flops=flops, kernel=sizes, stride=steps)

    def global_pool(self, x: Tensor, *, name: str | None = None) -> Tensor:
        """A pool over all extents."""
        return self.pool(x, x.extent, name=name)

    def adaptive_pool(self, x: Tensor, extent: int, *, name: str | None = None) -> Tensor:
        """A pool to a given extent; no layer where the input has it already."""
        if all(e == extent for e in x.extent):
            return x
        steps = [max(1, e // extent) for e in x.extent]
        sizes = [max(1, e - (extent - 1) * s) for e, s in zip(x.extent, steps, strict=True)]
        return self.pool(x, sizes, stride=steps, name=name)

    def norm(self, x: Tensor, *, affine: bool = True, name: str | None = None) -> Tensor:
        """A normalisation over local statistics, with scale and shift per channel."""
        name = self._name(name, "norm")
        weights = 2 * x.channels if affine else 0
        return self._append(name, NORM, [x], (x.channels, x.extent), flops=4.0 * x.items, weights=weights)

    def activation(self, x: Tensor, *, name: str | None = None) -> Tensor:
        """A pointwise function."""
        name = self._name(name, "activation")
        return self._append(name, ACTIVATION, [x], (x.channels, x.extent), flops=float(x.items))

    def add(self, *xs: Tensor, name: str | None = None) -> Tensor:
        """The sum of tensors of one shape."""
        name = self._name(name, "add")
        if len(xs) < 2 or any((x.channels, x.extent) != (xs[0].channels, xs[0].extent) for x in xs):
            fail(f"{name}: add needs two or more tensors of one shape; got {_shapes(xs)}.")
        flops = float((len(xs) - 1) * xs[0].items)
        return self._append(name, ELEMENTWISE, xs, (xs[0].channels, xs[0].extent), flops=flops)

    def concatenate(self, *xs: Tensor, name: str | None = None) -> Tensor:
        """Tensors side by side along channels, cropped to the smallest extents."""
        name = self._name(name, "concatenate")
        if len(xs) < 2 or len({len(x.extent) for x in xs}) != 1:
            fail(f"{name}: concatenate needs two or more tensors with as many extents; got {_shapes(xs)}.")
        extent = tuple(min(es) for es in zip(*(x.extent for x in xs), strict=True))
        channels = sum(x.channels for x in xs)
        read = channels * math.prod(extent)
        return self._append(name, ELEMENTWISE, xs, (channels, extent), flops=0.0, read=read)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the layers, in order."""
        return tuple(row.name for row in self.rows)

    def layers(self) -> Layers:
        """The arrays.

        Raises:
          OracleError: there is no layer.
        """
        if not self.rows:
            fail("the network must have at least one layer; got none.")
        rows = self.rows
        exchanged, entered = exchanges(rows)

        def column(values: Sequence[float]) -> np.ndarray:
            return np.asarray(values, np.float64)

        def extents(values: Sequence[tuple[int, ...]]) -> np.ndarray:
            return np.asarray([_three(v) for v in values], np.float64)

        weighted = column([row.weighted for row in rows])
        output = column([row.output.items for row in rows])
        flops = column([row.forward_flops for row in rows])
        return Layers(
            forward_flops=flops,
            backward_flops=flops * (1 + weighted),
            input_items=column([row.input_items for row in rows]),
            output_items=output,
            weight_items=column([row.weight_items for row in rows]),
            exchanged_items=column(exchanged),
            entered_items=column(entered),
            reduced_items=output * weighted,
            channels=column([row.channels for row in rows]),
            filters=column([row.output.channels for row in rows]),
            input_extent=extents([row.input_extent for row in rows]),
            output_extent=extents([row.output.extent for row in rows]),
            kernel=extents([row.kernel for row in rows]),
            stride=extents([row.stride for row in rows]),
            kind=column([row.kind for row in rows]),
            weighted=weighted,
        )


def _shapes(xs: Sequence[Tensor]) -> str:
    return " and ".join("x".join(map(str, (x.channels, *x.extent))) for x in xs) or "none"


#: items of a tensor by (weighted layer that is charged for them, row that last changed their values)
Parts = dict[tuple[int, int], float]


def _owned(rows: Sequence[Row], depth: Sequence[int]) -> tuple[list[Parts], set[int]]:
    """For each row's output its parts; and the weighted layers that an addition passed over.

    A sum is charged to one of its weighted ancestors, the deepest (the projection shortcut of a residual block is
    shallower than the main path); a concatenation to each for its part, whose values it does not change.
    """
    owned: list[Parts] = []
    passed_over: set[int] = set()
    entries = 0
    for index, row in enumerate(rows):
        if row.weighted:
            owned.append({(index, index): float(row.output.items)})
            continue
        sources = [(rows[s].output, owned[s]) for s in row.inputs if s >= 0]
        merged: Parts = {}
        if row.kind == ELEMENTWISE and row.forward_flops > 0:
            owners = sorted({owner for _, parts in sources for owner, _ in parts}, key=lambda o: (depth[o], o))
            passed_over.update(owners[:-1])
            merged = {(owners[-1], index): float(row.output.items)} if owners else {}
        else:
            for tensor, parts in sources:
                after, before = math.prod(row.output.extent), math.prod(tensor.extent)
                for (owner, changed), items in parts.items():
                    key = owner, changed if row.kind == ELEMENTWISE else index
                    merged[key] = merged.get(key, 0.0) + items * after / before
        owned.append(merged)
        entries += len(merged)
        if entries > MOST_ENTRIES:
            fail(f"{row.name}: concatenations join too many layers; at most {MOST_ENTRIES:,} in all are kept apart.")
    return owned, passed_over


def exchanges(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    """e_l and n_l of `Layers`: what weighted layers read is exchanged once, forward and backward.

    Of several readers the first in forward order, the last in backward order, completes the gradient.
    """
    depth: list[int] = []
    for row in rows:
        depth.append(max((depth[s] for s in row.inputs if s >= 0), default=0) + row.weighted)
    owned, passed_over = _owned(rows, depth)
    readers: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        if row.weighted and row.inputs[0] >= 0 and owned[row.inputs[0]]:
            readers.setdefault(row.inputs[0], []).append(index)
    exchanged, new = [0.0] * len(rows), dict.fromkeys(readers, 0.0)
    done: Parts = {}
    for tensor in readers:
        for part, items in owned[tensor].items():
            more = max(0.0, items - done.get(part, 0.0))  # a crop of what is there already moves nothing
            done[part] = done.get(part, 0.0) + more
            exchanged[part[0]] += more
            new[tensor] += more
    entered = [0.0] * len(rows)
    for tensor, reading in readers.items():
        main = [r for r in reading if not (r in passed_over and exchanged[r] == 0)] or reading
        entered[main[0]] = new[tensor]
    return exchanged, entered


def padded(layers: Layers, length: int) -> Layers:
    """`layers` filled up to `length` with padding, which has no work, no items and no limits."""
    missing = length - len(layers.kind)
    fill = {"channels": 1e30, "filters": 1e30, "input_extent": 1.0, "output_extent": 1.0, "kernel": 1.0, "stride": 1.0}
    fill["kind"] = float(PADDING)

    def extend(name: str, values: np.ndarray) -> np.ndarray:
        widths = [(0, missing)] + [(0, 0)] * (values.ndim - 1)
        return np.pad(values, widths, constant_values=fill.get(name, 0.0))

    names = [f.name for f in dataclasses.fields(layers)]
    return Layers(**{name: extend(name, np.asarray(getattr(layers, name))) for name in names})
