"""Sweep files: what is varied and what is fixed, checked once, in SI.

dnn = ["resnet50", "my.toml"]
system = "abci"
strategy = "all"
[job]
dataset_size = 1281167
[axes]
pes = { powers_of_two = [1, 1024] }
samples_per_pe = [16, 32, 64]
"interconnect.leaf.bandwidth" = { geomspace = ["1 GB/s", "100 GB/s"], num = 32 }
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxoracle.catalog import DEVICE, LEVEL, Machine, Measured, Network, find_dnn, find_profile, find_system
from jaxoracle.errors import brief, fail, known, unknown
from jaxoracle.options import MOST_PES, OPTIMIZERS, Splitting, read_splitting
from jaxoracle.readers.table import Table, read_toml
from jaxoracle.schema import quantity_kind
from jaxoracle.strategies import STRATEGIES
from jaxoracle.units import number, parse

#: numeric fields of a job: name -> must be whole
JOB_FIELDS = {
    "pes": True,
    "group": True,
    "samples_per_pe": False,
    "mini_batch": False,
    "dataset_size": False,
    "segments": True,
    "bytes_per_item": False,
    "reuse": False,
    "optimizer_copies": False,
    "hierarchical": True,
}
ZERO_ALLOWED = ("optimizer_copies", "hierarchical", "latency", "layer_overhead", "price")
MOST = {"efficiency": 1.0, "hierarchical": 1.0, "reuse": 1.0, "pes": MOST_PES, "group": MOST_PES, "segments": MOST_PES}
#: figures of a device that a measured time holds for
MEASURED_WITH = tuple(f"device.{key}" for key in ("peak", "memory_bandwidth", "layer_overhead", "efficiency"))
SEQUENCES = ("powers_of_two", "geomspace", "linspace", "range")
MOST_VALUES = 10_000_000
TOP_KEYS = ("name", "dnn", "system", "strategy", "profile", "precision", "job", "axes")


@dataclasses.dataclass(frozen=True)
class Axis:
    """One axis: its name as dim, its values in SI."""

    name: str
    values: np.ndarray


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A sweep that was read and checked.

    Attributes:
      name: of its store.
      networks: on dim `dnn`.
      machines: on dim `system`.
      profiles: (network, machine) index -> measured times.
      strategies: on dim `strategy`.
      axes: the other dims, in file order.
      fixed: fields of the job that are not varied.
      splitting: choices of layers and extents to split.
      precision: 32 or 64.
      digest: of everything that the numbers depend on.
      file_digest: of the sweep file.
    """

    name: str
    networks: tuple[Network, ...]
    machines: tuple[Machine, ...]
    profiles: dict[tuple[int, int], Measured]
    strategies: tuple[str, ...]
    axes: tuple[Axis, ...]
    fixed: dict[str, float]
    splitting: Splitting
    precision: int
    digest: str
    file_digest: str


def read_sweep(source: str | Path | Mapping[str, Any]) -> Sweep:
    """Read a sweep file, or a mapping with the same keys.

    Raises:
      OracleError: whatever does not fit, with file and key.
    """
    if not isinstance(source, Mapping | str | os.PathLike):
        fail(f"a sweep must be the path of a file or a mapping; got {brief(source)}.")
    if isinstance(source, Mapping):
        values, where, folder = dict(source), "sweep", Path()
        default_name = "sweep"
    else:
        path = Path(source)
        values, where, folder = read_toml(path, "sweep file"), str(path), path.parent
        default_name = path.stem
    top = Table(values, where, TOP_KEYS)
    networks = tuple(find_dnn(name, folder=folder) for name in _names(top, "dnn"))
    machines = tuple(find_system(name, folder=folder) for name in _names(top, "system"))
    _distinct([n.name for n in networks], top.place("dnn"))
    _distinct([m.name for m in machines], top.place("system"))
    axes = tuple(_axis(name, given, f"{where}: axes") for name, given in _axis_table(top).items())
    job = Table(top.raw("job", {}), f"{where}: job", (*JOB_FIELDS, "optimizer", "split_layers", "split"))
    fixed = _fixed(job, {axis.name for axis in axes})
    _check_fields({axis.name for axis in axes} | set(fixed), where)
    for axis in axes:
        _check_levels(axis.name, machines, f"{where}: axes")
    for machine in machines:
        _check_moved_once([axis.name for axis in axes], machine, f"{where}: axes")
    precision = top.raw("precision", 32)
    if isinstance(precision, bool) or precision not in (32, 64):
        fail(f"{top.place('precision')} must be 32 or 64; got {brief(precision)}.")
    return _digested(
        Sweep(
            name=_store_name(top, default_name),
            networks=networks,
            machines=machines,
            profiles=_profiles(top, networks, machines, axes),
            strategies=_strategies(top),
            axes=axes,
            fixed=fixed,
            splitting=read_splitting(
                networks,
                job.raw("split_layers", None),
                job.raw("split", None),
                (job.place("split_layers"), job.place("split")),
                folder,
            ),
            precision=precision,
            digest="",
            file_digest=hashlib.sha256(_bytes(source)).hexdigest(),
        )
    )


def _bytes(source: str | Path | Mapping[str, Any]) -> bytes:
    if isinstance(source, Mapping):
        return json.dumps(dict(source), sort_keys=True, default=str).encode()
    return Path(source).read_bytes()


def _store_name(top: Table, default: str) -> str:
    name: str = top.text("name", default)
    if "/" in name or "\\" in name or name in (".", ".."):
        fail(f"{top.place('name')} must be a plain name; got {brief(name)}.")
    return name


def _names(top: Table, key: str) -> list[str]:
    given = top.raw(key)
    names = [os.fspath(n) if isinstance(n, os.PathLike) else n for n in _listed(given)]
    if not names or any(not isinstance(name, str) for name in names):
        fail(f"{top.place(key)} must be a name or a list of names; got {brief(given)}.")
    return names


def _listed(given: Any) -> list[Any]:
    """A list of what may be one thing; from Python also a tuple, range or array."""
    if isinstance(given, list | tuple | range):
        return list(given)
    return np.ravel(given).tolist() if isinstance(given, np.ndarray) else [given]


def _distinct(names: list[str], place: str) -> None:
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        fail(f"{place} must name each once; {sorted(twice)[0]!r} is there twice.")


def _strategies(top: Table) -> tuple[str, ...]:
    if _listed(top.raw("strategy")) == ["all"]:
        return tuple(STRATEGIES)
    names = _names(top, "strategy")
    for name in names:
        if name not in STRATEGIES:
            unknown("strategy", name, (*STRATEGIES, "all"), top.where)
    _distinct(names, top.place("strategy"))
    return tuple(names)


def _profiles(
    top: Table, networks: tuple[Network, ...], machines: tuple[Machine, ...], axes: tuple[Axis, ...]
) -> dict[Any, Measured]:
    """Shipped profiles; none where the sweep moves a figure of the device that they were measured on."""
    choice = top.raw("profile", "shipped")
    if choice not in ("shipped", "none"):
        fail(f"{top.place('profile')} must be 'shipped' or 'none'; got {brief(choice)}.")
    moved = any(axis.name in MEASURED_WITH for axis in axes)
    spec = None if choice == "shipped" and not moved else "none"
    pairs = [(i, j) for i in range(len(networks)) for j in range(len(machines))]
    found = {(i, j): find_profile(networks[i], machines[j], spec) for i, j in pairs}
    return {pair: measured for pair, measured in found.items() if measured is not None}


# ---- axes ------------------------------------------------------------------------------------------------------------


def _axis_table(top: Table) -> dict[str, Any]:
    axes = top.raw("axes", {})
    if not isinstance(axes, Mapping):
        fail(f"{top.place('axes')} must be a table of axes; got {axes!r}.")
    return dict(axes)


def axis_names(machines: tuple[Machine, ...]) -> list[str]:
    """Every axis that a sweep on these systems may have."""
    levels = dict.fromkeys(level for machine in machines for level in machine.levels)
    return [
        *JOB_FIELDS,
        *(f"device.{key}" for key in DEVICE),
        *(f"interconnect.{level}.{key}" for level in levels for key in LEVEL),
    ]


def _check_levels(name: str, machines: tuple[Machine, ...], where: str) -> None:
    for machine in machines:
        for level in levels_of(name, machine):
            last = level == machine.levels[-1]
            if level not in machine.levels:
                unknown("axis", name, axis_names((machine,)), where)
            if last and name.endswith(".links"):
                fail(f"{where}: {name} has no effect: {level!r} is the outermost level of {machine.name!r}.")


def _check_moved_once(names: list[str], machine: Machine, where: str) -> None:
    """Every figure of a system is moved by one axis at most."""
    movers: dict[tuple[str, str], str] = {}
    for name in names:
        for level in levels_of(name, machine):
            figure = level, name.rpartition(".")[2]
            if figure in movers:
                fail(f"{where}: {figure[1]} of {level!r} must be moved by one axis; got {movers[figure]} and {name}.")
            movers[figure] = name


def levels_of(name: str, machine: Machine) -> tuple[str, ...]:
    """Interconnect levels that an axis such as `interconnect.leaf+rack.bandwidth` moves together; `*` is all."""
    if not name.startswith("interconnect."):
        return ()
    written = name.split(".")[1]
    if written == "*":
        return machine.levels[:-1] if name.endswith(".links") else machine.levels
    return tuple(written.split("+"))


def _axis(name: str, given: Any, where: str) -> Axis:
    parts = name.split(".")
    legal = name in JOB_FIELDS or (parts[0] == "device" and len(parts) == 2 and parts[1] in DEVICE)
    legal = legal or (parts[0] == "interconnect" and len(parts) == 3 and parts[2] in LEVEL)
    if not legal:
        patterns = (*JOB_FIELDS, *(f"device.{k}" for k in DEVICE), *(f"interconnect.LEVEL.{k}" for k in LEVEL))
        unknown("axis", name, patterns, where)
    values = _sequence(name, given, f"{where}: {name}")
    if len(set(values)) != len(values):
        fail(f"{where}: {name} must have each value once; got one twice.")
    return Axis(name, np.asarray(values, np.float64))


def value_of(name: str, given: Any, where: str) -> float:
    """One value of a job's or system's field, in SI.

    Raises:
      OracleError: no number, a unit is missing or wrong, or out of range.
    """
    field = name.rpartition(".")[2]
    if name == "hierarchical" and isinstance(given, bool):
        given = float(given)
    kind = quantity_kind(name) if "." in name else None
    value = parse(given, kind, where) if kind else given
    whole = JOB_FIELDS.get(name, field in ("capacity",))
    return number(value, where, positive=field not in ZERO_ALLOWED, whole=whole, maximum=MOST.get(field, math.inf))


def _sequence(name: str, given: Any, where: str) -> list[float]:
    if isinstance(given, tuple | range | np.ndarray):
        given = _listed(given)
    if isinstance(given, list):
        if not given:
            fail(f"{where} must have at least one value; got none.")
        return [value_of(name, value, where) for value in given]
    if not isinstance(given, Mapping):
        fail(f"{where} must be a list (for one value too), or one of {known(SEQUENCES)}; got {brief(given)}.")
    table = Table(given, where, (*SEQUENCES, "num"))
    kinds = [kind for kind in SEQUENCES if kind in table]
    if len(kinds) != 1:
        fail(f"{where} must have exactly one of {known(SEQUENCES)}; got {known(kinds) or 'none'}.")
    kind = kinds[0]
    ends = table.raw(kind)
    count = 3 if kind == "range" else 2
    if not isinstance(ends, list) or len(ends) != count:
        parts = "start, stop and step" if count == 3 else "start and stop"
        fail(f"{where}: {kind} must be a list of {parts}; got {brief(ends)}.")
    bounds = [value_of(name, end, where) for end in ends]
    if kind in ("geomspace", "linspace"):
        num = int(table.number("num", whole=True, maximum=MOST_VALUES))
        values = getattr(np, kind)(*_rising(bounds, kind, where), num).tolist()
        return [value_of_number(name, value, where) for value in values]
    if "num" in table:
        fail(f"{where}: num has no effect on {kind}. Remove it.")
    return _stepped(kind, bounds, where)


def value_of_number(name: str, value: float, where: str) -> float:
    """A generated value, checked as a written one is."""
    if JOB_FIELDS.get(name, name.endswith(".capacity")) and value != int(value):
        fail(f"{where} must be whole numbers; the spacing gives {value:g}. Use a list, a range or powers_of_two.")
    return float(value)


def _rising(bounds: list[float], kind: str, where: str) -> list[float]:
    if bounds[0] > bounds[1] or (kind == "geomspace" and bounds[0] <= 0):
        fail(f"{where}: {kind} must go from a positive start up to stop; got {bounds[0]:g} and {bounds[1]:g}.")
    return bounds


def _stepped(kind: str, bounds: list[float], where: str) -> list[float]:
    start, stop = _rising(bounds[:2], kind, where)
    if kind == "range":
        if bounds[2] <= 0:
            fail(f"{where}: the step of a range must be positive; got {bounds[2]:g}.")
        steps = (stop - start) / bounds[2] * (1 + 1e-12)
        if steps >= MOST_VALUES:
            fail(f"{where}: range must have at most {MOST_VALUES} values; got {steps:.3g}.")
        count = math.floor(steps) + 1
        return [start + i * bounds[2] for i in range(count)]
    powers = [2.0**i for i in range(1024) if start <= 2.0**i <= stop]
    if not powers:
        fail(f"{where}: no power of two lies between {start:g} and {stop:g}.")
    return powers


# ---- the job ---------------------------------------------------------------------------------------------------------


def _fixed(job: Table, varied: set[str]) -> dict[str, float]:
    fixed = {}
    for name in JOB_FIELDS:
        if name not in job:
            continue
        if name in varied:
            fail(f"{job.place(name)} is an axis too. Give it once.")
        fixed[name] = value_of(name, job.raw(name), job.place(name))
    optimizer = job.raw("optimizer", None)
    if optimizer is not None:
        if not isinstance(optimizer, str) or optimizer not in OPTIMIZERS:
            unknown("optimizer", optimizer, OPTIMIZERS, job.where)
        if "optimizer_copies" in fixed or "optimizer_copies" in varied:
            fail(f"{job.where}: optimizer and optimizer_copies mean the same. Give one.")
        fixed["optimizer_copies"] = OPTIMIZERS[optimizer]
    return fixed


def _check_fields(given: set[str], where: str) -> None:
    if "pes" not in given:
        fail(f"{where}: pes is missing. Give it in [axes] or [job].")
    batches = {"samples_per_pe", "mini_batch"} & given
    if len(batches) != 1:
        what = "one is missing" if not batches else "got both"
        fail(f"{where} must have samples_per_pe (weak scaling) or mini_batch (strong scaling); {what}.")


# ---- identity --------------------------------------------------------------------------------------------------------


def _digested(sweep: Sweep) -> Sweep:
    """The sweep with a digest of all numbers that enter: a changed network or system file is another sweep."""
    import jaxoracle

    state = hashlib.sha256()

    def add(*parts: object) -> None:
        for part in parts:
            data = (
                np.ascontiguousarray(part, np.float64).tobytes()
                if isinstance(part, np.ndarray)
                else repr(part).encode()
            )
            state.update(f"{len(data)}:".encode() + data)

    def add_record(record: Any) -> None:
        for field in dataclasses.fields(record):
            value = getattr(record, field.name)
            add(field.name, None if value is None else np.asarray(value, np.float64))

    add(jaxoracle.__version__, sweep.strategies, sorted(sweep.fixed.items()), sweep.precision, sweep.splitting.key)
    for axis in sweep.axes:
        add(axis.name, axis.values)
    for network in sweep.networks:
        add(network.name, network.dataset_size)
        add_record(network.layers)
    for machine in sweep.machines:
        add(machine.name, machine.levels)
        add_record(machine.system)
    for pair, measured in sorted(sweep.profiles.items()):
        add(pair)
        add_record(measured.profile)
    return dataclasses.replace(sweep, digest=state.hexdigest())
