"""Sweep files, datasets and stores."""

import itertools
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from conftest import close

import jaxoracle
from jaxoracle.engine import land, read_sweep
from jaxoracle.errors import OracleError
from jaxoracle.projection import FINDINGS, TOTALS
from jaxoracle.records import BOTTLENECKS, LIMITS, TIMES

SWEEPS = sorted((Path(__file__).parents[1] / "sweeps").glob("*.toml"))
SMALL = {
    "dnn": "alexnet",
    "system": "abci",
    "strategy": ["data", "filter", "data+filter"],
    "axes": {"pes": [1, 8, 9, 8192], "samples_per_pe": [2, 64]},
}
TEXT = """
dnn = "alexnet"
system = "abci"
strategy = ["data", "filter", "data+filter"]
[axes]
pes = [1, 8, 9, 8192]
samples_per_pe = [2, 64]
"""


def changed(**changes):
    return SMALL | {"axes": SMALL["axes"] | changes.pop("axes", {})} | changes


# ---- reading -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SWEEPS, ids=lambda p: p.stem)
def test_every_shipped_sweep_parses(path):
    spec = read_sweep(path)
    assert spec.name == path.stem
    assert path.read_text().startswith("# ")


def test_the_main_job_has_four_networks_all_strategies_and_over_a_million_points():
    spec = read_sweep(next(p for p in SWEEPS if p.stem == "quickstart"))
    assert len(spec.networks) >= 4
    assert set(spec.strategies) == set(jaxoracle.STRATEGIES)
    assert len(spec.networks) * len(spec.strategies) * np.prod([len(a.values) for a in spec.axes]) > 1e6
    assert [m.name for m in spec.machines] == ["abci"]


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({"powers_of_two": [3, 70]}, [4, 8, 16, 32, 64]),
        ({"range": [4, 20, 8]}, [4, 12, 20]),
        ({"linspace": [2, 8], "num": 4}, [2, 4, 6, 8]),
        ([5, 3], [5, 3]),
    ],
)
def test_axes_are_lists_or_sequences(given, values):
    assert read_sweep(changed(axes={"pes": given})).axes[0].values.tolist() == values


def test_axes_with_units_are_in_si():
    spec = read_sweep(changed(axes={"interconnect.leaf.bandwidth": {"geomspace": ["1 GB/s", "100 GB/s"], "num": 3}}))
    close(spec.axes[-1].values, [1e9, 1e10, 1e11])


BROKEN = {
    "unknown key": (changed(axis={}), "Did you mean 'axes'"),
    "no network": ({k: v for k, v in SMALL.items() if k != "dnn"}, "dnn is missing"),
    "unknown network": (changed(dnn="alexnett"), "Did you mean 'alexnet'"),
    "a number for a name": (changed(dnn=3), "name or a list of names"),
    "one network twice": (changed(dnn=["alexnet", "alexnet"]), "each once"),
    "unknown system": (changed(system="abic"), "Did you mean 'abci'"),
    "unknown strategy": (changed(strategy="dta"), "Did you mean 'data'"),
    "unknown axis": (changed(axes={"peas": [1]}), "Did you mean 'pes'"),
    "unknown level": (
        changed(axes={"interconnect.leef.latency": ["1 us"]}),
        "Did you mean 'interconnect.leaf.latency'",
    ),
    "p = 0": (changed(axes={"pes": [0]}), "positive"),
    "p negative": (changed(axes={"pes": [-4]}), "positive"),
    "p not whole": (changed(axes={"pes": [1.5]}), "whole"),
    "p not a number": (changed(axes={"pes": ["four"]}), "must be a number"),
    "p beyond float32": (changed(axes={"pes": [2**25]}), "at most"),
    "nan": (changed(axes={"samples_per_pe": [float("nan")]}), "finite"),
    "no value": (changed(axes={"pes": []}), "at least one"),
    "one value twice": (changed(axes={"pes": [4, 4]}), "each value once"),
    "not a list": (changed(axes={"pes": 4}), "must be a list"),
    "no unit": (changed(axes={"interconnect.leaf.bandwidth": [12.5]}), "Write the unit"),
    "wrong unit": (changed(axes={"interconnect.leaf.bandwidth": ["12.5 GB"]}), "no bandwidth"),
    "spacing without a number": (changed(axes={"samples_per_pe": {"linspace": [1, 2]}}), "num is missing"),
    "spacing backwards": (changed(axes={"samples_per_pe": {"linspace": [2, 1], "num": 3}}), "up to stop"),
    "spacing of parts of a PE": (changed(axes={"pes": {"linspace": [1, 8], "num": 3}}), "whole numbers"),
    "two spacings": (changed(axes={"pes": {"linspace": [1, 8], "range": [1, 2, 1]}}), "exactly one"),
    "an optimizer that is no name": (changed(job={"optimizer": {"a": 1}}), "unknown optimizer"),
    "a split that is infinite": (changed(job={"split": [float("inf"), 1]}), "factors such as 2x2"),
    "a step of almost nothing": (changed(axes={"samples_per_pe": {"range": [1, 2, 1e-20]}}), "at most"),
    "a step of nothing": (changed(axes={"interconnect.leaf.latency": {"range": ["1 us", "2 us", "0 us"]}}), "step"),
    "an absurd number": (changed(axes={"pes": [10**400]}), "finite"),
    "an absurd value": (changed(axes={"pes": 10**5000}), "must be a list"),
    "no power of two": (changed(axes={"pes": {"powers_of_two": [5, 7]}}), "no power of two"),
    "too many values": (changed(axes={"samples_per_pe": {"linspace": [1, 2], "num": 10**12}}), "at most"),
    "a figure moved twice": (
        changed(axes={"interconnect.leaf.latency": ["1 us"], "interconnect.*.latency": ["2 us"]}),
        "one axis",
    ),
    "links that lead nowhere": (changed(axes={"interconnect.system.links": [2]}), "no effect"),
    "both batches": (changed(axes={"mini_batch": [64]}), "got both"),
    "no batch": (SMALL | {"axes": {"pes": [4]}}, "one is missing"),
    "no p": (SMALL | {"axes": {"samples_per_pe": [4]}}, "pes is missing"),
    "fixed and varied": (changed(job={"pes": 4}), "axis too"),
    "unknown optimizer": (changed(job={"optimizer": "addam"}), "Did you mean 'adam'"),
    "precision": (changed(precision=16), "32 or 64"),
    "profile": (changed(profile="mine"), "'shipped' or 'none'"),
    "a path as name": (changed(name="../../x"), "plain name"),
    "split": (changed(job={"split": "2y2"}), "factors such as 2x2"),
    "split layers": (changed(job={"split_layers": "nowhere"}), "readable file"),
    "a capacity above the next": (changed(axes={"interconnect.node.capacity": [100]}), "grow from the inside"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_no_sweep_is_an_error_before_anything_is_written(case, tmp_path):
    source, word = BROKEN[case]
    with pytest.raises(OracleError, match=word):
        jaxoracle.sweep(source, tmp_path / "x.zarr")
    assert list(tmp_path.iterdir()) == []


HUGE = {"pes": {"range": [1, 5000, 1]}, "samples_per_pe": {"range": [1, 5000, 1]}}
HUGE |= {"bytes_per_item": {"linspace": [1, 8], "num": 1000}}


def test_a_sweep_that_does_not_fit_is_an_error_before_anything_is_written(tmp_path, monkeypatch):
    with pytest.raises(OracleError, match="fewer values"):
        jaxoracle.sweep(changed(axes=HUGE))
    free = shutil.disk_usage(tmp_path)._replace(free=10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    with pytest.raises(OracleError, match=r"must have room .* 1 GB are free"):
        jaxoracle.sweep(changed(axes=HUGE), tmp_path / "x.zarr")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("source", [5, None, [], b"x"])
def test_what_is_neither_a_file_nor_a_mapping_is_an_error(source):
    with pytest.raises(OracleError, match="path of a file or a mapping"):
        jaxoracle.sweep(source)


def test_mappings_take_what_python_has():
    axes = {"pes": np.arange(1, 4), "samples_per_pe": (2, np.int64(64))}
    spec = read_sweep({"dnn": ("alexnet",), "system": "abci", "strategy": np.array(["data"]), "axes": axes})
    assert [axis.values.tolist() for axis in spec.axes] == [[1, 2, 3], [2, 64]]


@pytest.mark.parametrize("content", [b"\xff\xfe", b"pes = ", b"", b"[axes]\n", b"x = [1, 2]"])
def test_a_file_that_is_no_sweep_is_an_error(content, tmp_path):
    path = tmp_path / "s.toml"
    path.write_bytes(content)
    with pytest.raises(OracleError, match=r"s\.toml"):
        read_sweep(path)


# ---- the dataset ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    return jaxoracle.sweep(SMALL)


def test_totals_are_sums_of_stored_terms(small):
    total = sum(small[name] for name in TIMES)
    np.testing.assert_allclose(small.iteration_time, total.broadcast_like(small.iteration_time), rtol=1e-6)
    assert set(TOTALS) | set(FINDINGS) <= set(small.data_vars)


def test_infeasible_points_are_rows_with_a_reason(small):
    cell = small.sel(strategy="data", pes=8192, samples_per_pe=2, dnn="alexnet")
    assert LIMITS[int(cell.limit)] == "capacity"
    assert not bool(cell.feasible)
    assert np.isnan(cell.iteration_time)
    assert BOTTLENECKS[int(cell.bottleneck)] == "none"
    uneven = small.sel(strategy="data+filter", pes=9, samples_per_pe=2, dnn="alexnet")
    assert LIMITS[int(uneven.limit)] == "group"
    assert np.isnan(uneven.forward)


def test_every_variable_and_coordinate_has_unit_and_long_name(small):
    for name in small.variables:
        assert small[name].attrs["units"], name
        assert small[name].attrs["long_name"], name
    assert small.limit.attrs["flag_meanings"].split() == list(LIMITS)
    assert small.bottleneck.attrs["flag_values"] == list(range(len(BOTTLENECKS)))


def test_slicing_by_strategy_and_scale(small):
    row = small.sel(dnn="alexnet", strategy="data", samples_per_pe=64)
    assert row.iteration_time.dims == ("pes",)
    assert row.iteration_time.sel(pes=8) > row.iteration_time.sel(pes=1)


def test_provenance_names_versions_sources_and_profile_and_no_time_or_host(small):
    attrs = small.attrs
    assert attrs["source"].startswith(f"jaxoracle {jaxoracle.__version__}, jax ")
    assert "spread by FLOPs" in attrs["profile of alexnet on abci"]
    assert len(attrs["sweep_digest"]) == 64
    assert str(time.localtime().tm_year) not in str({k: v for k, v in attrs.items() if k.startswith("time")})
    assert os.uname().nodename not in str(attrs)


def test_an_axis_on_the_device_is_not_dead_where_a_profile_is_shipped():
    moved = jaxoracle.sweep(changed(axes={"device.peak": ["1 TFLOP/s", "10 TFLOP/s"]}))
    times = moved.forward.sel(strategy="data", samples_per_pe=64, pes=1)
    assert (times.isel({"device.peak": 0}) > times.isel({"device.peak": 1})).all()
    assert moved.attrs["profile of alexnet on abci"] == "none: roofline"


@pytest.mark.parametrize("precision", [32, 64])
def test_one_replica_exchanges_no_gradients_exactly(precision):
    """Compiled for a grid p/p₂ may be a product with a reciprocal: 6 (1/6) is not 1."""
    whole = list(range(1, 50))
    hybrids = ["data+spatial", "data+pipeline", "data+filter", "data+channel"]
    axes = {"group": whole, "pes": whole, "samples_per_pe": [1, 3], "interconnect.*.latency": ["1 us", "2 us"]}
    dataset = jaxoracle.sweep(
        changed(strategy=hybrids, precision=precision) | {"axes": axes, "job": {"hierarchical": False}}
    )
    for pes in whole:
        one = dataset.gradient_exchange.sel(pes=pes, group=pes, strategy=hybrids[1:])
        assert (one == 0).all(), pes
    assert not (dataset.gradient_exchange < 0).any()
    assert not (dataset.bandwidth_time < 0).any()


def test_two_systems_are_a_dim_and_one_is_a_label():
    both = jaxoracle.sweep(SMALL | {"system": ["abci", "dgx-a100"]})
    assert both.iteration_time.sizes["system"] == 2
    one = jaxoracle.sweep(SMALL | {"system": "dgx-a100"})
    close(both.sel(system="dgx-a100").iteration_time, one.iteration_time, rtol=1e-6)


def test_strong_scaling_fixes_the_mini_batch():
    dataset = jaxoracle.sweep(SMALL | {"axes": {"pes": [1, 2, 48], "mini_batch": [96]}})
    close(dataset.throughput * dataset.iteration_time, np.full(dataset.throughput.shape, 96.0), rtol=1e-6)
    close(dataset.speedup.sel(strategy="data", pes=1), np.ones((1, 1)), rtol=1e-6)


def test_the_ranking_of_table_viii_is_the_published_one():
    path = next(p for p in SWEEPS if p.stem == "paradl_table8")
    dataset = jaxoracle.sweep(path)
    batches = {"paradl-resnet50": (256, 64, 64), "paradl-vgg16": (32, 32, 32)}
    for (name, (spatial, hybrid, pure)), pes in itertools.product(batches.items(), (32, 64)):
        epochs = dataset.epoch_time.sel(dnn=name, pes=pes).isel(
            {"interconnect.leaf.latency": 1, "interconnect.node.links": 1}
        )
        ranked = [
            epochs.sel(strategy="data+spatial", mini_batch=spatial * pes // 4),
            epochs.sel(strategy="data+filter", mini_batch=hybrid * pes // 4),
            epochs.sel(strategy="filter", mini_batch=pure),
            epochs.sel(strategy="channel", mini_batch=pure),
        ]
        assert ranked[0] < ranked[1] < ranked[2]
        close(ranked[2], ranked[3])
    cell = dataset.sel(dnn="paradl-resnet50", pes=64, strategy="filter", mini_batch=64)
    cell = cell.isel({"interconnect.leaf.latency": 1, "interconnect.node.links": 1})
    assert abs(float(cell.epoch_time) - 18731.2) < 1


# ---- the store -----------------------------------------------------------------------------------------------------


def files(store):
    return {path.relative_to(store): path.read_bytes() for path in sorted(store.rglob("*")) if path.is_file()}


@pytest.fixture
def sweep_file(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(TEXT)
    return path


def test_a_store_opens_bare_without_a_warning(sweep_file, tmp_path):
    jaxoracle.sweep(sweep_file, tmp_path / "s.zarr")
    code = f"import xarray; d = xarray.open_zarr({str(tmp_path / 's.zarr')!r}); d.load(); assert 'iteration_time' in d"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_a_store_holds_what_the_sweep_returns(sweep_file, tmp_path, small):
    jaxoracle.sweep(sweep_file, tmp_path / "s.zarr")
    found = jaxoracle.open(tmp_path / "s.zarr")
    assert set(found.variables) == set(small.variables)
    for name in small.data_vars:
        np.testing.assert_array_equal(found[name], small[name].transpose(*found[name].dims), err_msg=name)
        assert found[name].attrs["units"] == small[name].attrs["units"]


def test_every_file_of_a_re_run_is_byte_identical(sweep_file, tmp_path):
    for name in ("a.zarr", "b.zarr"):
        jaxoracle.sweep(sweep_file, tmp_path / name)
    assert files(tmp_path / "a.zarr") == files(tmp_path / "b.zarr")


def test_a_complete_store_is_left_alone_and_another_sweep_s_is_not_replaced_unasked(sweep_file, tmp_path):
    store = tmp_path / "s.zarr"
    assert land(read_sweep(sweep_file), store) is not None
    before = files(store)
    assert land(read_sweep(sweep_file), store) is None
    sweep_file.write_text(TEXT.replace("64]", "32]"))
    with pytest.raises(OracleError, match="--overwrite"):
        land(read_sweep(sweep_file), store)
    assert files(store) == before
    assert land(read_sweep(sweep_file), store, overwrite=True) is not None
    assert xr.open_zarr(store).samples_per_pe.values.tolist() == [2, 32]


def test_a_changed_system_file_is_another_sweep(tmp_path):
    system = Path(jaxoracle.__file__).parent / "systems" / "abci.toml"
    (tmp_path / "mine.toml").write_text(system.read_text())
    (tmp_path / "s.toml").write_text(TEXT.replace('"abci"', '"mine.toml"'))
    first = read_sweep(tmp_path / "s.toml").digest
    (tmp_path / "mine.toml").write_text(system.read_text().replace('"9 us"', '"8 us"'))
    assert read_sweep(tmp_path / "s.toml").digest != first


@pytest.mark.parametrize("thing", ["folder", "file", "broken link", "half a store"])
def test_what_is_in_the_way_is_left_alone_even_with_overwrite(thing, sweep_file, tmp_path):
    place = tmp_path / "s.zarr"
    if thing == "folder":
        place.mkdir()
        (place / "precious").write_text("x")
    elif thing == "file":
        place.write_text("x")
    elif thing == "broken link":
        place.symlink_to(tmp_path / "nowhere")
    else:
        place.mkdir()
        (place / "zarr.json").write_text('{"attributes": ')
    before = sorted(str(p) for p in tmp_path.rglob("*"))
    with pytest.raises(OracleError, match="something else is there"):
        land(read_sweep(sweep_file), place, overwrite=True)
    assert sorted(str(p) for p in tmp_path.rglob("*")) == before


def test_a_place_that_cannot_be_written_is_one_error(sweep_file, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OracleError, match="can be written"):
        land(read_sweep(sweep_file), tmp_path / "file" / "s.zarr")


def test_opening_selects_before_it_forms_totals(sweep_file, tmp_path):
    jaxoracle.sweep(sweep_file, tmp_path / "s.zarr")
    assert jaxoracle.open(tmp_path / "s.zarr").memory.idxmin("strategy").dtype == object
    found = jaxoracle.open(tmp_path / "s.zarr", strategy="data", pes=8)
    assert found.throughput.dims == ("dnn", "samples_per_pe")
    with pytest.raises(OracleError, match="must be among"):
        jaxoracle.open(tmp_path / "s.zarr", strategy="dta")
    with pytest.raises(OracleError, match="Did you mean 'strategy'"):
        jaxoracle.open(tmp_path / "s.zarr", strateg="data")
    near = jaxoracle.open(tmp_path / "s.zarr", strategy="data", pes=7, method="nearest")
    assert int(near.pes) == 8


@pytest.mark.parametrize("name", ["nowhere.zarr", "s.toml"])
def test_opening_what_is_no_store_is_an_error(name, sweep_file, tmp_path):
    with pytest.raises(OracleError, match="sweep's store"):
        jaxoracle.open(tmp_path / name)
