"""Files of a store in an object store, through fsspec (an extra)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from jaxoracle.errors import OracleError, fail


def is_url(place: str) -> bool:
    """Whether a place is a URL, such as `s3://bucket/name.zarr`."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", place) is not None


class Objects:
    """Objects of a store; each appears whole, as object stores promise."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError:
            fail(f"{url} needs fsspec and its file system. Install jaxoracle[dask] and, for s3, s3fs.")
        try:
            self.system, self.path = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError, OSError) as error:
            message = f"{url} must be a place that fsspec can open: {str(error).splitlines()[0]}."
            raise OracleError(message) from error
        self.url = url

    def taken(self) -> bool:
        """Whether something is there."""
        self.system.invalidate_cache()
        return bool(self.system.exists(self.path))

    def get(self, name: str) -> bytes | None:
        """Content of an object; None if it is not there."""
        try:
            content: bytes = self.system.cat_file(f"{self.path}/{name}")
        except FileNotFoundError:
            return None
        return content

    def names(self, variable: str) -> list[str]:
        """Objects of a variable."""
        self.system.invalidate_cache()
        try:
            return [name.rpartition("/")[2] for name in self.system.ls(f"{self.path}/{variable}", detail=False)]
        except FileNotFoundError:
            return []

    def put(self, name: str, data: Any) -> None:
        """Write an object."""
        self.system.pipe_file(f"{self.path}/{name}", bytes(data))

    def create(self, files: Mapping[str, bytes]) -> None:
        """All files, the root's metadata last: without it there is no store."""
        for name in sorted(files, key=lambda n: n == "zarr.json"):
            self.put(name, files[name])

    def remove(self) -> None:
        """The root first, then all."""
        self.system.rm(f"{self.path}/zarr.json")
        self.system.rm(self.path, recursive=True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Nothing to prepare."""
        yield

    def room(self) -> float:
        """No bound is known [byte]."""
        return math.inf

    def size(self) -> float:
        """Size of all objects [byte]."""
        self.system.invalidate_cache()
        return float(self.system.du(self.path))
