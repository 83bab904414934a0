"""A sweep as a zarr store: written beside its place, then moved there, so that what is there is whole.

Format 3 with consolidated metadata and strings as objects opens with a bare `xr.open_zarr`, without a warning.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from jaxoracle.errors import OracleError, fail

#: coordinates that are names; as objects, since operations such as `idxmin` fail on NumPy's strings
TEXTS = ("dnn", "strategy", "system")
#: chunks are at most this long [byte]
CHUNK_BYTES = 8 * 10**6
#: a chunk is one file in its variable's folder
FLAT_KEYS = {"name": "default", "separator": "."}


def stored_digest(store: Path) -> str | None:
    """Digest of the sweep that a store holds; None if nothing is there.

    Raises:
      OracleError: something else is there.
    """
    if not os.path.lexists(store):
        return None
    try:
        attrs = json.loads((store / "zarr.json").read_text("utf-8"))["attributes"]
        return str(attrs["sweep_digest"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    fail(f"{store} must be a sweep's store or not exist; something else is there. Choose another place.")


@contextmanager
def landing(store: Path, *, replace: bool) -> Iterator[Path]:
    """A fresh folder beside `store` that takes its place when the block ends well and is removed when it does not.

    Args:
      store: the place; of a link, where it leads.
      replace: whether another sweep's store that is there in the end may be replaced.

    Raises:
      OracleError: the place cannot be written or was taken meanwhile, or the disk is full.
    """
    store = Path(os.path.realpath(store))
    partial = store.parent / f".{store.name}.{os.getpid()}.partial"
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(store)
        partial.mkdir()
    except OSError as error:
        fail(f"{store} must be a place that can be written: {error.strerror or error}. Choose another.")
    try:
        yield partial
        if stored_digest(store) is not None and not replace:
            fail(f"{store} was made by another run meanwhile. It was left as it is.")
        retired = store.parent / f".{store.name}.{os.getpid()}.old"
        if os.path.lexists(store):
            store.rename(retired)
        partial.rename(store)
        shutil.rmtree(retired, ignore_errors=True)
    except OSError as error:
        message = f"{store} could not be written: {error.strerror or error}. Nothing was left there."
        raise OracleError(message) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _remove_leftovers(store: Path) -> None:
    """Folders of killed runs, whose process is gone."""
    for path in store.parent.iterdir():
        match = re.fullmatch(re.escape(f".{store.name}.") + r"(\d+)\.(partial|old)", path.name)
        if match and (int(match[1]) == os.getpid() or not _alive(int(match[1]))):
            shutil.rmtree(path, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return True


def _chunks(variable: xr.Variable) -> tuple[int, ...]:
    """The whole of the last dims that fit a chunk, a part of the one before, one of the others."""
    room = max(1, CHUNK_BYTES // max(1, variable.dtype.itemsize))
    chunks = []
    for size in reversed(variable.shape):
        chunk = max(1, min(size, room))
        chunks.append(chunk)
        room //= chunk
    return tuple(reversed(chunks))


def write(dataset: xr.Dataset, folder: Path) -> None:
    """Write the whole dataset into an empty folder."""
    encoding: dict[Any, dict[str, Any]] = {}
    for name, variable in dataset.variables.items():
        encoding[name] = {"chunk_key_encoding": FLAT_KEYS}
        if variable.ndim and variable.dtype.kind != "O":
            encoding[name]["chunks"] = _chunks(variable)
        if variable.dtype.kind == "f" and name in dataset.data_vars:
            encoding[name]["_FillValue"] = np.dtype(variable.dtype).type(np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr's word on strings in format 3
        dataset.to_zarr(folder, mode="w", zarr_format=3, consolidated=True, encoding=encoding)


def read(store: str | Path) -> xr.Dataset:
    """The stored variables.

    Raises:
      OracleError: no sweep's store is there.
    """
    path = Path(store)
    if stored_digest(path) is None:
        fail(f"{path} must be a sweep's store; nothing is there. Run a sweep first.")
    try:
        dataset: xr.Dataset = xr.open_zarr(path)
    except (OSError, ValueError, KeyError) as error:
        message = (
            f"{path} must be a whole store; it cannot be opened: {str(error).splitlines()[0]}. Run its sweep again."
        )
        raise OracleError(message) from error
    texts = {name: c.astype(object) for name, c in dataset.coords.items() if name in TEXTS}
    return dataset.assign_coords(texts)
