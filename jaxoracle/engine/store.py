"""A sweep as a zarr store: its template appears at once, its chunks one by one, each whole or not at all.

Format 3 with consolidated metadata and strings as objects opens with a bare `xr.open_zarr`, without a warning. A chunk
that is there is complete, so a store knows what it lacks. Chunks are encoded here, as zarr's own codecs do, since zarr
writes at a third of the speed.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import socket
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
from zarr.storage import MemoryStore

from jaxoracle.engine.layout import Region, Variable, chunks, cut
from jaxoracle.engine.objects import Objects, is_url
from jaxoracle.engine.packing import Packing
from jaxoracle.engine.terms import Value
from jaxoracle.errors import OracleError, fail
from jaxoracle.schema import attributes

#: coordinates that are names; as objects, since operations such as `idxmin` fail on NumPy's strings
TEXTS = ("dnn", "strategy", "system")
#: a chunk is one file in its variable's folder
FLAT_KEYS = {"name": "default", "separator": "."}
ROOT = "zarr.json"
#: values of the attribute `status`
PARTIAL, COMPLETE = "partial: run the same sweep again to go on", "complete"
#: fill values: what is missing is no answer
MISSING = {"f": math.nan, "i": -1, "b": False}


class Store:
    """The place of one sweep's results: a folder, or a URL that fsspec knows."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self.place = os.fspath(place)
        self._files: Folder | Objects = Objects(self.place) if is_url(self.place) else Folder(Path(self.place))
        self.writing = self._files.writing

    # ---- what is there -------------------------------------------------------------------------------------------

    def root(self) -> dict[str, Any] | None:
        """The root's metadata; None if nothing is there.

        Raises:
          OracleError: something else is there.
        """
        try:
            content = self._files.get(ROOT)
            if content is None and not self._files.taken():
                return None
            found: dict[str, Any] = json.loads(content or b"")
            _ = found["attributes"]["sweep_digest"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            fail(f"{self.place} must be a sweep's store or not exist; something else is there. Choose another place.")
        return found

    def arrays(self, root: Mapping[str, Any]) -> dict[str, Any]:
        """Metadata of every array, coordinates included."""
        found: dict[str, Any] = root["consolidated_metadata"]["metadata"]
        return found

    def missing(self, root: Mapping[str, Any]) -> tuple[set[str], int]:
        """Keys of chunks that are not there, and how many there are in all."""
        lacking, total = set(), 0
        for name, array in self.arrays(root).items():
            shape, extents = array["shape"], array["chunk_grid"]["configuration"]["chunk_shape"]
            expected = {key(name, at) for at in np.ndindex(*(-(-n // c) for n, c in zip(shape, extents, strict=True)))}
            total += len(expected)
            lacking |= expected - {f"{name}/{file}" for file in self._files.names(name)}
        return lacking, total

    # ---- writing -----------------------------------------------------------------------------------------------------

    def create(
        self, variables: Mapping[str, Variable], regions: list[Region], dataset: xr.Dataset, packing: Packing
    ) -> None:
        """The template: coordinates, attributes, and every variable without its chunks."""
        memory = MemoryStore()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zarr's word on strings in format 3
            encoding = {name: {"chunk_key_encoding": FLAT_KEYS} for name in dataset.variables}
            dataset.to_zarr(memory, mode="w", zarr_format=3, consolidated=False, encoding=encoding)
            group = zarr.open_group(memory, mode="r+")
            for region in regions:
                for name in region.names:
                    if name not in group:
                        _add(group, variables[name], chunks(variables[name], region), packing)
            zarr.consolidate_metadata(memory)
        self._files.create({name: buffer.to_bytes() for name, buffer in sorted(memory._store_dict.items())})

    def write(self, name: str, data: Any) -> None:
        """One chunk, whole or not at all.

        Raises:
          OSError: it cannot be written; FileNotFoundError: the store was removed.
        """
        self._files.put(name, data)

    def finish(self) -> None:
        """Say that the store is complete."""
        content = self._files.get(ROOT)
        if content is None:
            raise FileNotFoundError(2, "the store was removed", self.place)
        root = json.loads(content)
        root["attributes"]["status"] = COMPLETE
        self._files.put(ROOT, json.dumps(root, indent=2).encode())

    def remove(self) -> None:
        """Remove a sweep's store."""
        self._files.remove()

    def size(self) -> float:
        """Size of all files [byte]."""
        return self._files.size()

    def room(self) -> float:
        """What may still be written there [byte]."""
        return self._files.room()

    def dataset(self) -> xr.Dataset:
        """The stored variables, opened."""
        dataset: xr.Dataset = xr.open_zarr(self.place)
        return dataset


def _add(group: Any, variable: Variable, chunk: tuple[int, ...], packing: Packing) -> None:
    group.create_array(
        variable.name,
        shape=variable.shape,
        chunks=chunk,
        dtype=variable.dtype,
        compressors=packing.codecs,
        fill_value=MISSING[variable.dtype.kind],
        chunk_key_encoding=FLAT_KEYS,
        dimension_names=variable.dims,
        attributes=attributes(variable.name),
    )


def key(name: str, indices: tuple[int, ...]) -> str:
    """Key of a chunk."""
    return f"{name}/" + ".".join(["c", *map(str, indices)])


def packed(variable: Variable, value: Value, region: Region, packing: Packing) -> Iterator[tuple[str, Any]]:
    """(key, packer) of every chunk of a region's part of a variable."""
    extents = chunks(variable, region)
    origin = [part.start for part in region.selection(variable)]
    for indices, place in cut(variable, region, extents):
        inside = [slice(p.start - o, p.stop - o) for p, o in zip(place, origin, strict=True)]
        yield (
            key(variable.name, indices),
            (lambda inside=inside: packing.pack(_chunk(variable, value, inside, extents))),
        )


def _chunk(variable: Variable, value: Value, inside: list[slice], extents: tuple[int, ...]) -> np.ndarray:
    """A chunk as an array of full size; what lies past the end of its variable is missing."""
    shape = tuple(part.stop - part.start for part in inside)
    chunk = np.empty(extents, variable.dtype)
    if shape != extents:
        chunk[...] = MISSING[variable.dtype.kind]
    index: tuple[Any, ...] = (*(slice(0, n) for n in shape), ...)
    target = chunk[index]
    if not isinstance(value, list):
        np.copyto(target, value[_within(value, inside)])
        return chunk
    for row, position in enumerate(range(inside[0].start, inside[0].stop)):
        np.copyto(target[row, ...], value[position][_within(value[position], inside[1:])])
    return chunk


def _within(array: np.ndarray, inside: list[slice]) -> tuple[Any, ...]:
    """The same part of an array that has 1 where it does not depend on a dim."""
    return (*(slice(None) if n == 1 else part for n, part in zip(array.shape, inside, strict=True)), ...)


class Folder:
    """Files of a store in a folder; each appears whole, by a rename."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path))
        self._given = path
        self._beside = self.path.parent / f".{self.path.name}.{_host()}.{os.getpid()}.partial"

    def taken(self) -> bool:
        """Whether something is there."""
        return os.path.lexists(self._given)

    def get(self, name: str) -> bytes | None:
        """Content of a file; None if it is not there."""
        try:
            return (self.path / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, variable: str) -> list[str]:
        """Files of a variable."""
        try:
            return os.listdir(self.path / variable)
        except FileNotFoundError:
            return []

    def put(self, name: str, data: Any) -> None:
        """Write a file beside the store and move it to its place."""
        waiting = self._beside / f"{threading.get_ident()}"
        with waiting.open("wb") as file:
            file.write(data)
        waiting.replace(self.path / name)

    def create(self, files: Mapping[str, bytes]) -> None:
        """Files beside the store, then all of them at their place."""
        folder = self._beside / "template"
        shutil.rmtree(folder, ignore_errors=True)
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        if os.path.lexists(self.path):
            raise FileExistsError(17, "something appeared there meanwhile")
        folder.rename(self.path)

    def remove(self) -> None:
        """Out of the way in one step, then away."""
        retired = self._beside / "old"
        self.path.rename(retired)
        shutil.rmtree(retired, ignore_errors=True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A folder beside the store for what is not whole yet; those of killed runs are removed."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._remove_leftovers()
            self._beside.mkdir(exist_ok=True)
        except OSError as error:
            fail(f"{self._given} must be a place that can be written: {error.strerror or error}. Choose another.")
        try:
            yield
        finally:
            shutil.rmtree(self._beside, ignore_errors=True)

    def _remove_leftovers(self) -> None:
        pattern = re.escape(f".{self.path.name}.{_host()}.") + r"(\d+)\.partial"
        for path in self.path.parent.iterdir():
            match = re.fullmatch(pattern, path.name)
            if match and int(match[1]) != os.getpid() and not _alive(int(match[1])):
                shutil.rmtree(path, ignore_errors=True)

    def room(self) -> float:
        """Free space [byte]."""
        return shutil.disk_usage(self.path.parent).free

    def size(self) -> float:
        """Size of all files [byte]."""
        return sum(path.stat().st_size for path in self.path.rglob("*") if path.is_file())


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return True


def read(place: str | os.PathLike[str]) -> xr.Dataset:
    """The stored variables; warns of a store that is not complete.

    Raises:
      OracleError: no sweep's store is there.
    """
    store = Store(place)
    root = store.root()
    if root is None:
        fail(f"{place} must be a sweep's store; nothing is there. Run a sweep first.")
    try:
        lacking, total = store.missing(root)
        dataset = store.dataset()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        message = f"{place} must be a whole store; it cannot be opened: {reason}. Run its sweep again with --overwrite."
        raise OracleError(message) from error
    if lacking:
        text = f"{place} is partial: {total - len(lacking)} of {total} chunks are there. Run its sweep again to go on."
        warnings.warn(text, UserWarning, stacklevel=3)
    texts = {name: c.astype(object) for name, c in dataset.coords.items() if name in TEXTS}
    return dataset.assign_coords(texts)
