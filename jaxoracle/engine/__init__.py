"""Sweeps: read a file, evaluate its grid, land it in a store, open it again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from jaxoracle.engine.run import MOST_FORMED, Progress, cache_programs, cells, form, run, silent
from jaxoracle.engine.spec import Sweep, read_sweep
from jaxoracle.engine.store import landing, read, stored_digest, write
from jaxoracle.errors import OracleError, brief, fail, known, unknown
from jaxoracle.projection import FINDINGS, TOTALS
from jaxoracle.schema import describe
from jaxoracle.units import show

__all__ = ["Sweep", "land", "open", "read", "read_sweep", "summary", "sweep"]


def land(spec: Sweep, store: Path, *, overwrite: bool = False, progress: Progress = silent) -> xr.Dataset | None:
    """Run a sweep and write it to `store`; None if the same sweep is there already.

    With `overwrite` it is run again, which repairs a damaged store.

    Raises:
      OracleError: another sweep or something else is there, or it cannot be written.
    """
    held = stored_digest(store)
    if held == spec.digest and not overwrite:
        return None
    if held is not None and not overwrite:
        fail(f"{store} holds another sweep. Replace it with --overwrite (overwrite=True), or choose another place.")
    cache_programs()
    with landing(store, replace=overwrite) as folder:
        dataset = run(spec, progress)
        write(dataset, folder)
    return dataset


def sweep(
    source: str | Path | Mapping[str, Any], store: str | Path | None = None, *, overwrite: bool = False
) -> xr.Dataset:
    """Run a sweep file, or a mapping with the same keys, and return its dataset with totals formed.

    Args:
      source: path of a sweep file, or its content.
      store: where to land it as zarr; None: in memory only.
      overwrite: replace another sweep's store.

    Raises:
      OracleError: whatever does not fit.
    """
    spec = read_sweep(source)
    if store is not None:
        land(spec, Path(store), overwrite=overwrite)
        return open(store)
    cache_programs()
    return with_totals(run(spec))


def open(store: str | Path, *, method: str | None = None, **selection: Any) -> xr.Dataset:
    """A store's dataset with every total and finding, formed from stored terms where they are not stored.

    Args:
      store: path of the store.
      method: "nearest" to select numbers that are near enough; names are always exact.
      selection: labels to select first, as in `xarray.Dataset.sel`, such as `strategy="data"`.

    Raises:
      OracleError: no sweep's store is there, a label is not in it, or its totals do not fit memory.
    """
    dataset = read(store)
    for dim in selection:
        if dim not in dataset.sizes:
            unknown("dim", dim, map(str, dataset.sizes), str(store))
    try:
        for dim, labels in selection.items():
            exact = dataset[dim].dtype.kind == "O"
            dataset = dataset.sel({dim: labels}, method=None if exact else method)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        values = known(map(str, dataset[dim].values[:20]))
        message = (
            f"{store}: {dim} must be among {values}; got {brief(labels)}. Numbers may be near with method='nearest'."
        )
        raise OracleError(message) from error
    return with_totals(dataset)


def with_totals(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset with every total and finding; lazily where its terms are lazy.

    Raises:
      OracleError: they do not fit memory.
    """
    lazy = any(variable.chunks is not None for variable in dataset.variables.values())
    if not lazy and cells(dataset) > MOST_FORMED:
        fail(
            f"totals of {cells(dataset):,} points must be formed in parts; at most {MOST_FORMED:,} are formed at once. "
            "Land the sweep in a store and open a part, as in jaxoracle.open(store, strategy='data'), or install dask."
        )
    return describe(dataset.assign(form(dataset, (*TOTALS, *FINDINGS))))


def summary(dataset: xr.Dataset, store: Path, *, new: bool) -> str:
    """What a store holds, for people."""
    size = sum(path.stat().st_size for path in Path(store).rglob("*") if path.is_file())
    dims = " x ".join(f"{dim} {length}" for dim, length in dataset.sizes.items())
    state = "written" if new else "complete already, nothing to do"
    return f"{state}: {dims} = {cells(dataset):,} points, {show(size, 'B')} in {store}"
