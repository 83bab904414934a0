"""Networks, systems and profiles by name or by path: the door where files are checked and units become SI."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from jaxoracle.dnns import COSMOFLOW, DNNS, IMAGENET
from jaxoracle.errors import OracleError, brief, fail, unknown
from jaxoracle.layers import Builder
from jaxoracle.readers.published import read_published
from jaxoracle.readers.table import Table, read_toml
from jaxoracle.readers.toml import read_network
from jaxoracle.records import Layers, Profile, System

HOME = Path(__file__).parent
#: no interconnect has more levels
MOST_LEVELS = 16

#: device fields of a system file: key -> (record field, kind of quantity; None is a plain number)
DEVICE = {
    "peak": ("peak_flops", "compute"),
    "memory_bandwidth": ("memory_bandwidth", "bandwidth"),
    "memory": ("memory_bytes", "memory"),
    "layer_overhead": ("layer_overhead", "time"),
    "efficiency": ("efficiency", None),
    "price": ("price", "price"),
}
#: interconnect fields of a system file: key -> (record field, kind of quantity)
LEVEL = {
    "capacity": ("capacity", None),
    "latency": ("alpha", "time"),
    "bandwidth": ("beta", "bandwidth"),
    "links": ("links", None),
}


@dataclasses.dataclass(frozen=True)
class Network:
    """A network and what is known of it.

    Attributes:
      name: as the user wrote it, or as its file says.
      layers: the arrays.
      layer_names: one a layer.
      dataset_size: D of its usual data set [sample]; None: unknown.
      source: where its layers come from.
      shipped: whether it is one of ours at its standard input size, and not a user's file.
    """

    name: str
    layers: Layers
    layer_names: tuple[str, ...]
    dataset_size: float | None
    source: str
    shipped: bool = False


@dataclasses.dataclass(frozen=True)
class Machine:
    """A computer system and what is known of it.

    Attributes:
      name: as its file says.
      system: the numbers.
      levels: names of the interconnect levels, from the inside out.
      device: name of the device.
      source: where the figures come from.
      shipped: whether it is one of ours, and not a user's file.
    """

    name: str
    system: System
    levels: tuple[str, ...]
    device: str
    source: str
    shipped: bool = False


@dataclasses.dataclass(frozen=True)
class Measured:
    """A profile and what is known of it.

    Attributes:
      profile: the numbers.
      name: of its file.
      spread: whether a total was spread over layers by their FLOPs.
      source: who measured it.
    """

    profile: Profile
    name: str
    spread: bool
    source: str

    @property
    def description(self) -> str:
        """One line for people."""
        return f"{self.name} ({'total, spread by FLOPs' if self.spread else 'by layer'})"


# ---- networks --------------------------------------------------------------------------------------------------------


def published_names() -> tuple[str, ...]:
    """The published layer files."""
    return tuple(sorted(path.stem for path in (HOME / "published").glob("*.csv")))


def dnn_names() -> tuple[str, ...]:
    """All networks by name."""
    return (*DNNS, *published_names())


def parse_extent(text: object, dims: int, where: str) -> tuple[int, ...]:
    """`"256"` or `"132x132x116"`: the extents of an input.

    Raises:
      OracleError: it is neither one whole number nor one per extent.
    """
    if not re.fullmatch(r"[1-9]\d{0,8}(x[1-9]\d{0,8})*", str(text)):
        fail(f"{where} must be an input size such as 256 or 256x256; got {brief(text)}.")
    values = tuple(int(n) for n in str(text).split("x"))
    if len(values) not in (1, dims):
        fail(f"{where} must be one number or {dims} of them; got {brief(text)}.")
    return values * dims if len(values) == 1 else values


def _is_path(spec: str, suffix: str) -> bool:
    return spec.endswith(suffix) or "/" in spec or "\\" in spec


def find_dnn(spec: str | os.PathLike[str], input_size: str | None = None, *, folder: Path | None = None) -> Network:
    """A network by name (`resnet50`, at another input size `resnet50@288`) or by the path of its TOML file.

    Args:
      spec: name or path.
      input_size: extents of the input, for networks of the registry.
      folder: where relative paths start; None: the working directory.

    Raises:
      OracleError: unknown name, bad file, or an input size that does not fit.
    """
    spec = os.fspath(spec) if isinstance(spec, os.PathLike) else spec
    if not isinstance(spec, str) or not spec:
        fail(f"a network must be a name or the path of a TOML file; got {brief(spec)}.")
    if _is_path(spec, ".toml"):
        if input_size is not None:
            fail(f"{spec}: an input size is for named networks; a file says its own input.")
        file = read_network((folder or Path()) / spec)
        net = file.builder
        return Network(file.name, net.layers(), net.names, file.dataset_size, file.source)
    name, _, written = spec.partition("@")
    if written and input_size is not None:
        fail(f"{name}: its input size is given twice, {brief(written)} and {brief(input_size)}. Give it once.")
    size = written or input_size
    if name in published_names():
        if size is not None:
            fail(f"{name}: the published layer files have one input size; got {brief(size)}. Leave it out.")
        return _published(name)
    if name not in DNNS:
        unknown("network", name, dnn_names())
    return _registered(name, size)


@cache
def _published(name: str) -> Network:
    layers, names = read_published(HOME / "published" / f"{name}.csv")
    size = COSMOFLOW if "cosmoflow" in name else IMAGENET
    return Network(name, layers, names, float(size), "published layer file of ParaDL (arXiv 2104.09075)", True)


@cache
def _registered(name: str, size: str | None) -> Network:
    entry = DNNS[name]
    extent = entry.extent if size is None else parse_extent(size, len(entry.extent), f"{name}: input size")
    try:
        net = Builder(entry.channels, extent)
        entry.build(net)
    except OracleError as error:
        fail(f"{name} at input size {'x'.join(map(str, extent))}: {error}")
    standard = extent == entry.extent
    label = name if standard else f"{name}@{'x'.join(map(str, extent if len(set(extent)) > 1 else extent[:1]))}"
    return Network(label, net.layers(), net.names, float(entry.dataset_size), entry.source, standard)


# ---- systems ---------------------------------------------------------------------------------------------------------


def system_names() -> tuple[str, ...]:
    """All systems by name."""
    return tuple(sorted(path.stem for path in (HOME / "systems").glob("*.toml")))


def find_system(spec: str | os.PathLike[str], *, folder: Path | None = None) -> Machine:
    """A system by name or by the path of its TOML file.

    Raises:
      OracleError: unknown name or bad file.
    """
    spec = os.fspath(spec) if isinstance(spec, os.PathLike) else spec
    if not isinstance(spec, str) or not spec:
        fail(f"a system must be a name or the path of a TOML file; got {brief(spec)}.")
    if _is_path(spec, ".toml"):
        return read_system((folder or Path()) / spec)
    if spec not in system_names():
        unknown("system", spec, system_names())
    return dataclasses.replace(read_system(HOME / "systems" / f"{spec}.toml"), shipped=True)


def read_system(path: Path) -> Machine:
    """A system file; every figure has a unit and an effect.

    Raises:
      OracleError: a key is unknown or missing, a value has no unit or makes no sense.
    """
    top = Table(read_toml(path, "system file"), str(path), ("name", "source", "device", "interconnect"))
    device = Table(top.raw("device"), f"{path}: device", ("name", *DEVICE))
    fields: dict[str, Any] = {}
    for key, (field, kind) in DEVICE.items():
        if key == "price" and key not in device:
            continue
        if kind is None:
            fields[field] = device.number(key, maximum=1.0)
        else:
            fields[field] = device.quantity(key, kind, positive=key not in ("layer_overhead", "price"))
    entries = top.raw("interconnect")
    if not isinstance(entries, list) or not 0 < len(entries) <= MOST_LEVELS:
        fail(f"{path}: interconnect must be 1 to {MOST_LEVELS} [[interconnect]] tables, from the inside out.")
    levels = [_read_level(entry, f"{path}: interconnect {i}") for i, entry in enumerate(entries, 1)]
    names = tuple(name for name, _ in levels)
    for inner, outer in itertools.pairwise(levels):
        if outer[1]["capacity"] <= inner[1]["capacity"]:
            fail(
                f"{path}: capacity must grow from the inside out; {outer[0]!r} holds {outer[1]['capacity']:g} PEs, "
                f"{inner[0]!r} inside it {inner[1]['capacity']:g}."
            )
    if len(set(names)) != len(names):
        fail(f"{path}: level names must differ; got {', '.join(names)}.")
    if math.isfinite(levels[-1][1]["links"]):
        fail(f"{path}: links of {names[-1]!r} lead to a next level, and there is none. Remove it.")
    for field in ("capacity", "alpha", "beta", "links"):
        fields[field] = np.asarray([level[field] for _, level in levels], np.float64)
    return Machine(
        name=top.text("name"),
        system=System(**fields),
        levels=names,
        device=device.text("name"),
        source=top.text("source"),
    )


def _read_level(values: Any, where: str) -> tuple[str, dict[str, float]]:
    table = Table(values, where, ("level", *LEVEL))
    name = table.text("level")
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        fail(f"{table.place('level')} must be letters, digits, - and _; got {brief(name)}.")
    return name, {
        "capacity": table.number("capacity", whole=True),
        "alpha": table.quantity("latency", "time", positive=False),
        "beta": 1 / table.quantity("bandwidth", "bandwidth"),
        "links": table.number("links", math.inf),
    }


# ---- profiles --------------------------------------------------------------------------------------------------------


def find_profile(network: Network, machine: Machine, spec: str | None = None) -> Measured | None:
    """The measured times of a network on a system.

    Args:
      network: the network.
      machine: the system.
      spec: path of a profile file, `"none"` for the roofline, or None for the shipped profile of the pair, if any. A
        shipped profile holds for the shipped network and system, never for a user's file that has their names.

    Raises:
      OracleError: bad file, or one of another network or system.
    """
    if spec == "none":
        return None
    if spec is not None:
        return read_profile(Path(spec), network, machine)
    path = HOME / "profiles" / f"{network.name}__{machine.name}.toml"
    shipped = network.shipped and machine.shipped and path.exists()
    return read_profile(path, network, machine) if shipped else None


def read_profile(path: Path, network: Network, machine: Machine) -> Measured:
    """A profile file: `total` [time/sample], or `forward` and `backward` [time/sample] and `update` by layer.

    Raises:
      OracleError: bad file, or one of another network or system.
    """
    keys = ("dnn", "system", "source", "total", "forward", "backward", "update")
    top = Table(read_toml(path, "profile"), str(path), keys)
    for key, name in (("dnn", network.name), ("system", machine.name)):
        if top.text(key) != name:
            fail(f"{top.place(key)} must be {brief(name)}, what is projected; got {top.text(key)!r}.")
    layers = network.layers
    if "total" in top:
        if "forward" in top or "backward" in top:
            fail(f"{path} must have total, or forward and backward by layer; got both.")
        flops = np.asarray(layers.forward_flops + layers.backward_flops)
        flops = flops if flops.sum() > 0 else np.ones_like(flops)
        times = top.quantity("total", "time") * flops / flops.sum()
        columns = {"forward": times / 3, "backward": 2 * times / 3}
    else:
        columns = {key: _layer_times(top, key, len(network.layer_names)) for key in ("forward", "backward")}
    zero = np.zeros(len(network.layer_names))
    columns["update"] = _layer_times(top, "update", len(zero)) if "update" in top else zero
    return Measured(Profile(**columns), path.name, "total" in top, top.text("source"))


def _layer_times(table: Table, key: str, layers: int) -> np.ndarray:
    from_file = table.raw(key)
    if not isinstance(from_file, list) or len(from_file) != layers:
        given = len(from_file) if isinstance(from_file, list) else repr(from_file)
        fail(f"{table.place(key)} must be a list of {layers} times, one a layer; got {given}.")
    one = [Table({key: value}, table.where, (key,)) for value in from_file]
    return np.asarray([entry.quantity(key, "time", positive=False) for entry in one])


# ---- the records alone, for Python -----------------------------------------------------------------------------------


def dnn(name: str | os.PathLike[str], input_size: str | int | None = None) -> Layers:
    """The layers of a network by name or path; see `find_dnn`.

    Raises:
      OracleError: as `find_dnn`.
    """
    return find_dnn(name, None if input_size is None else str(input_size)).layers


def system(name: str | os.PathLike[str]) -> System:
    """A system by name or path; see `find_system`.

    Raises:
      OracleError: as `find_system`.
    """
    return find_system(name).system


def profile(dnn_name: str, system_name: str, path: str | None = None) -> Profile | None:
    """The measured times of a network on a system, None if none are shipped; see `find_profile`.

    Raises:
      OracleError: as `find_profile`.
    """
    measured = find_profile(find_dnn(dnn_name), find_system(system_name), path)
    return None if measured is None else measured.profile
