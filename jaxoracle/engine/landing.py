"""Land a sweep: evaluate what a store lacks, region by region, and write while the next one is evaluated."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import xarray as xr

from jaxoracle.engine.dataset import provenance
from jaxoracle.engine.layout import MEMORY, Region, region_bytes
from jaxoracle.engine.packing import Packing
from jaxoracle.engine.programs import cache_programs
from jaxoracle.engine.spec import Sweep
from jaxoracle.engine.store import PARTIAL, Store, key, packed, read
from jaxoracle.engine.terms import Grid, Value, merged
from jaxoracle.errors import OracleError, fail
from jaxoracle.schema import describe
from jaxoracle.units import show

#: regions done, regions in all, design points in all
Progress = Callable[[int, int, float], None]
#: no sweep in memory is larger [byte]
MOST_BYTES = 4 * 10**9
#: what is written takes at least this part of its size in memory [1/1]
BEST_COMPRESSION = 1 / 8
#: attribute of a store: bytes by which its regions were laid out
LAID_OUT = "region_bytes"


def silent(done: int, total: int, points: float) -> None:
    """Report nothing."""


def prepared(sweep: Sweep, most: int) -> Grid:
    """The engine of a sweep."""
    return Grid(sweep, most)


def template(engine: Grid, most: int) -> xr.Dataset:
    """Coordinates and attributes of the whole sweep."""
    attrs = provenance(engine.sweep) | {LAID_OUT: most, "status": PARTIAL}
    return describe(xr.Dataset(coords=engine.coordinates, attrs=attrs))


def land(
    sweep: Sweep,
    place: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    memory: float = MEMORY,
    progress: Progress = silent,
) -> xr.Dataset | None:
    """Run a sweep and write it to `place`, or what is missing there; None if nothing is.

    Args:
      sweep: what to run.
      place: path or URL of the store.
      overwrite: remove the store that is there, also another sweep's, and run the whole.
      memory: bound on the memory of the process [byte].
      progress: is told after every region.

    Raises:
      OracleError: another sweep or something else is there, or it cannot be written; what is complete stays.
    """
    store = Store(place)
    most = region_bytes(memory)
    root = store.root()
    if root is not None and not overwrite:
        if root["attributes"]["sweep_digest"] != sweep.digest:
            fail(f"{place} holds another sweep. Replace it with --overwrite (overwrite=True), or choose another place.")
        lacking, _ = store.missing(root)
        if not lacking and root["attributes"].get("status") != PARTIAL:
            return None
        most = _laid_out(root, most, memory, place)
    cache_programs()
    with store.writing(), _one_line(place):
        _run(prepared(sweep, most), store, most, replace=overwrite, progress=progress)
    return read(place)


def _laid_out(root: Any, most: int, memory: float, place: Any) -> int:
    """Region size of a store that was begun; chunks must not change."""
    begun = int(root["attributes"].get(LAID_OUT, most))
    if begun > most:
        fail(
            f"{place} was begun with regions of {show(begun, 'B')}, too large for {show(memory, 'B')} of memory. "
            "Give as much memory as before, or start again with --overwrite."
        )
    return begun


def _run(engine: Grid, store: Store, most: int, *, replace: bool, progress: Progress) -> None:
    """Evaluate and write all regions that lack a chunk; the template appears with the first."""
    regions: Sequence[Region] = engine.regions
    packing = engine.sweep.packing
    root = None if replace else store.root()
    if root is not None:
        lacking, _ = store.missing(root)
        regions = [region for region in regions if _keys(engine, region, packing) & lacking]
    else:
        _check_room(engine, store)
    done = len(engine.regions) - len(regions)
    progress(done, len(engine.regions), engine.points)
    with ThreadPoolExecutor(2) as pool:
        writing: list[Future[None]] = []
        try:
            for region in regions:
                values = engine.evaluate(region)
                if root is None:
                    _create(engine, store, most, packing, replace=replace)
                    root = {}
                _wait(writing)
                writing = [
                    pool.submit(_write, store, name, pack) for name, pack in packs(engine, region, values, packing)
                ]
                done += 1
                progress(done, len(engine.regions), engine.points)
            _wait(writing)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    store.finish()


def _check_room(engine: Grid, store: Store) -> None:
    size = sum(variable.size for variable in engine.variables.values())
    if size * BEST_COMPRESSION > store.room():
        fail(
            f"{store.place} must have room for the sweep, {show(size, 'B')} before compression; "
            f"{show(store.room(), 'B')} are free. Give axes fewer values, or choose another place."
        )


def _create(engine: Grid, store: Store, most: int, packing: Packing, *, replace: bool) -> None:
    held = store.root()
    if held is not None and not replace:
        fail(f"{store.place} was made by another run meanwhile. It was left as it is.")
    if held is not None:
        store.remove()
    store.create(engine.variables, engine.regions, template(engine, most), packing)


def _keys(engine: Grid, region: Region, packing: Packing) -> set[str]:
    nothing = np.empty(0)
    return {name for v in region.names for name, _ in packed(engine.variables[v], nothing, region, packing)}


def packs(
    engine: Grid, region: Region, values: dict[str, Value], packing: Packing
) -> Iterator[tuple[str, Callable[[], Any]]]:
    for name in region.names:
        yield from packed(engine.variables[name], values[name], region, packing)


def _write(store: Store, name: str, pack: Callable[[], Any]) -> None:
    store.write(name, pack())


def _wait(futures: list[Future[None]]) -> None:
    for future in futures:
        future.result()


@contextmanager
def _one_line(place: Any) -> Iterator[None]:
    """What goes wrong with the place in one line."""
    try:
        yield
    except FileNotFoundError as error:
        message = f"{place} was removed while the sweep ran. Run it again."
        raise OracleError(message) from error
    except OSError as error:
        reason = error.strerror or error
        message = (
            f"{place} could not be written: {reason}. What is complete stays; the same command goes on from there."
        )
        raise OracleError(message) from error


def in_memory(sweep: Sweep, progress: Progress = silent) -> xr.Dataset:
    """The whole sweep in memory.

    Raises:
      OracleError: it does not fit.
    """
    cache_programs()
    most = region_bytes(MEMORY)
    engine = prepared(sweep, most)
    size = sum(variable.size for variable in engine.variables.values())
    if size > MOST_BYTES:
        fail(
            f"a sweep in memory must be at most {show(MOST_BYTES, 'B')}; it takes {show(size, 'B')}. Land it in a "
            "store, give the axes fewer values, or reduce it."
        )
    arrays = {name: np.empty(v.shape, v.dtype) for name, v in engine.variables.items()}
    for done, region in enumerate(engine.regions):
        progress(done, len(engine.regions), engine.points)
        for name, value in engine.evaluate(region).items():
            place = region.selection(engine.variables[name])
            arrays[name][place] = merged(value, [part.stop - part.start for part in place])
    data = {name: (engine.variables[name].dims, array) for name, array in arrays.items()}
    return describe(xr.Dataset(data, engine.coordinates, provenance(sweep)))


__all__ = ["Progress", "in_memory", "key", "land", "silent"]
