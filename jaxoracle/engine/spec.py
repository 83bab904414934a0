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
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxoracle.catalog import Machine, Measured, Network, find_dnn, find_profile, find_system
from jaxoracle.engine.axes import JOB_FIELDS, Axis, check_levels, check_moved_once, listed, read_axis, value_of
from jaxoracle.engine.packing import COMPRESSIONS, MOST_BITS, Packing
from jaxoracle.errors import brief, fail, unknown
from jaxoracle.options import OPTIMIZERS, Splitting, read_splitting
from jaxoracle.readers.table import Table, read_toml
from jaxoracle.strategies import STRATEGIES

#: figures of a device that a measured time holds for
MEASURED_WITH = tuple(f"device.{key}" for key in ("peak", "memory_bandwidth", "layer_overhead", "efficiency"))
TOP_KEYS = ("name", "dnn", "system", "strategy", "profile", "precision", "store", "job", "axes")


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
      packing: how chunks are packed.
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
    packing: Packing
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
    axes = tuple(read_axis(name, given, f"{where}: axes") for name, given in _axis_table(top).items())
    job = Table(top.raw("job", {}), f"{where}: job", (*JOB_FIELDS, "optimizer", "split_layers", "split"))
    fixed = _fixed(job, {axis.name for axis in axes})
    _check_fields({axis.name for axis in axes} | set(fixed), where)
    for axis in axes:
        check_levels(axis.name, machines, f"{where}: axes")
    for machine in machines:
        check_moved_once([axis.name for axis in axes], machine, f"{where}: axes")
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
            packing=_packing(top),
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
    names = [os.fspath(n) if isinstance(n, os.PathLike) else n for n in listed(given)]
    if not names or any(not isinstance(name, str) for name in names):
        fail(f"{top.place(key)} must be a name or a list of names; got {brief(given)}.")
    return names


def _distinct(names: list[str], place: str) -> None:
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        fail(f"{place} must name each once; {sorted(twice)[0]!r} is there twice.")


def _strategies(top: Table) -> tuple[str, ...]:
    if listed(top.raw("strategy")) == ["all"]:
        return tuple(STRATEGIES)
    names = _names(top, "strategy")
    for name in names:
        if name not in STRATEGIES:
            unknown("strategy", name, (*STRATEGIES, "all"), top.where)
    _distinct(names, top.place("strategy"))
    return tuple(names)


def _packing(top: Table) -> Packing:
    """The `[store]` table: `compression` is lz4, zstd or none; `bits` of the mantissa are kept, all if not given."""
    table = Table(top.raw("store", {}), top.place("store"), ("compression", "bits"))
    compression = table.raw("compression", "lz4")
    if not isinstance(compression, str) or compression not in COMPRESSIONS:
        unknown("compression", compression, COMPRESSIONS, table.where)
    bits = table.number("bits", None, whole=True, maximum=MOST_BITS)
    return Packing(compression, None if bits is None else int(bits))


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
    add(sweep.packing)
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
