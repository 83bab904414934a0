"""How sweeps land: region by region, resumable after any end, one line for what goes wrong."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import xarray as xr
import zarr
from click.testing import CliRunner

import jaxoracle
from jaxoracle.cli import main
from jaxoracle.engine import land, layout, read, read_sweep
from jaxoracle.engine.landing import in_memory
from jaxoracle.engine.store import TEXTS, Folder
from jaxoracle.errors import OracleError

TEXT = """
dnn = ["alexnet", "cosmoflow"]
system = "abci"
strategy = ["data", "filter", "data+pipeline"]
[axes]
pes = { range = [2, 24, 2] }
samples_per_pe = [2, 64, 100]
"interconnect.*.latency" = { geomspace = ["1 us", "100 us"], num = 40 }
"""
#: regions of this size cut the sweep above into dozens
REGION = 20_000


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def cut(monkeypatch):
    """Small regions and smaller chunks."""
    monkeypatch.setattr("jaxoracle.engine.landing.region_bytes", lambda memory: REGION)
    monkeypatch.setattr(layout, "CHUNK_BYTES", REGION // 4)


def files(store):
    return {str(path.relative_to(store)): path.read_bytes() for path in sorted(store.rglob("*")) if path.is_file()}


def test_regions_and_chunks_hold_what_is_computed_at_once(file, tmp_path, cut, monkeypatch):
    told = []
    land(read_sweep(file), tmp_path / "s.zarr", progress=lambda *state: told.append(state))
    assert told[0][0] == 0
    assert told[-1][0] == told[-1][1] > 10
    monkeypatch.undo()
    assert land(read_sweep(file), tmp_path / "s.zarr") is None
    whole, landed = in_memory(read_sweep(file)), read(tmp_path / "s.zarr")
    assert set(landed.variables) == set(whole.variables)
    for name in whole.variables:
        if whole[name].dtype == object:
            np.testing.assert_array_equal(landed[name], whole[name])
        else:
            np.testing.assert_allclose(landed[name], whole[name], rtol=2e-6, err_msg=name)


class Stopped(Exception):
    pass


@pytest.mark.parametrize("after", [0, 1, 2, 7, 40, 90])
def test_an_interrupted_run_is_resumed_and_every_file_is_the_same(after, file, tmp_path, cut, monkeypatch):
    land(read_sweep(file), tmp_path / "whole.zarr")
    store, put, count = tmp_path / "s.zarr", Folder.put, []

    def stopping(self, name, data):
        if len(count) == after:
            raise Stopped
        count.append(name)
        put(self, name, data)

    monkeypatch.setattr(Folder, "put", stopping)
    with pytest.raises(Stopped):
        land(read_sweep(file), store)
    monkeypatch.setattr(Folder, "put", lambda self, name, data: (count.append(name), put(self, name, data)))
    with pytest.warns(UserWarning, match=f"{after} of .* chunks|partial"):
        read(store)
    assert "partial" in xr.open_zarr(store).attrs["status"]
    del count[:]
    land(read_sweep(file), store)
    assert files(store) == files(tmp_path / "whole.zarr")
    chunks = len(list(store.glob("*/c*"))) - len(xr.open_zarr(store).coords)
    assert len(count) <= chunks - after + 40  # those of the region in flight, and the end
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.toml", "s.zarr", "whole.zarr"]


SLOWLY = """
import sys, time
from jaxoracle.engine import land, landing, layout, read_sweep
from jaxoracle.engine.store import TEXTS, Folder
landing.region_bytes = lambda memory: {region}
layout.CHUNK_BYTES = {region} // 4
put = Folder.put
def slow(self, name, data):
    time.sleep(0.002)
    put(self, name, data)
Folder.put = slow
land(read_sweep(sys.argv[1]), sys.argv[2])
"""


def test_kill_9_at_random_moments_loses_the_chunk_in_flight_only(file, tmp_path, cut):
    land(read_sweep(file), tmp_path / "whole.zarr")
    (tmp_path / "out").mkdir()
    store, chance = tmp_path / "out" / "s.zarr", random.Random(7)
    before = {}
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", SLOWLY.format(region=REGION), str(file), str(store)])
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if store.exists() and len(list(store.glob("*/c*"))) > len(before):
                break
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.15))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        now = files(store)
        assert {name: now[name] for name in before if name != "zarr.json"} == {
            name: data for name, data in before.items() if name != "zarr.json"
        }
        before = now
    land(read_sweep(file), store)
    assert files(store) == files(tmp_path / "whole.zarr")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["s.zarr"]  # leftovers of killed runs are gone


def test_a_changed_sweep_does_not_resume_onto_a_partial_store(file, tmp_path, cut):
    store = tmp_path / "s.zarr"
    land(read_sweep(file), store)
    next((store / "forward").glob("c*")).unlink()
    before = files(store)
    file.write_text(TEXT.replace("100]", "101]"))
    with pytest.raises(OracleError, match="another sweep"):
        land(read_sweep(file), store)
    assert files(store) == before


def test_lost_chunks_are_computed_again(file, tmp_path, cut):
    store = tmp_path / "s.zarr"
    land(read_sweep(file), store)
    before = files(store)
    for chunk in (store / "iteration_time").glob("c*"):
        chunk.unlink()
    assert land(read_sweep(file), store) is not None
    assert files(store) == before


def test_a_store_begun_with_more_memory_is_not_resumed_with_less(file, tmp_path, cut, monkeypatch):
    store = tmp_path / "s.zarr"
    land(read_sweep(file), store)
    next((store / "forward").glob("c*")).unlink()
    monkeypatch.setattr("jaxoracle.engine.landing.region_bytes", lambda memory: REGION - 1)
    with pytest.raises(OracleError, match="as much memory as before"):
        land(read_sweep(file), store)


@pytest.mark.parametrize("after", [0, 20])
def test_a_full_disk_is_one_line_and_what_is_complete_stays(after, file, tmp_path, cut, monkeypatch):
    store, put, count = tmp_path / "s.zarr", Folder.put, []

    def full(self, name, data):
        if len(count) >= after:
            raise OSError(28, "No space left on device")
        count.append(name)
        put(self, name, data)

    monkeypatch.setattr(Folder, "put", full)
    with pytest.raises(OracleError, match=r"No space left on device\. What is complete stays"):
        land(read_sweep(file), store)
    monkeypatch.undo()
    with pytest.warns(UserWarning, match="partial"):
        assert read(store).sizes["pes"] == 12


def test_a_store_removed_while_it_is_written_is_one_line(file, tmp_path, cut, monkeypatch):
    store, put = tmp_path / "s.zarr", Folder.put
    gone = []

    def removing(self, name, data):
        if not gone:
            gone.append(store.rename(tmp_path / "elsewhere"))
        put(self, name, data)

    monkeypatch.setattr(Folder, "put", removing)
    with pytest.raises(OracleError, match="was removed while the sweep ran"):
        land(read_sweep(file), store)
    assert not store.exists()


def test_what_appears_at_the_place_meanwhile_is_left_alone(file, tmp_path, cut, monkeypatch):
    store, create = tmp_path / "s.zarr", Folder.create

    def meanwhile(self, content):
        store.mkdir()
        (store / "thesis.tex").write_text("precious")
        create(self, content)

    monkeypatch.setattr(Folder, "create", meanwhile)
    with pytest.raises(OracleError, match="appeared there meanwhile"):
        land(read_sweep(file), store)
    monkeypatch.undo()
    for overwrite in (False, True):
        with pytest.raises(OracleError, match="something else is there"):
            land(read_sweep(file), store, overwrite=overwrite)
    assert (store / "thesis.tex").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.toml", "s.zarr"]


@pytest.mark.parametrize("options", ['compression = "zstd"', 'compression = "none"', "bits = 12", ""])
def test_packing_changes_size_and_rounding_only(options, file, tmp_path, cut):
    file.write_text(TEXT + "[store]\n" + options)
    land(read_sweep(file), tmp_path / "s.zarr")
    landed, whole = read(tmp_path / "s.zarr"), in_memory(read_sweep(file))
    tolerance = 2**-12 if "bits" in options else 2e-6
    for name in whole.data_vars:
        np.testing.assert_allclose(landed[name], whole[name], rtol=tolerance, err_msg=name)
    codecs = json.loads((tmp_path / "s.zarr" / "forward" / "zarr.json").read_text())["codecs"]
    expected = {"none": None, "zstd": "zstd"}.get(options.partition('"')[2].rstrip('"'), "lz4")
    assert next((c["configuration"]["cname"] for c in codecs if c["name"] == "blosc"), None) == expected


def test_zarr_itself_would_write_the_same_bytes(file, tmp_path, cut):
    land(read_sweep(file), tmp_path / "s.zarr")
    before = files(tmp_path / "s.zarr")
    with zarr.config.set({"array.write_empty_chunks": True}):
        for name, array in zarr.open_group(tmp_path / "s.zarr", mode="r+").arrays():
            if name not in TEXTS:
                array[...] = array[...]
    after = files(tmp_path / "s.zarr")
    assert {name for name in before if after[name] != before[name]} == set()


@pytest.mark.parametrize("wrong", ['compression = "lz5"', "bits = 0", "bits = 24", "bits = 2.5", "level = 3"])
def test_wrong_packing_is_an_error(wrong, file):
    file.write_text(TEXT + "[store]\n" + wrong)
    with pytest.raises(OracleError, match=r"s\.toml: store"):
        read_sweep(file)


# ---- the command line ----------------------------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(main, arguments)


def test_a_dry_run_says_what_would_be_written_and_writes_nothing(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = json.loads(run("sweep", "s.toml", "--dry-run", "--json").stdout)
    assert [path.name for path in tmp_path.iterdir()] == ["s.toml"]
    assert found["dims"] == {
        "strategy": 3,
        "dnn": 2,
        "pes": len(range(2, 25, 2)),
        "samples_per_pe": 3,
        "interconnect.*.latency": 40,
    }
    assert found["points"] == 3 * 2 * 12 * 3 * 40
    assert found["seconds"] > 0
    text = run("sweep", "s.toml", "--dry-run").stdout
    assert "nothing was written" in text
    assert run("sweep", "s.toml").exit_code == 0
    held = json.loads(run("info", "results/s.zarr", "--json").stdout)
    assert held["dims"] == found["dims"]
    stored = {v["name"] for v in held["variables"]}
    assert {v["name"] for v in found["variables"]} <= stored
    coordinates = 5 + 1  # dims, and the one system
    assert held["chunks"] == found["chunks"] + coordinates


def test_info_says_how_complete_a_store_is(file, tmp_path):
    store = tmp_path / "s.zarr"
    land(read_sweep(file), store)
    found = json.loads(run("info", str(store), "--json").stdout)
    assert found["complete"] == 1
    assert found["attributes"]["sweep_digest"] == read_sweep(file).digest
    next((store / "forward").glob("c*")).unlink()
    found = json.loads(run("info", str(store), "--json").stdout)
    assert found["complete"] == 1 - 1 / found["chunks"]
    text = run("info", str(store)).stdout
    assert "partial" in text
    assert "sweep_digest" in text
    assert run("info", str(tmp_path)).exit_code == 2


@pytest.mark.parametrize("memory", ["1", "0.1 GB", "3 s", "-2 GB", "nan GB"])
def test_memory_takes_a_unit_and_enough_of_it(memory, file, tmp_path):
    result = run("sweep", str(file), "-o", str(tmp_path / "s.zarr"), "--memory", memory)
    assert result.exit_code == 2
    assert "memory" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["s.toml"]


def test_ctrl_c_leaves_a_store_that_is_resumed(file, tmp_path, monkeypatch):
    store, put, count = tmp_path / "s.zarr", Folder.put, []

    def interrupted(self, name, data):
        if len(count) == 5:
            raise KeyboardInterrupt
        count.append(name)
        put(self, name, data)

    monkeypatch.setattr(Folder, "put", interrupted)
    result = run("sweep", str(file), "-o", str(store))
    monkeypatch.undo()
    assert result.exit_code == 130
    assert "The same command goes on" in result.stderr
    assert run("sweep", str(file), "-o", str(store)).exit_code == 0
    assert jaxoracle.open(store).attrs["status"] == "complete"
