"""How long distributed training will take, where time and memory go, and what to change.

Public names are loaded when first used, so that `import jaxoracle` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxoracle.catalog import dnn, profile, system
    from jaxoracle.engine import open, sweep
    from jaxoracle.errors import OracleError
    from jaxoracle.oracle import project
    from jaxoracle.projection import Projection
    from jaxoracle.records import Job, Layers, Profile, System
    from jaxoracle.strategies import STRATEGIES

__version__ = "0.1.0"

_HOME = {
    "STRATEGIES": "strategies",
    "Job": "records",
    "Layers": "records",
    "OracleError": "errors",
    "Profile": "records",
    "Projection": "projection",
    "System": "records",
    "dnn": "catalog",
    "open": "engine",
    "profile": "catalog",
    "project": "oracle",
    "sweep": "engine",
    "system": "catalog",
}

__all__ = [
    "STRATEGIES",
    "Job",
    "Layers",
    "OracleError",
    "Profile",
    "Projection",
    "System",
    "__version__",
    "dnn",
    "open",
    "profile",
    "project",
    "sweep",
    "system",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        message = f"module 'jaxoracle' has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(importlib.import_module(f"jaxoracle.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
