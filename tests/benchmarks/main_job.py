"""Wall time and peak memory of the main job, cold and with a warm cache of compiled programs.

    python tests/benchmarks/main_job.py [RUNS]

Each run is a process of its own; the cold ones have an empty cache. Prints medians.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import xarray as xr

ROOT = Path(__file__).parents[2]


def run(store: Path, cache: Path) -> float:
    """Seconds of one run."""
    command = [sys.executable, "-m", "jaxoracle", "sweep", str(ROOT / "sweeps" / "quickstart.toml"), "-o", str(store)]
    start = time.perf_counter()
    subprocess.run(command, check=True, env=os.environ | {"XDG_CACHE_HOME": str(cache)}, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main(runs: int = 5) -> None:
    """Run and print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cold = [run(folder / f"cold{i}.zarr", folder / f"cache{i}") for i in range(runs)]
        warm = [run(folder / f"warm{i}.zarr", folder / "cache0") for i in range(runs)]
        sizes = xr.open_zarr(folder / "cold0.zarr").sizes
        points = 1
        for size in sizes.values():
            points *= size
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    print(f"{points:,} points, {os.cpu_count()} cores, medians of {runs}, largest peak memory {peak:.2f} GB")
    for label, seconds in (("cold", cold), ("warm", warm)):
        median = statistics.median(seconds)
        print(f"{label}: {median:.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), {points / median:,.0f} points/s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
