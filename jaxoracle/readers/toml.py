"""A network as a TOML file of layers; shapes are inferred from one layer to the next.

    name = "tiny"
    input = [3, 224, 224]          # channels, then extents
    dataset_size = 50000           # optional
    [[layer]]
    kind = "convolution"           # a key of KINDS
    filters = 64
    kernel = 7

A layer reads the one before it, or the layers that `from` names ("input" is the network's input).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxoracle.errors import OracleError, brief, fail, unknown
from jaxoracle.layers import MOST_SIZE, Builder, Tensor
from jaxoracle.readers.table import Table, read_toml

#: no network has more layers
MOST_LAYERS = 100_000


@dataclasses.dataclass(frozen=True)
class Kind:
    """How one kind of layer is read: its keys and what it adds; `several` inputs or one."""

    keys: tuple[str, ...]
    add: Callable[[Builder, list[Tensor], Table, str | None], Tensor]
    several: bool = False


def _sizes(table: Table, key: str, default: Any) -> Any:
    value = table.raw(key, default)
    listed = value if isinstance(value, list) else [value]
    if value is not default and any(isinstance(v, bool) or not isinstance(v, int) for v in listed):
        fail(f"{table.place(key)} must be a whole number, or a list of one per extent; got {brief(value)}.")
    return value


def _required(table: Table, key: str) -> Any:
    table.raw(key)
    return _sizes(table, key, None)


def _convolution(net: Builder, xs: list[Tensor], table: Table, name: str | None) -> Tensor:
    padding = "same" if table.raw("padding", 0) == "same" else _sizes(table, "padding", 0)
    return net.convolution(
        xs[0],
        _required(table, "filters"),
        _required(table, "kernel"),
        stride=_sizes(table, "stride", 1),
        padding=padding,
        dilation=_sizes(table, "dilation", 1),
        groups=_sizes(table, "groups", 1),
        bias=table.flag("bias", True),
        transposed=table.flag("transposed", False),
        name=name,
    )


def _dense(net: Builder, xs: list[Tensor], table: Table, name: str | None) -> Tensor:
    spelled = [key for key in ("filters", "units", "out_features") if key in table]
    if len(spelled) > 1:
        fail(f"{table.where}: filters and {spelled[1]} mean the same. Give one.")
    filters = _required(table, spelled[0] if spelled else "filters")
    return net.dense(xs[0], filters, bias=table.flag("bias", True), name=name)


def _pool(net: Builder, xs: list[Tensor], table: Table, name: str | None) -> Tensor:
    if table.flag("global", False):
        for key in ("kernel", "stride", "padding", "ceil"):
            if key in table:
                fail(f"{table.place(key)} has no effect on a global pool. Remove it.")
        return net.global_pool(xs[0], name=name)
    return net.pool(
        xs[0],
        _required(table, "kernel"),
        stride=_sizes(table, "stride", None),
        padding=_sizes(table, "padding", 0),
        ceil=table.flag("ceil", False),
        name=name,
    )


KINDS: dict[str, Kind] = {
    "convolution": Kind(
        ("filters", "kernel", "stride", "padding", "dilation", "groups", "bias", "transposed"), _convolution
    ),
    "dense": Kind(("filters", "units", "out_features", "bias"), _dense),
    "pool": Kind(("kernel", "stride", "padding", "ceil", "global"), _pool),
    "norm": Kind(("affine",), lambda net, xs, t, name: net.norm(xs[0], affine=t.flag("affine", True), name=name)),
    "activation": Kind((), lambda net, xs, t, name: net.activation(xs[0], name=name)),
    "add": Kind((), lambda net, xs, t, name: net.add(*xs, name=name), several=True),
    "concatenate": Kind((), lambda net, xs, t, name: net.concatenate(*xs, name=name), several=True),
    "flatten": Kind((), lambda net, xs, t, name: net.flatten(xs[0])),
    "dropout": Kind((), lambda net, xs, t, name: xs[0]),
    "identity": Kind((), lambda net, xs, t, name: xs[0]),
    "softmax": Kind((), lambda net, xs, t, name: xs[0]),
}


@dataclasses.dataclass(frozen=True)
class NetworkFile:
    """A network file that was read."""

    name: str
    builder: Builder
    dataset_size: float | None
    source: str


def _inputs(entry: Table, last: Tensor, named: dict[str, Tensor], several: bool) -> list[Tensor]:
    given = entry.raw("from", None)
    if given is None:
        if several:
            fail(f"{entry.where}: from is missing; an {entry.raw('kind')} names its inputs. Known: {', '.join(named)}.")
        return [last]
    names = given if isinstance(given, list) else [given]
    for name in names:
        if not isinstance(name, str) or name not in named:
            unknown("layer", name, named, entry.place("from"))
    if not names or (len(names) > 1 and not several):
        fail(f"{entry.place('from')} must name {'layers' if several else 'one layer'}; got {brief(given)}.")
    return [named[name] for name in names]


def read_network(path: Path) -> NetworkFile:
    """A network file.

    Raises:
      OracleError: it is no network file, or its shapes do not fit.
    """
    top = Table(read_toml(path, "network file"), str(path), ("name", "input", "dataset_size", "source", "layer"))
    shape = top.raw("input")
    if (
        not isinstance(shape, list)
        or not 1 <= len(shape) <= 4
        or any(isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MOST_SIZE for n in shape)
    ):
        fail(
            f"{top.place('input')} must be channels and up to three extents such as [3, 224, 224]; got {brief(shape)}."
        )
    entries = top.raw("layer")
    if not isinstance(entries, list) or not 0 < len(entries) <= MOST_LAYERS:
        fail(f"{path}: layer must be a list of 1 to {MOST_LAYERS} [[layer]] tables.")
    try:
        net = Builder(shape[0], shape[1:])
    except OracleError as error:
        fail(f"{path}: {error}")
    last, named = net.input, {"input": net.input}
    for position, values in enumerate(entries, 1):
        last = _add(net, values, f"{path}: layer {position}", last, named)
    if not net.rows:
        fail(f"{path} must have at least one layer besides flatten, dropout, identity and softmax.")
    return NetworkFile(
        name=top.text("name"),
        builder=net,
        dataset_size=top.number("dataset_size", None),
        source=top.text("source", path.name),
    )


def _add(net: Builder, values: Any, where: str, last: Tensor, named: dict[str, Tensor]) -> Tensor:
    kind_name = values.get("kind") if isinstance(values, dict) else None
    if kind_name is None:
        fail(f"{where}: kind is missing. Known: {', '.join(sorted(KINDS))}.")
    if not isinstance(kind_name, str) or kind_name not in KINDS:
        unknown("kind", kind_name, KINDS, where)
    kind = KINDS[kind_name]
    entry = Table(values, where, ("kind", "name", "from", *kind.keys))
    name = entry.text("name", None)
    if name in named:
        fail(f"{entry.place('name')} must be new; {brief(name)} is there already.")
    inputs = _inputs(entry, last, named, kind.several)
    try:
        output = kind.add(net, inputs, entry, name)
    except OracleError as error:
        fail(str(error) if str(error).startswith(where) else f"{where}: {error}")
    if name:
        named[name] = output
    return output
