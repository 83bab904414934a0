"""How results are divided: regions that are evaluated at once, chunks that a region consists of.

Dims go from the outermost to the innermost. A region is one index of the outer dims, a part of one dim and the whole of
the inner ones; each chunk lies in one region. Variables that are small as a whole form a region of their own, so that
none is cut into crumbs.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from jaxoracle.errors import fail
from jaxoracle.units import show

#: chunks are at most this long [byte]
CHUNK_BYTES = 8 * 10**6
#: what a process takes before its first region: interpreter, libraries, compiled programs [byte]
PROCESS_BYTES = 8 * 10**8
#: regions that are alive at once, with what evaluating and writing them needs
ALIVE = 8
#: larger regions gain nothing [byte]
MOST_REGION = 128 * 10**6
LEAST_REGION = 4 * 10**6
#: peak memory of a run unless the user says otherwise [byte]
MEMORY = 2e9


@dataclasses.dataclass(frozen=True)
class Variable:
    """A variable as it is stored; with the dim `strategy`, it comes first."""

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> float:
        """[byte]."""
        return float(math.prod(self.shape)) * self.dtype.itemsize


@dataclasses.dataclass(frozen=True)
class Region:
    """Variables that are evaluated at once, and where.

    Attributes:
      names: the variables whose chunks it writes.
      bounds: dim -> (start, stop) of the dims that are divided; other dims are whole.
      block: dim -> extent of every region of its kind; the last one may be shorter.
    """

    names: tuple[str, ...]
    bounds: Mapping[str, tuple[int, int]]
    block: Mapping[str, int]

    @property
    def whole(self) -> bool:
        """Whether no dim is divided."""
        return not self.bounds

    def selection(self, variable: Variable) -> tuple[slice, ...]:
        """Its part of a variable."""
        return tuple(slice(*self.bounds.get(d, (0, n))) for d, n in zip(variable.dims, variable.shape, strict=True))


def region_bytes(memory: float) -> int:
    """Size of a region for a bound on the process's memory [byte].

    Raises:
      OracleError: nothing fits.
    """
    room = int((memory - PROCESS_BYTES) / ALIVE)
    if room < LEAST_REGION:
        least = PROCESS_BYTES + ALIVE * LEAST_REGION
        fail(f"memory must be at least {show(least, 'B')} for a sweep; got {show(memory, 'B')}.")
    return min(room, MOST_REGION)


def divide(variables: Sequence[Variable], sizes: Mapping[str, int], most: int, *, apart: bool = True) -> list[Region]:
    """Regions that cover all variables, the small ones first.

    Args:
      variables: what is stored.
      sizes: dims that may be divided, from the outermost to the innermost.
      most: size of a region [byte].
      apart: whether small variables may form a region of their own.
    """
    if sum(v.size for v in variables) <= most:
        return [Region(tuple(v.name for v in variables), {}, dict(sizes))]
    small: list[Variable] = []
    if apart:
        for variable in sorted(variables, key=lambda v: v.size):
            if sum(v.size for v in small) + variable.size <= most:
                small.append(variable)
    large = [v for v in variables if v not in small]
    block = _block(large, sizes, most)
    divided = {dim: extent for dim, extent in block.items() if extent < sizes[dim]}
    regions = [Region(tuple(v.name for v in small), {}, dict(sizes))] if small else []
    starts = [range(0, sizes[dim], extent) for dim, extent in divided.items()]
    for corner in itertools.product(*starts):
        bounds = {
            dim: (start, min(start + extent, sizes[dim]))
            for start, (dim, extent) in zip(corner, divided.items(), strict=True)
        }
        names = tuple(v.name for v in large if all(b[0] == 0 or d in v.dims for d, b in bounds.items()))
        if names:
            regions.append(Region(names, bounds, block))
    return regions


def _block(variables: Sequence[Variable], sizes: Mapping[str, int], most: int) -> dict[str, int]:
    """Inner dims whole, a power of two of one dim, one of the outer ones: at most `most` bytes in all."""
    block = dict.fromkeys(sizes, 1)

    def size() -> float:
        return sum(
            v.dtype.itemsize * math.prod(block.get(d, n) for d, n in zip(v.dims, v.shape, strict=True))
            for v in variables
        )

    for dim in reversed(list(sizes)):
        block[dim] = sizes[dim]
        if size() <= most:
            continue
        block[dim] = 1
        while block[dim] * 2 < sizes[dim]:
            block[dim] *= 2
            if size() > most:
                block[dim] //= 2
                break
        break
    return block


def chunks(variable: Variable, region: Region) -> tuple[int, ...]:
    """The whole of a region's last dims that fit a chunk, a part of the one before, one of the others."""
    room = max(1, CHUNK_BYTES // variable.dtype.itemsize)
    found = []
    for dim, size in zip(reversed(variable.dims), reversed(variable.shape), strict=True):
        extent = region.block.get(dim, size) if dim in region.bounds else size
        if extent > room:
            extent = room if dim not in region.bounds else 2 ** (room.bit_length() - 1)
        extent = max(1, extent)
        found.append(extent)
        room = max(1, room // extent)
    return tuple(reversed(found))


def cut(
    variable: Variable, region: Region, chunk: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """(indices of a chunk in its variable, what it covers) of every chunk of a region."""
    along = [
        range(part.start // extent, -(-part.stop // extent))
        for part, extent in zip(region.selection(variable), chunk, strict=True)
    ]
    for indices in itertools.product(*along):
        yield (
            indices,
            tuple(
                slice(i * extent, min((i + 1) * extent, n))
                for i, extent, n in zip(indices, chunk, variable.shape, strict=True)
            ),
        )
