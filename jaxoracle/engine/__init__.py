"""Sweeps: read a file, evaluate its grid, land it in a store, open it again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from jaxoracle.engine.dataset import with_totals
from jaxoracle.engine.landing import in_memory, land
from jaxoracle.engine.layout import MEMORY
from jaxoracle.engine.spec import Sweep, read_sweep
from jaxoracle.engine.store import read
from jaxoracle.errors import OracleError, brief, known, unknown

__all__ = ["Sweep", "land", "open", "read", "read_sweep", "sweep"]


def sweep(
    source: str | Path | Mapping[str, Any],
    store: str | os.PathLike[str] | None = None,
    *,
    overwrite: bool = False,
    memory: float = MEMORY,
) -> xr.Dataset:
    """Run a sweep file, or a mapping with the same keys, and return its dataset with totals formed.

    Args:
      source: path of a sweep file, or its content.
      store: path or URL where to land it as zarr, or to go on where a run was interrupted; None: in memory only.
      overwrite: replace another sweep's store.
      memory: bound on the memory of the process while it lands [byte].

    Raises:
      OracleError: whatever does not fit.
    """
    spec = read_sweep(source)
    if store is None:
        return with_totals(in_memory(spec))
    land(spec, store, overwrite=overwrite, memory=memory)
    return open(store)


def open(store: str | os.PathLike[str], *, method: str | None = None, **selection: Any) -> xr.Dataset:
    """A store's dataset with every total and finding, formed from stored terms where they are not stored.

    Args:
      store: path or URL of the store.
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
