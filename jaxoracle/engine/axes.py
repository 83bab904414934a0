"""Axes of a sweep: which fields may be varied, and the values that they take, in SI."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxoracle.catalog import DEVICE, LEVEL, Machine
from jaxoracle.errors import brief, fail, known, unknown
from jaxoracle.options import MOST_PES
from jaxoracle.readers.table import Table
from jaxoracle.schema import quantity_kind
from jaxoracle.units import number, parse

#: numeric fields of a job: name -> must be whole
JOB_FIELDS = {
    "pes": True,
    "group": True,
    "samples_per_pe": False,
    "mini_batch": False,
    "dataset_size": False,
    "segments": True,
    "bytes_per_item": False,
    "reuse": False,
    "optimizer_copies": False,
    "hierarchical": True,
}
ZERO_ALLOWED = ("optimizer_copies", "hierarchical", "latency", "layer_overhead", "price")
MOST = {"efficiency": 1.0, "hierarchical": 1.0, "reuse": 1.0, "pes": MOST_PES, "group": MOST_PES, "segments": MOST_PES}
SEQUENCES = ("powers_of_two", "geomspace", "linspace", "range")
MOST_VALUES = 10_000_000


@dataclasses.dataclass(frozen=True)
class Axis:
    """One axis: its name as dim, its values in SI."""

    name: str
    values: np.ndarray


def listed(given: Any) -> list[Any]:
    """A list of what may be one thing; from Python also a tuple, range or array."""
    if isinstance(given, list | tuple | range):
        return list(given)
    return np.ravel(given).tolist() if isinstance(given, np.ndarray) else [given]


def axis_names(machines: tuple[Machine, ...]) -> list[str]:
    """Every axis that a sweep on these systems may have."""
    levels = dict.fromkeys(level for machine in machines for level in machine.levels)
    return [
        *JOB_FIELDS,
        *(f"device.{key}" for key in DEVICE),
        *(f"interconnect.{level}.{key}" for level in levels for key in LEVEL),
    ]


def check_levels(name: str, machines: tuple[Machine, ...], where: str) -> None:
    """Every level that an axis names is one of every system, and the figure has an effect there."""
    for machine in machines:
        for level in levels_of(name, machine):
            last = level == machine.levels[-1]
            if level not in machine.levels:
                unknown("axis", name, axis_names((machine,)), where)
            if last and name.endswith(".links"):
                fail(f"{where}: {name} has no effect: {level!r} is the outermost level of {machine.name!r}.")


def check_moved_once(names: list[str], machine: Machine, where: str) -> None:
    """Every figure of a system is moved by one axis at most."""
    movers: dict[tuple[str, str], str] = {}
    for name in names:
        for level in levels_of(name, machine):
            figure = level, name.rpartition(".")[2]
            if figure in movers:
                fail(f"{where}: {figure[1]} of {level!r} must be moved by one axis; got {movers[figure]} and {name}.")
            movers[figure] = name


def levels_of(name: str, machine: Machine) -> tuple[str, ...]:
    """Interconnect levels that an axis such as `interconnect.leaf+rack.bandwidth` moves together; `*` is all."""
    if not name.startswith("interconnect."):
        return ()
    written = name.split(".")[1]
    if written == "*":
        return machine.levels[:-1] if name.endswith(".links") else machine.levels
    return tuple(written.split("+"))


def read_axis(name: str, given: Any, where: str) -> Axis:
    """One axis from what stands in a sweep file.

    Raises:
      OracleError: no such field, or values that it cannot take.
    """
    parts = name.split(".")
    legal = name in JOB_FIELDS or (parts[0] == "device" and len(parts) == 2 and parts[1] in DEVICE)
    legal = legal or (parts[0] == "interconnect" and len(parts) == 3 and parts[2] in LEVEL)
    if not legal:
        patterns = (*JOB_FIELDS, *(f"device.{k}" for k in DEVICE), *(f"interconnect.LEVEL.{k}" for k in LEVEL))
        unknown("axis", name, patterns, where)
    values = _sequence(name, given, f"{where}: {name}")
    if len(set(values)) != len(values):
        fail(f"{where}: {name} must have each value once; got one twice.")
    return Axis(name, np.asarray(values, np.float64))


def value_of(name: str, given: Any, where: str) -> float:
    """One value of a job's or system's field, in SI.

    Raises:
      OracleError: no number, a unit is missing or wrong, or out of range.
    """
    field = name.rpartition(".")[2]
    if name == "hierarchical" and isinstance(given, bool):
        given = float(given)
    kind = quantity_kind(name) if "." in name else None
    value = parse(given, kind, where) if kind else given
    whole = JOB_FIELDS.get(name, field in ("capacity",))
    return number(value, where, positive=field not in ZERO_ALLOWED, whole=whole, maximum=MOST.get(field, math.inf))


def _sequence(name: str, given: Any, where: str) -> list[float]:
    if isinstance(given, tuple | range | np.ndarray):
        given = listed(given)
    if isinstance(given, list):
        if not given:
            fail(f"{where} must have at least one value; got none.")
        return [value_of(name, value, where) for value in given]
    if not isinstance(given, Mapping):
        fail(f"{where} must be a list (for one value too), or one of {known(SEQUENCES)}; got {brief(given)}.")
    table = Table(given, where, (*SEQUENCES, "num"))
    kinds = [kind for kind in SEQUENCES if kind in table]
    if len(kinds) != 1:
        fail(f"{where} must have exactly one of {known(SEQUENCES)}; got {known(kinds) or 'none'}.")
    kind = kinds[0]
    ends = table.raw(kind)
    count = 3 if kind == "range" else 2
    if not isinstance(ends, list) or len(ends) != count:
        parts = "start, stop and step" if count == 3 else "start and stop"
        fail(f"{where}: {kind} must be a list of {parts}; got {brief(ends)}.")
    bounds = [value_of(name, end, where) for end in ends]
    if kind in ("geomspace", "linspace"):
        num = int(table.number("num", whole=True, maximum=MOST_VALUES))
        values = getattr(np, kind)(*_rising(bounds, kind, where), num).tolist()
        return [value_of_number(name, value, where) for value in values]
    if "num" in table:
        fail(f"{where}: num has no effect on {kind}. Remove it.")
    return _stepped(kind, bounds, where)


def value_of_number(name: str, value: float, where: str) -> float:
    """A generated value, checked as a written one is."""
    if JOB_FIELDS.get(name, name.endswith(".capacity")) and value != int(value):
        fail(f"{where} must be whole numbers; the spacing gives {value:g}. Use a list, a range or powers_of_two.")
    return float(value)


def _rising(bounds: list[float], kind: str, where: str) -> list[float]:
    if bounds[0] > bounds[1] or (kind == "geomspace" and bounds[0] <= 0):
        fail(f"{where}: {kind} must go from a positive start up to stop; got {bounds[0]:g} and {bounds[1]:g}.")
    return bounds


def _stepped(kind: str, bounds: list[float], where: str) -> list[float]:
    start, stop = _rising(bounds[:2], kind, where)
    if kind == "range":
        if bounds[2] <= 0:
            fail(f"{where}: the step of a range must be positive; got {bounds[2]:g}.")
        steps = (stop - start) / bounds[2] * (1 + 1e-12)
        if steps >= MOST_VALUES:
            fail(f"{where}: range must have at most {MOST_VALUES} values; got {steps:.3g}.")
        count = math.floor(steps) + 1
        return [start + i * bounds[2] for i in range(count)]
    powers = [2.0**i for i in range(1024) if start <= 2.0**i <= stop]
    if not powers:
        fail(f"{where}: no power of two lies between {start:g} and {stop:g}.")
    return powers
