"""Checked access to one table of a TOML file: unknown and missing keys, types, units."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jaxoracle.errors import OracleError, brief, fail, known, unknown
from jaxoracle.units import number, parse

_MISSING = object()

#: no description of a network, system or sweep is larger
MOST_BYTES = 16 * 2**20


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The whole file.

    Raises:
      OracleError: it cannot be read or is no TOML.
    """
    try:
        if path.exists() and not path.is_file():
            fail(f"{path} must be a {what}, a file; got a folder, pipe or device.")
        if path.stat().st_size > MOST_BYTES:
            fail(f"{path} must be a {what} in TOML of at most {MOST_BYTES // 2**20} MiB; it is larger.")
        return tomllib.loads(path.read_text("utf-8"))
    except OracleError:
        raise
    except OSError as error:
        fail(f"{path} must be a readable {what}: {error.strerror or error}.")
    except (ValueError, RecursionError) as error:  # no UTF-8, no TOML, absurd numbers, deep nesting
        fail(f"{path} must be a {what} in TOML: {str(error).splitlines()[0]}.")


class Table:
    """One table; `where` names it in messages."""

    def __init__(self, values: Any, where: str, legal: Iterable[str]) -> None:
        if not isinstance(values, Mapping):
            fail(f"{where} must be a table with keys {known(legal)}; got {brief(values)}.")
        self.values, self.where = values, where
        for key in values:
            if key not in set(legal):
                unknown("key", key, legal, where)

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def raw(self, key: str, default: Any = _MISSING) -> Any:
        """The value as it stands."""
        if key not in self.values:
            if default is _MISSING:
                fail(f"{self.where}: {key} is missing. Add it.")
            return default
        return self.values[key]

    def place(self, key: str) -> str:
        """File, table and key, for messages."""
        return f"{self.where}: {key}"

    def text(self, key: str, default: Any = _MISSING) -> Any:
        """A string that is not empty."""
        value = self.raw(key, default)
        if value is not default and not (isinstance(value, str) and value.strip() and value.isprintable()):
            fail(f"{self.place(key)} must be a printable text; got {brief(value)}.")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.raw(key, default)
        if not isinstance(value, bool):
            fail(f"{self.place(key)} must be true or false; got {brief(value)}.")
        return value

    def quantity(self, key: str, kind: str, *, positive: bool = True) -> float:
        """A quantity with its unit, in SI."""
        value = parse(self.raw(key), kind, self.place(key))
        return number(value, self.place(key), positive=positive)

    def number(self, key: str, default: Any = _MISSING, **rules: Any) -> Any:
        """A plain number."""
        value = self.raw(key, default)
        return value if value is default else number(value, self.place(key), **rules)
