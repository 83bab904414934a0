"""Choices that the command line and sweep files share: optimizers, split layers, split extents."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from jaxoracle.catalog import Network
from jaxoracle.errors import OracleError, brief, fail, unknown
from jaxoracle.records import CONVOLUTION
from jaxoracle.units import number

#: whole numbers up to here are exact in float32
MOST_PES = 2.0**24
#: optimizer -> copies of the weights that it keeps
OPTIMIZERS: Mapping[str, float] = MappingProxyType({"sgd": 0.0, "momentum": 1.0, "adam": 2.0})


@dataclasses.dataclass(frozen=True)
class Splitting:
    """Which layers and extents a strategy splits.

    Attributes:
      layers: a mask for each network; None: each strategy's default.
      extents: factors of the three extents; None: the first one only.
    """

    layers: tuple[np.ndarray, ...] | None
    extents: tuple[float, float, float] | None

    @property
    def key(self) -> tuple[object, ...]:
        """What tells it from others."""
        masks = None if self.layers is None else tuple(tuple(m.tolist()) for m in self.layers)
        return (masks, self.extents)


def read_splitting(
    networks: tuple[Network, ...], layers: Any, extents: Any, places: tuple[str, str], folder: Path | None = None
) -> Splitting:
    """Masks from `"weighted"`, `"convolutions"` or a file; factors from `"2x2"` or a list.

    Raises:
      OracleError: neither, or a file that does not fit the network.
    """
    masks = None
    if layers is not None:
        masks = tuple(_mask(network, layers, places[0], folder) for network in networks)
    return Splitting(masks, None if extents is None else _factors(extents, places[1]))


def _mask(network: Network, choice: Any, where: str, folder: Path | None) -> np.ndarray:
    if choice == "weighted":
        return np.asarray(network.layers.weighted, np.float64)
    if choice == "convolutions":
        return np.where(np.asarray(network.layers.kind) == CONVOLUTION, 1.0, 0.0)
    if not isinstance(choice, str) or not choice:
        fail(f"{where} must be 'weighted', 'convolutions' or the path of a file; got {brief(choice)}.")
    path = (folder or Path()) / choice
    if path.exists() and not path.is_file():
        fail(f"{where} must be 'weighted', 'convolutions' or a file; got {brief(choice)}, a folder, pipe or device.")
    try:
        lines = [line.split("#")[0].strip() for line in path.read_text("utf-8").splitlines()]
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no text"
        message = f"{where} must be 'weighted', 'convolutions' or a readable file; got {brief(choice)}: {reason}."
        raise OracleError(message) from None
    return _mask_from_lines([line for line in lines if line], network, str(path))


def _mask_from_lines(lines: list[str], network: Network, where: str) -> np.ndarray:
    """One 0 or 1 a layer, or the names of the layers to split, one a line."""
    names = network.layer_names
    if lines and all(line in ("0", "1") for line in lines):
        if len(lines) != len(names):
            fail(
                f"{where} must have one 0 or 1 for each of the {len(names)} layers of {network.name}; got {len(lines)}."
            )
        return np.asarray([float(line) for line in lines])
    for line in lines:
        if line not in names:
            unknown("layer", line, names, where)
    return np.asarray([float(name in lines) for name in names])


def _factors(choice: Any, where: str) -> tuple[float, float, float]:
    given = choice.split("x") if isinstance(choice, str) else choice
    try:
        values = [int(value) for value in given]
        exact = all(float(value) == int(value) for value in given)
    except (TypeError, ValueError, OverflowError):
        values, exact = [], False
    if not 1 <= len(values) <= 3 or not exact or any(v < 1 or v > 10**9 for v in values):
        fail(f"{where} must be one to three factors such as 2x2; got {brief(choice)}.")
    first, second, third = [*values, 1, 1][:3]
    return float(first), float(second), float(third)


def read_number(text: str | None, where: str, **rules: Any) -> float | None:
    """A number from the command line, checked as in files; None stays None.

    Raises:
      OracleError: no number, or out of range.
    """
    if text is None:
        return None
    try:
        value = int(text) if text.strip().isdigit() else float(text)
    except ValueError:
        fail(f"{where} must be a number without a unit; got {brief(text)}.")
    return number(value, where, **rules)
