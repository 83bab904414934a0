"""Run a sweep: compile one program a strategy, evaluate the grid, form totals, make a dataset."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr

import jaxoracle
from jaxoracle.engine.grid import Program, plan_grid
from jaxoracle.engine.inputs import Inputs
from jaxoracle.engine.spec import Sweep
from jaxoracle.errors import fail
from jaxoracle.oracle import serial_time, terms
from jaxoracle.projection import FINDINGS, TOTALS
from jaxoracle.records import Terms
from jaxoracle.schema import FLAGS, describe
from jaxoracle.units import show

TERMS = tuple(field.name for field in dataclasses.fields(Terms))
#: totals that are stored when they are small, so that a bare `xr.open_zarr` has them
STORED_TOTALS = ("iteration_time", "epoch_time", "memory", "feasible", "limit", "bottleneck")
#: up to this size [byte]
SMALL = 256 * 10**6
#: points whose totals are all formed in memory on opening
MOST_FORMED = 25_000_000
#: no sweep's terms are larger [byte]; as much again is needed to put strategies together
MOST_BYTES = 4 * 10**9

#: the program of `serial_time`, beside the strategies'
SERIAL = "serial reference"

Progress = Callable[[str, int, int], None]


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""


def cache_programs() -> None:
    """Keep compiled programs in the user's cache directory, unless the user has set JAX's own cache."""
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = home / "jaxoracle" / "programs"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return  # no place for a cache: slower, not wrong
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@contextmanager
def precise(bits: int) -> Iterator[None]:
    """JAX's precision within the block; never for the whole process."""
    with jax.enable_x64(True) if bits == 64 else nullcontext():
        yield


class View:
    """A dataset as `projection` reads terms: by attribute."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    def __getattr__(self, name: str) -> Any:
        return self._dataset[name]


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """Outputs of one program on its grid."""

    dims: tuple[tuple[str, ...], ...]
    arrays: list[np.ndarray]


def _evaluate(sweep: Sweep, inputs: Inputs, progress: Progress) -> dict[str, Evaluated]:
    """Trace one program after the other; compile and run them in two threads (tracing holds the interpreter)."""
    names = [*sweep.strategies, SERIAL]
    total = len(names)
    waiting: dict[str, tuple[Program, Future[list[np.ndarray]]]] = {}
    with ThreadPoolExecutor(2) as pool:
        size = 0.0
        for name in names:
            program = _program(name, inputs)
            size += program.cells * sweep.precision / 8
            _check_size(size)
            waiting[name] = program, pool.submit(_compile_and_run, program, sweep.precision)
        results = {}
        for done, (name, (program, future)) in enumerate(waiting.items(), 1):
            results[name] = Evaluated(program.dims, future.result())
            progress("evaluating", done, total)
    return results


def _program(name: str, inputs: Inputs) -> Program:
    if name == SERIAL:
        return plan_grid(serial_time, inputs.of("serial"), inputs.order, inputs.sizes)
    return plan_grid(partial(terms, name), inputs.of(name), inputs.order, inputs.sizes)


def _compile_and_run(program: Program, precision: int) -> list[np.ndarray]:
    with precise(precision):
        return program.evaluate()


def _check_size(size: float) -> None:
    if size > MOST_BYTES:
        fail(
            f"the terms of a sweep must fit {show(MOST_BYTES, 'B')} of memory; they take {show(size, 'B')} or more. "
            "Give the axes fewer values, or name fewer strategies."
        )


def _merged(sweep: Sweep, inputs: Inputs, results: dict[str, Evaluated]) -> dict[str, xr.Variable]:
    """Each term over strategies: the union of their dims."""
    merged: dict[str, xr.Variable] = {}
    total = 0.0
    for index, name in enumerate(TERMS):
        union = {dim for strategy in sweep.strategies for dim in results[strategy].dims[index]}
        dims = tuple(dim for dim in inputs.order if dim in union)
        shape = tuple(inputs.sizes[dim] for dim in dims)
        total += len(sweep.strategies) * math.prod(shape) * sweep.precision / 8
        _check_size(total)
        dtype = np.int8 if name in FLAGS else results[sweep.strategies[0]].arrays[index].dtype
        values = np.empty((len(sweep.strategies), *shape), dtype)
        for position, strategy in enumerate(sweep.strategies):
            own = results[strategy].dims[index]
            values[position] = (
                results[strategy].arrays[index].reshape([inputs.sizes[d] if d in own else 1 for d in dims])
            )
        merged[name] = xr.Variable(("strategy", *dims), values)
    return merged


def _whole(values: np.ndarray) -> np.ndarray:
    """As integers where all are whole, for people who read coordinates."""
    exact = np.all(np.isfinite(values)) and np.all(values == np.floor(values)) and np.all(np.abs(values) < 2**53)
    return values.astype(np.int64) if exact else values


def run(sweep: Sweep, progress: Progress = silent) -> xr.Dataset:
    """The whole sweep in memory: terms on their natural dims, totals where they are small.

    Raises:
      OracleError: the grid does not fit memory.
    """
    inputs = Inputs(sweep)
    with precise(sweep.precision):
        results = _evaluate(sweep, inputs, progress)
    dtype = np.float64 if sweep.precision == 64 else np.float32
    reference = results[SERIAL]
    data: dict[str, Any] = dict(_merged(sweep, inputs, results))
    data["serial_time"] = xr.Variable(reference.dims[0], reference.arrays[0])
    coords: dict[str, Any] = {
        "strategy": np.asarray(sweep.strategies, object),
        "dnn": np.asarray([n.name for n in sweep.networks], object),
        **{axis.name: _whole(axis.values) for axis in sweep.axes},
    }
    systems = [m.name for m in sweep.machines]
    coords["system"] = np.asarray(systems if len(systems) > 1 else systems[0], object)
    for name, value in inputs.context.items():
        if name not in coords:
            ordered = value.transpose(*(d for d in inputs.order if d in value.dims))
            data[name] = xr.Variable(ordered.dims, ordered.values.astype(dtype))
    dataset = xr.Dataset(data, coords)
    if cells(dataset) * sweep.precision / 8 <= SMALL:
        dataset = dataset.assign(form(dataset, STORED_TOTALS))
    dataset.attrs = provenance(sweep)
    return describe(dataset)


def cells(dataset: xr.Dataset) -> int:
    """Design points: strategies times grid points."""
    return math.prod(int(size) for size in dataset.sizes.values())


def form(dataset: xr.Dataset, names: Iterable[str]) -> dict[str, xr.DataArray]:
    """Totals and findings from stored terms, by the same definitions as `project`."""
    view, formed = View(dataset), {}
    with np.errstate(invalid="ignore", divide="ignore"):
        for name in names:
            if name not in dataset:
                value = (TOTALS | FINDINGS)[name](view)
                formed[name] = value.transpose(*(d for d in dataset.dims if d in value.dims))
    for name in FLAGS:
        if name in formed:
            formed[name] = formed[name].astype(np.int8)
    return formed


def provenance(sweep: Sweep) -> dict[str, Any]:
    """Where every number comes from; no time, no host: a re-run writes the same bytes."""
    attrs: dict[str, Any] = {
        "Conventions": "CF-1.11",
        "title": sweep.name,
        "source": f"jaxoracle {jaxoracle.__version__}, jax {jax.__version__}",
        "references": "Kahira et al., HPDC'21, arXiv 2104.09075",
        "git_commit": _commit(),
        "sweep_digest": sweep.digest,
        "sweep_file_sha256": sweep.file_digest,
        "precision": sweep.precision,
    }
    for network in sweep.networks:
        attrs[f"source of dnn {network.name}"] = network.source
    for machine in sweep.machines:
        attrs[f"source of system {machine.name}"] = machine.source
    for (i, j), measured in sorted(sweep.profiles.items()):
        pair = f"{sweep.networks[i].name} on {sweep.machines[j].name}"
        attrs[f"profile of {pair}"] = f"{measured.description}: {measured.source}"
    for network in sweep.networks:
        for machine in sweep.machines:
            attrs.setdefault(f"profile of {network.name} on {machine.name}", "none: roofline")
    return attrs


def _commit() -> str:
    """Commit of the checkout that the package runs from; "unknown" where it is installed without one."""
    git = Path(jaxoracle.__file__).parents[1] / ".git"
    try:
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        loose = git / head[5:]
        if loose.exists():
            return loose.read_text().strip()
        packed = (git / "packed-refs").read_text().splitlines()
        return next(line.split()[0] for line in packed if line.endswith(head[5:]))
    except (OSError, StopIteration):
        return "unknown"
