"""How the chunks of a store are packed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numcodecs import BitRound, Blosc
from zarr.codecs import BloscCodec

COMPRESSIONS = ("lz4", "zstd", "none")
#: mantissa bits of a float32
MOST_BITS = 23
LEVEL = 5


@dataclasses.dataclass(frozen=True)
class Packing:
    """Compression, with byte shuffle, and rounding.

    Attributes:
      compression: one of `COMPRESSIONS`.
      bits: mantissa bits that are kept of floats; None: all.
    """

    compression: str = "lz4"
    bits: int | None = None

    @property
    def codecs(self) -> tuple[Any, ...] | None:
        """As zarr's metadata names them."""
        if self.compression == "none":
            return None
        return (BloscCodec(cname=self.compression, clevel=LEVEL, shuffle="shuffle"),)  # type: ignore[arg-type]

    def pack(self, chunk: np.ndarray) -> Any:
        """The bytes of a chunk; the same ones as zarr's codecs give."""
        if self.bits is not None and chunk.dtype.kind == "f":
            chunk = BitRound(self.bits).encode(chunk).view(chunk.dtype)
        if chunk.dtype == bool:
            chunk = chunk.view(np.uint8)
        if self.compression == "none":
            return chunk.tobytes()
        return Blosc(cname=self.compression, clevel=LEVEL, shuffle=Blosc.SHUFFLE).encode(chunk)
