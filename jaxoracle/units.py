"""Quantities with units, read into SI once, at the door.

Prefixes are decimal (1 GB = 1e9 byte) and binary with an `i` (1 GiB = 2**30 byte); `b` or `bit` is a bit, `B` or
`byte` a byte. Numbers without a unit are rejected: units are never guessed.
"""

from __future__ import annotations

import math
import numbers
import re
from fractions import Fraction
from types import MappingProxyType

from jaxoracle.errors import brief, fail

# factors are fractions, so that "5 us" is the float nearest to 5e-6 and can be selected by it
_ONE = Fraction(1)
_DECIMAL = {prefix: Fraction(1000) ** power for power, prefix in enumerate(["", "k", "M", "G", "T", "P", "E"])}
_DECIMAL["K"] = _DECIMAL["k"]
_BINARY = {"Ki": _ONE * 2**10, "Mi": _ONE * 2**20, "Gi": _ONE * 2**30, "Ti": _ONE * 2**40}
_SMALL = {"n": _ONE / 10**9, "u": _ONE / 10**6, "µ": _ONE / 10**6, "μ": _ONE / 10**6, "m": _ONE / 1000}


def _scaled(bases: dict[str, Fraction], prefixes: dict[str, Fraction]) -> dict[str, Fraction]:
    return {p + b: f * g for p, f in prefixes.items() for b, g in bases.items()}


_BYTES = _scaled({"B": _ONE, "byte": _ONE, "bytes": _ONE, "bit": _ONE / 8, "b": _ONE / 8}, _DECIMAL | _BINARY)
_SECONDS = _scaled({"s": _ONE, "sec": _ONE, "second": _ONE, "seconds": _ONE}, {"": _ONE} | _SMALL)
_TIMES = _SECONDS | {
    "min": _ONE * 60,
    "h": _ONE * 3600,
    "hour": _ONE * 3600,
    "hours": _ONE * 3600,
    "day": _ONE * 86400,
    "days": _ONE * 86400,
}

#: kind -> (SI unit, {unit as written: factor to SI}, an example for messages)
KINDS = MappingProxyType(
    {
        "bandwidth": (
            "byte/s",
            {f"{u}/s": f for u, f in _BYTES.items()} | _scaled({"bps": _ONE / 8, "Bps": _ONE}, _DECIMAL),
            "12.5 GB/s",
        ),
        "time": ("s", _TIMES, "9 us"),
        "memory": ("byte", {u: f for u, f in _BYTES.items() if not u.endswith("b")}, "16 GB"),
        "compute": (
            "FLOP/s",
            _scaled({"FLOP/s": _ONE, "FLOPS": _ONE, "FLOPs/s": _ONE, "flop/s": _ONE}, _DECIMAL),
            "15.7 TFLOP/s",
        ),
        "price": (
            "USD/s",
            {"USD/hour": _ONE / 3600, "USD/h": _ONE / 3600, "USD/s": _ONE, "USD/day": _ONE / 86400},
            "2.0 USD/hour",
        ),
    }
)

#: numbers beyond these are no design and leave float32
SMALLEST, LARGEST = 1e-30, 1e30
#: no quantity is written longer
LONGEST = 100

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
    if len(text) > LONGEST:
        fail(f"{where} must be a quantity such as {example!r}; got a text of {len(text)} characters.")
    halve = _ONE
    bare = text.strip()
    if kind == "bandwidth" and (direction := _DIRECTION.search(bare)):
        halve = _ONE / 2 if direction[1].startswith("b") else _ONE
        bare = bare[: direction.start()]
    match = _NUMBER.match(bare)
    if match is None:
        fail(f"{where} must be a quantity with its unit such as {example!r}; got {brief(text)}.")
    unit = re.sub(r"\s*/\s*", "/", match[2])
    if unit not in factors:
        what = f"unit {unit!r} is no {kind}" if unit else "the unit is missing"
        fail(f"{where} must be a {kind} such as {example!r}; got {brief(text)}: {what}.")
    value = _exact(match[1], factors[unit] * halve)
    if not math.isfinite(value):
        fail(f"{where} must be finite; got {brief(text)}.")
    if value != 0 and not SMALLEST <= abs(value) <= LARGEST:
        fail(f"{where} must be between {SMALLEST:g} and {LARGEST:g} {KINDS[kind][0]}; got {brief(text)}.")
    return value


def _exact(text: str, factor: Fraction) -> float:
    """The float nearest to text · factor."""
    value = float(text)
    if value == 0 or not math.isfinite(value):
        return value
    try:
        return float(Fraction(text) * factor)
    except OverflowError:
        return math.inf


def number(
    value: object, where: str, *, positive: bool = True, whole: bool = False, maximum: float = math.inf
) -> float:
    """Read one plain number (a count or a ratio).

    Raises:
      OracleError: it is no number, not finite, out of range, or not whole where it must be.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
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
    if result > LARGEST or 0 < result < SMALLEST:
        fail(f"{where} must be between {SMALLEST:g} and {LARGEST:g}; got {brief(value)}.")
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
