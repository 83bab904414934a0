"""What a store holds and what a sweep would do, as plain data and as text."""

from __future__ import annotations

import math
import os
import time
from typing import Any

import numpy as np

from jaxoracle.engine.landing import packs, prepared
from jaxoracle.engine.layout import chunks, region_bytes
from jaxoracle.engine.programs import cache_programs
from jaxoracle.engine.spec import Sweep
from jaxoracle.engine.store import Store
from jaxoracle.errors import fail
from jaxoracle.units import show

Place = str | os.PathLike[str]


def _root(place: Place) -> tuple[Store, dict[str, Any]]:
    store = Store(place)
    root = store.root()
    if root is None:
        fail(f"{place} must be a sweep's store; nothing is there. Run a sweep first.")
    return store, root


def describe_store(place: Place) -> dict[str, Any]:
    """Dims, variables, completeness and provenance of a store.

    Raises:
      OracleError: no sweep's store is there.
    """
    store, root = _root(place)
    try:
        lacking, total = store.missing(root)
        variables = [_variable(name, array) for name, array in sorted(store.arrays(root).items())]
    except (KeyError, TypeError, ValueError, AttributeError):
        fail(f"{place} must be a sweep's store; its metadata is damaged. Run its sweep again with --overwrite.")
    sizes = {dim: size for v in variables for dim, size in zip(v["dims"], v["shape"], strict=True)}
    dims = _dims(variables)
    return {
        "store": os.fspath(place),
        "complete": (total - len(lacking)) / total if total else 1.0,
        "chunks": total,
        "chunks_missing": len(lacking),
        "bytes_on_disk": store.size(),
        "dims": {dim: sizes[dim] for dim in dims},
        "points": math.prod(sizes[dim] for dim in dims),
        "variables": variables,
        "attributes": root["attributes"],
    }


def _variable(name: str, array: dict[str, Any]) -> dict[str, Any]:
    kind = array["data_type"]
    return {
        "name": name,
        "dims": list(array.get("dimension_names") or ()),
        "shape": list(array["shape"]),
        "dtype": kind if isinstance(kind, str) else str(kind["name"]),
        "units": array["attributes"].get("units", ""),
    }


def _dims(variables: list[dict[str, Any]]) -> list[str]:
    """All dims in an order that no variable contradicts: those of longer variables first."""
    found: list[str] = []
    for variable in sorted(variables, key=lambda v: -len(v["dims"])):
        found.extend(dim for dim in variable["dims"] if dim not in found)
    return found


def completeness(place: Place) -> str:
    """How complete a store is, in a few words."""
    store = Store(place)
    root = store.root()
    if root is None:
        return "nothing was written yet"
    lacking, total = store.missing(root)
    return f"{total - len(lacking)} of {total} chunks are in {place}"


def _sized(dims: dict[str, int], points: float) -> str:
    return " x ".join(f"{dim} {size}" for dim, size in dims.items()) + f" = {points:,} points"


def summary(found: dict[str, Any], *, new: bool) -> str:
    """One line on a store that is complete."""
    state = "written" if new else "complete already, nothing to do"
    return f"{state}: {_sized(found['dims'], found['points'])}, {show(found['bytes_on_disk'], 'B')} in {found['store']}"


def described(found: dict[str, Any]) -> str:
    """`describe_store` for people."""
    attributes = found["attributes"]
    state = "complete" if not found["chunks_missing"] else "partial, run the same sweep again to go on"
    rows = [
        f"{found['store']}: {attributes.get('title', '')}",
        f"complete   {100 * found['complete']:.4g}% ({found['chunks'] - found['chunks_missing']} of "
        f"{found['chunks']} chunks): {state}",
        f"dims       {_sized(found['dims'], found['points'])}",
        f"on disk    {show(found['bytes_on_disk'], 'B')}",
        "variables",
    ]
    width = max((len(v["name"]) for v in found["variables"]), default=0)
    for v in found["variables"]:
        rows.append(f"  {v['name'].ljust(width)}  [{v['units']}]  ({', '.join(v['dims'])})")
    rows.append("provenance")
    rows += [f"  {key}: {value}" for key, value in attributes.items() if key not in ("title", "status", "coordinates")]
    return "\n".join(rows)


def rehearse(sweep: Sweep, memory: float) -> dict[str, Any]:
    """What a sweep would write, and how long it would take by the time of one region, which is not written."""
    start = time.perf_counter()
    cache_programs()
    engine = prepared(sweep, region_bytes(memory))
    region = engine.regions[-1]
    engine.evaluate(region)
    begun = time.perf_counter()
    for _, pack in packs(engine, region, engine.evaluate(region), sweep.packing):
        pack()
    each = time.perf_counter() - begun
    count = 0
    for part in engine.regions:
        for name in part.names:
            variable = engine.variables[name]
            spans = zip(part.selection(variable), chunks(variable, part), strict=True)
            count += math.prod(-(-(s.stop - s.start) // extent) for s, extent in spans)
    return {
        "name": sweep.name,
        "dims": {dim: int(size) for dim, size in engine.sizes.items()},
        "points": engine.points,
        "variables": [
            {"name": v.name, "dims": list(v.dims), "bytes": v.size, "dtype": np.dtype(v.dtype).name}
            for v in engine.variables.values()
        ],
        "bytes": sum(v.size for v in engine.variables.values()),
        "chunks": count,
        "regions": len(engine.regions),
        "seconds": begun - start + each * len(engine.regions),
    }


def rehearsed(found: dict[str, Any]) -> str:
    """`rehearse` for people."""
    rows = [
        f"{found['name']}: {_sized(found['dims'], found['points'])}",
        f"{show(found['bytes'], 'B')} before compression in {found['chunks']:,} chunks of {found['regions']:,} regions",
        f"about {show(found['seconds'], 's')}; nothing was written",
    ]
    largest = sorted(found["variables"], key=lambda v: -v["bytes"])[:8]
    width = max(len(v["name"]) for v in largest)
    rows += [f"  {v['name'].ljust(width)}  {show(v['bytes'], 'B'):>10}  ({', '.join(v['dims'])})" for v in largest]
    return "\n".join(rows)
