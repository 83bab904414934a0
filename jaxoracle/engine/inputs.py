"""A sweep's inputs as labelled arrays: each leaf of the records has only the dims that move it."""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache
from typing import Any

import numpy as np
import xarray as xr

from jaxoracle.catalog import DEVICE, LEVEL, Machine
from jaxoracle.engine.axes import levels_of
from jaxoracle.engine.grid import Labelled
from jaxoracle.engine.spec import Sweep
from jaxoracle.errors import fail
from jaxoracle.layers import padded
from jaxoracle.oracle import stage_costs
from jaxoracle.partition import balanced_stages
from jaxoracle.records import Job, Layers, Profile, System
from jaxoracle.strategies import STRATEGIES

#: axes of the scalar program, after the sweep's dims
CORE = ("layer", "extent")
#: no input array is longer
MOST_ENTRIES = 100_000_000


class Inputs:
    """All inputs of a sweep, once; `of(strategy)` picks what a strategy's program takes.

    Attributes:
      order: dims from the outermost to the innermost, without `strategy`.
      sizes: length of each dim.
      context: what totals need besides terms, and the group, as labelled arrays.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.axes = {axis.name: xr.DataArray(axis.values, dims=[axis.name]) for axis in sweep.axes}
        many = len(sweep.machines) > 1
        self.order = ("dnn", *(("system",) if many else ()), *self.axes)
        self.sizes = {"dnn": len(sweep.networks), **{name: a.size for name, a in self.axes.items()}}
        if many:
            self.sizes["system"] = len(sweep.machines)
        shared = [self.sizes.get(name, 1) for name in ("dnn", "pes", "samples_per_pe", "mini_batch", "dataset_size")]
        _check_entries(math.prod(shared))
        self.length = max(len(n.layer_names) for n in sweep.networks)
        self._system = self._systems()
        self._job = self._jobs()
        self._layers = self._networks()
        self._profile = self._profiles()
        pes, batch = self._job["pes"], self._job["samples_per_pe"] * self._job["pes"]
        if "mini_batch" in self.axes or "mini_batch" in sweep.fixed:
            batch = self._given("mini_batch")
        self.context = {
            "mini_batch": batch,
            "iterations": self._job["dataset_size"] / batch,
            "price": self._system["price"],
            "memory_bytes": self._system["memory_bytes"],
            "group": self._job["group"],
            "pes": pes,
            "samples_per_pe": self._job["samples_per_pe"],
        }

    # ---- labelled values of the records --------------------------------------------------------------------------

    def _given(self, name: str) -> xr.DataArray:
        return self.axes[name] if name in self.axes else xr.DataArray(self.sweep.fixed[name])

    def _has(self, name: str) -> bool:
        return name in self.axes or name in self.sweep.fixed

    def _jobs(self) -> dict[str, xr.DataArray]:
        job = {name: self._given(name) for name in ("pes", "bytes_per_item", "reuse", "segments") if self._has(name)}
        job |= {name: self._given(name) for name in ("optimizer_copies", "hierarchical") if self._has(name)}
        if self._has("samples_per_pe"):
            job["samples_per_pe"] = self._given("samples_per_pe")
        else:
            job["samples_per_pe"] = self._given("mini_batch") / job["pes"]
        innermost = self._system["capacity"][0]
        job["group"] = self._given("group") if self._has("group") else np.minimum(innermost, job["pes"])
        if self._has("dataset_size"):
            job["dataset_size"] = self._given("dataset_size")
        else:
            default = [n.dataset_size or Job(pes=1, samples_per_pe=1).dataset_size for n in self.sweep.networks]
            job["dataset_size"] = xr.DataArray(default, dims=["dnn"])
        return job

    def _networks(self) -> dict[str, xr.DataArray]:
        rows = [padded(n.layers, self.length) for n in self.sweep.networks]
        fields = [f.name for f in dataclasses.fields(Layers)]
        return {name: _stack([getattr(row, name) for row in rows], "dnn") for name in fields}

    def _systems(self) -> dict[str, Any]:
        machines = self.sweep.machines
        fields: dict[str, Any] = {}
        for key, (field, _) in DEVICE.items():
            axis = self.axes.get(f"device.{key}")
            values = [axis if axis is not None else xr.DataArray(getattr(m.system, field)) for m in machines]
            fields[field] = self._over_machines(values)
        count = max(len(m.levels) for m in machines)
        for key, (field, _) in LEVEL.items():
            fields[field] = [
                self._over_machines([self._level(machine, key, field, level) for machine in machines])
                for level in range(count)
            ]
        for inner, outer in zip(fields["capacity"], fields["capacity"][1:], strict=False):
            if bool((inner > outer).any()):
                fail("interconnect capacities must grow from the inside out at every point of the sweep; they do not.")
        return fields

    def _level(self, machine: Machine, key: str, field: str, level: int) -> xr.DataArray:
        """One figure of one level; levels beyond a system's outermost repeat it and are never reached."""
        level = min(level, len(machine.levels) - 1)
        for name, axis in self.axes.items():
            if name.endswith(f".{key}") and machine.levels[level] in levels_of(name, machine):
                return 1 / axis if key == "bandwidth" else axis
        return xr.DataArray(getattr(machine.system, field)[level])

    def _over_machines(self, values: list[xr.DataArray]) -> xr.DataArray:
        return values[0] if len(values) == 1 else xr.concat(xr.broadcast(*values), "system")

    def _profiles(self) -> dict[str, xr.DataArray] | None:
        found = self.sweep.profiles
        if not found:
            return None
        shape = (len(self.sweep.networks), len(self.sweep.machines), self.length)
        arrays = {name: np.zeros(shape) for name in ("forward", "backward", "update", "measured")}
        for (network, machine), measured in found.items():
            count = len(self.sweep.networks[network].layer_names)
            for name in ("forward", "backward", "update"):
                arrays[name][network, machine, :count] = getattr(measured.profile, name)
            arrays["measured"][network, machine] = 1.0
        if len(found) == shape[0] * shape[1]:
            del arrays["measured"]
        labelled = {name: xr.DataArray(a, dims=["dnn", "system", "layer"]) for name, a in arrays.items()}
        return labelled if "system" in self.order else {name: a.isel(system=0) for name, a in labelled.items()}

    def _stages(self, parts: xr.DataArray) -> xr.DataArray:
        """Stage of each layer for every network, system and number of stages."""
        _check_entries(parts.size * self.length * len(self.sweep.networks) * len(self.sweep.machines))
        by_machine = []
        for machine in range(len(self.sweep.machines)):
            by_network = []
            for network, entry in enumerate(self.sweep.networks):
                measured = self.sweep.profiles.get((network, machine))
                cost = np.asarray(stage_costs(entry.layers, measured.profile if measured else None), np.float64)
                rows = [_balanced(cost.tobytes(), int(min(p, len(cost)))) for p in parts.values.ravel()]
                padding = [(0, 0), (0, self.length - len(cost))]
                by_network.append(np.pad(np.asarray(rows), padding, mode="edge").reshape(*parts.shape, self.length))
            by_machine.append(np.stack(by_network))
        if "system" not in self.order or all(np.array_equal(by_machine[0], other) for other in by_machine):
            return xr.DataArray(by_machine[0], dims=["dnn", *parts.dims, "layer"])
        return xr.DataArray(np.stack(by_machine), dims=["system", "dnn", *parts.dims, "layer"])

    # ---- trees for the grid ----------------------------------------------------------------------------------------

    def of(self, strategy: str) -> tuple[Layers, Job, System, Profile | None]:
        """The arguments of `oracle.terms` with `Labelled` leaves."""
        kind, job = STRATEGIES[strategy], dict(self._job)
        if kind.staged:
            job["stages"] = self._stages(kind.parts(Job(pes=job["pes"], group=job["group"], samples_per_pe=1)))
        splitting = self.sweep.splitting
        if splitting.layers is not None:
            masks = [np.pad(mask, (0, self.length - len(mask))) for mask in splitting.layers]
            job["split_layers"] = _stack(masks, "dnn")
        if splitting.extents is not None:
            job["split"] = xr.DataArray(np.asarray(splitting.extents), dims=["extent"])
        return (
            Layers(**{name: self.leaf(a) for name, a in self._layers.items()}),
            Job(**{name: self.leaf(a) for name, a in (_defaults() | job).items()}),
            System(
                **{
                    name: tuple(map(self.leaf, a)) if isinstance(a, list) else self.leaf(a)
                    for name, a in self._system.items()
                }
            ),
            None if self._profile is None else Profile(**{name: self.leaf(a) for name, a in self._profile.items()}),
        )

    def leaf(self, array: xr.DataArray) -> Labelled:
        """A labelled array in the sweep's order of dims and precision."""
        dims = tuple(dim for dim in self.order if dim in array.dims)
        core = tuple(dim for dim in CORE if dim in array.dims)
        values = array.transpose(*dims, *core).values
        return Labelled(dims, values.astype(np.float64 if self.sweep.precision == 64 else np.float32))


def _check_entries(count: int) -> None:
    if count > MOST_ENTRIES:
        fail(
            f"the inputs of a sweep must have at most {MOST_ENTRIES:,} entries; got {count:,}. Give axes fewer values."
        )


def _defaults() -> dict[str, xr.DataArray]:
    """Numbers of a job that have a default."""
    default = Job(pes=1, samples_per_pe=1)
    names = ("bytes_per_item", "reuse", "optimizer_copies", "hierarchical")
    return {name: xr.DataArray(getattr(default, name)) for name in names}


def _stack(arrays: list[np.ndarray], dim: str) -> xr.DataArray:
    return xr.DataArray(np.stack([np.asarray(a) for a in arrays]), dims=[dim, *CORE[: np.ndim(arrays[0])]])


@lru_cache(maxsize=100_000)
def _balanced(cost: bytes, stages: int) -> np.ndarray:
    return balanced_stages(np.frombuffer(cost), stages)
