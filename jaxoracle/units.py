"""Quantities with units, read into SI once, at the door.

Prefixes are decimal (1 GB = 1e9 byte) and binary with an `i` (1 GiB = 2**30 byte); `b` or `bit` is a bit, `B` or
`byte` a byte. Numbers without a unit are rejected: units are never guessed.
"""

from __future__ import annotations

import math
import re
from types import MappingProxyType

from jaxoracle.errors import brief, fail

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_SMALL = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "m": 1e-3}


def _scaled(bases: dict[str, float], prefixes: dict[str, float]) -> dict[str, float]:
    return {p + b: f * g for p, f in prefixes.items() for b, g in bases.items()}


_BYTES = _scaled({"B": 1.0, "byte": 1.0, "bytes": 1.0, "bit": 0.125, "b": 0.125}, _DECIMAL | _BINARY)
_SECONDS = _scaled({"s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0}, {"": 1.0} | _SMALL)
_TIMES = _SECONDS | {"min": 60.0, "h": 3600.0, "hour": 3600.0, "hours": 3600.0, "day": 86400.0, "days": 86400.0}

#: kind -> (SI unit, {unit as written: factor to SI}, an example for messages)
KINDS = MappingProxyType(
    {
        "bandwidth": (
            "byte/s",
            {f"{u}/s": f for u, f in _BYTES.items()} | _scaled({"bps": 0.125, "Bps": 1.0}, _DECIMAL),
            "12.5 GB/s",
        ),
        "time": ("s", _TIMES, "9 us"),
        "memory": ("byte", {u: f for u, f in _BYTES.items() if not u.endswith("b")}, "16 GB"),
        "compute": (
            "FLOP/s",
            _scaled({"FLOP/s": 1.0, "FLOPS": 1.0, "FLOPs/s": 1.0, "flop/s": 1.0}, _DECIMAL),
            "15.7 TFLOP/s",
        ),
        "price": (
            "USD/s",
            {"USD/hour": 1 / 3600.0, "USD/h": 1 / 3600.0, "USD/s": 1.0, "USD/day": 1 / 86400.0},
            "2.0 USD/hour",
        ),
    }
)

_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:nan|inf)\w*)\s*(.*?)\s*$", re.I)
_DIRECTION = re.compile(r"\s+(bidirectional|both directions|per direction|one way)$")


def parse(text: object, kind: str, where: str) -> float:
    """Read one quantity, such as `"12.5 GB/s"` for `kind="bandwidth"`, in SI units.

    A bandwidth may end in `bidirectional`: it is the sum of both directions and is halved.

    Args:
      text: the quantity, a number and its unit.
      kind: a key of `KINDS`.
      where: the file and field, for messages.

    Raises:
      OracleError: the value is no text, has no unit or another kind's unit, or is not finite.
    """
    _, factors, example = KINDS[kind]
    if isinstance(text, bool) or not isinstance(text, str):
        fail(f"{where} must be a quantity with its unit such as {example!r}; got {brief(text)}. Write the unit.")
    halve = 1.0
    bare = text.strip()
    if kind == "bandwidth" and (direction := _DIRECTION.search(bare)):
        halve = 0.5 if direction[1].startswith("b") else 1.0
        bare = bare[: direction.start()]
    match = _NUMBER.match(bare)
    if match is None:
        fail(f"{where} must be a quantity with its unit such as {example!r}; got {brief(text)}.")
    unit = re.sub(r"\s*/\s*", "/", match[2])
    if unit not in factors:
        what = f"unit {unit!r} is no {kind}" if unit else "the unit is missing"
        fail(f"{where} must be a {kind} such as {example!r}; got {brief(text)}: {what}.")
    value = float(match[1]) * factors[unit] * halve
    if not math.isfinite(value):
        fail(f"{where} must be finite; got {brief(text)}.")
    return value


def number(
    value: object, where: str, *, positive: bool = True, whole: bool = False, maximum: float = math.inf
) -> float:
    """Read one plain number (a count or a ratio).

    Raises:
      OracleError: it is no number, not finite, out of range, or not whole where it must be.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        fail(f"{where} must be a number; got {brief(value)}.")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    sign = "positive" if positive else "zero or positive"
    if not math.isfinite(result) or result < 0 or (positive and result == 0):
        fail(f"{where} must be finite and {sign}; got {brief(value)}.")
    if whole and result != int(result):
        fail(f"{where} must be a whole number; got {brief(value)}.")
    if result > maximum:
        fail(f"{where} must be at most {maximum:g}; got {brief(value)}.")
    return result


_STEPS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def show(value: float, unit: str) -> str:
    """A number for people: `show(1.6e10, "B") == "16 GB"`, `show(9e-6, "s") == "9 us"`."""
    if not math.isfinite(value):
        return "-"
    if unit == "s" and 0 < abs(value) < 1:
        factor, prefix = next(((f, p) for f, p in ((1e-3, "m"), (1e-6, "u")) if abs(value) >= f), (1e-9, "n"))
    elif unit == "s" or value == 0:
        factor, prefix = 1.0, ""
    else:
        factor, prefix = next(((f, p) for f, p in _STEPS if abs(value) >= f), (1.0, ""))
    return f"{value / factor:.4g} {prefix}{unit}"
