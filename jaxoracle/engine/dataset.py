"""A sweep's results as a dataset: coordinates, provenance, and the totals that follow from stored terms."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr

import jaxoracle
from jaxoracle.engine.spec import Sweep
from jaxoracle.errors import fail
from jaxoracle.projection import FINDINGS, TOTALS
from jaxoracle.schema import FLAGS, describe

#: points whose totals are all formed in memory on opening
MOST_FORMED = 25_000_000


class View:
    """A dataset as `projection` reads terms: by attribute."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    def __getattr__(self, name: str) -> Any:
        return self._dataset[name]


def cells(dataset: xr.Dataset) -> int:
    """Design points: strategies times grid points."""
    return math.prod(int(size) for size in dataset.sizes.values())


def form(dataset: xr.Dataset, names: Iterable[str], order: Iterable[Any] | None = None) -> dict[str, xr.DataArray]:
    """Totals and findings from stored terms, by the same definitions as `project`, their dims in `order`."""
    view, formed = View(dataset), {}
    order = tuple(dataset.dims if order is None else order)
    with np.errstate(invalid="ignore", divide="ignore"):
        for name in names:
            if name not in dataset:
                value = (TOTALS | FINDINGS)[name](view)
                formed[name] = value.transpose(*(d for d in order if d in value.dims))
    for name in FLAGS:
        if name in formed:
            formed[name] = formed[name].astype(np.int8)
    return formed


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


def whole(values: np.ndarray) -> np.ndarray:
    """As integers where all are whole, for people who read coordinates."""
    exact = np.all(np.isfinite(values)) and np.all(values == np.floor(values)) and np.all(np.abs(values) < 2**53)
    return values.astype(np.int64) if exact else values


def grid_coordinates(sweep: Sweep) -> dict[str, Any]:
    """Labels of a grid's dims."""
    systems = [m.name for m in sweep.machines]
    return {
        "strategy": np.asarray(sweep.strategies, object),
        "dnn": np.asarray([n.name for n in sweep.networks], object),
        **{axis.name: whole(axis.values) for axis in sweep.axes},
        "system": np.asarray(systems if len(systems) > 1 else systems[0], object),
    }


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
