"""Compiled programs: where they are kept, at which precision they run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import jax


def cache_folder() -> Path | None:
    """The user's cache directory for programs; None if there is no place for one."""
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = home / "jaxoracle" / "programs"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder


def cache_programs() -> None:
    """Keep compiled programs in the user's cache directory, unless the user has set JAX's own cache."""
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    folder = cache_folder()
    if folder is None:
        return  # slower, not wrong
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@contextmanager
def precise(bits: int) -> Iterator[None]:
    """JAX's precision within the block; never for the whole process."""
    with jax.enable_x64(True) if bits == 64 else nullcontext():
        yield
