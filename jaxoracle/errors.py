"""The one exception for everything that a user can cause."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import NoReturn


class OracleError(ValueError):
    """A user's input that cannot be priced: what must hold, what was given, what to do.

    The command line prints it as one line and exits with code 2.
    """


#: names that a message lists
MOST_LISTED = 60


def brief(value: object) -> str:
    """What was given, quoted, short enough for one line."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def known(names: Iterable[str]) -> str:
    """Legal names, sorted, for the end of a message; the first of many."""
    listed = sorted(names)
    return ", ".join(listed) if len(listed) <= MOST_LISTED else ", ".join(listed[:MOST_LISTED]) + ", ..."


def unknown(kind: str, given: object, names: Iterable[str], where: str = "") -> NoReturn:
    """Raise for a name that is not one of `names`, with the nearest one.

    Raises:
      OracleError: always.
    """
    legal = sorted(names)[:5000]
    lower = {name.lower(): name for name in legal}
    text = brief(given).strip("'").lower()
    near = difflib.get_close_matches(text, lower, n=1) or [name for name in lower if text and name.startswith(text)]
    hint = f" Did you mean {lower[near[0]]!r}?" if near else ""
    place = f"{where}: " if where else ""
    message = f"{place}unknown {kind} {brief(given)}.{hint} Known: {known(legal)}."
    raise OracleError(message)


def fail(message: str) -> NoReturn:
    """Raise `OracleError(message)`.

    Raises:
      OracleError: always.
    """
    raise OracleError(message)
