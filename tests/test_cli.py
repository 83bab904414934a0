"""The command line: answers, JSON, one-line errors with exit code 2, and nothing half-written."""

import json
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner
from conftest import close

import jaxoracle
from jaxoracle.cli import main
from jaxoracle.records import BOTTLENECKS, LIMITS, MEMORIES, TIMES
from jaxoracle.strategies import STRATEGIES

ASK = ("project", "alexnet", "--system", "abci")
SMALL = (*ASK, "--pes", "8", "--samples-per-pe", "16")


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def rows(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def by_strategy(*arguments):
    return {row["strategy"]: row for row in rows(*arguments)}


# ---- list ----------------------------------------------------------------------------------------------------------


def test_lists_name_everything():
    assert set(STRATEGIES) == {row["name"] for row in rows("list", "strategies")}
    assert {"resnet50", "paradl-cosmoflow512"} < {row["name"] for row in rows("list", "dnns")}
    assert {"abci", "summit"} < {row["name"] for row in rows("list", "systems")}
    assert "quickstart" in run("list", "sweeps").output
    assert "25,557,032 parameters" in run("list", "dnns").output


def test_listing_sweeps_where_none_are_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("list", "sweeps")
    assert result.exit_code == 2
    assert "no sweep file" in result.stderr


# ---- project -------------------------------------------------------------------------------------------------------


def test_strategies_are_ranked_by_epoch_time_and_infeasible_ones_come_last():
    found = rows(*SMALL)
    assert {row["strategy"] for row in found} == set(STRATEGIES)
    feasible = [row["feasible"] for row in found]
    assert feasible == sorted(feasible, reverse=True)
    epochs = [row["epoch_time"] for row in found if row["feasible"]]
    assert epochs == sorted(epochs)


def test_a_row_has_every_term_in_si_and_names_for_codes():
    row = by_strategy(*SMALL)["data+filter"]
    for name in ("iteration_time", "epoch_time", "memory", "throughput", "speedup", *TIMES, *MEMORIES):
        assert isinstance(row[name], float), name
    assert (row["pes"], row["group"], row["mini_batch"]) == (8, 4, 128)
    assert row["limit"] in LIMITS
    assert row["bottleneck"] in BOTTLENECKS
    close(sum(row[name] for name in TIMES), row["iteration_time"], rtol=1e-6)
    close(sum(row[name] for name in MEMORIES), row["memory"], rtol=1e-6)
    close(row["epoch_time"], row["iteration_time"] * 1281167 / 128, rtol=1e-6)
    assert "spread by FLOPs" in row["profile"]


def test_the_answer_is_that_of_python():
    row = by_strategy(*SMALL, "--precision", "64", "--profile", "none", "--strategy", "spatial")["spatial"]
    import jax

    with jax.enable_x64(True):
        job = jaxoracle.Job(pes=8, samples_per_pe=16)
        found = jaxoracle.project("spatial", jaxoracle.dnn("alexnet"), job, jaxoracle.system("abci"))
        close(row["iteration_time"], found.iteration_time)


def test_times_that_mean_nothing_are_null_and_rows_stay():
    found = by_strategy(*ASK, "--pes", "6", "--samples-per-pe", "4")
    assert found["data+filter"]["limit"] == "group"
    assert found["data+filter"]["iteration_time"] is None
    assert "p2 = 4 does not divide p = 6" in found["data+filter"]["reason"]
    assert found["data"]["iteration_time"] > 0
    some = ("--strategy", "data", "--strategy", "pipeline", "--strategy", "data+filter")
    far = rows("project", "alexnet", "--system", "workstation", "--pes", "64", "--samples-per-pe", "4", *some)
    assert {row["limit"] for row in far} == {"capacity"}


def test_needed_and_available_bytes_are_shown():
    result = run(
        "project",
        "cosmoflow@512",
        "--system",
        "abci",
        "--pes",
        "4",
        "--samples-per-pe",
        "0.25",
        "--strategy",
        "spatial",
    )
    assert "of 16 GB" in result.output
    row = rows(
        "project", "cosmoflow@512", "--system", "abci", "--pes", "4", "--mini-batch", "1", "--strategy", "spatial"
    )[0]
    assert row["memory"] > 20e9
    assert row["memory_bytes"] == pytest.approx(16e9)
    assert not row["feasible"]


def test_the_largest_batch_fits_and_one_more_does_not():
    row = by_strategy(*ASK, "--pes", "8", "--samples-per-pe", "max", "--strategy", "data")["data"]
    assert row["feasible"]
    more = by_strategy(*ASK, "--pes", "8", "--samples-per-pe", row["samples_per_pe"] + 1, "--strategy", "data")["data"]
    assert more["limit"] == "memory"


def test_the_best_group_is_the_best_of_all_divisors():
    def epoch(group):
        row = rows(*ASK, "--pes", "12", "--samples-per-pe", "8", "--strategy", "data+filter", "--group", group)[0]
        return (not row["feasible"], row["epoch_time"], row["group"])

    best = epoch("all")
    assert best == min(epoch(group) for group in (1, 2, 3, 4, 6, 12))


def test_strong_scaling_keeps_the_mini_batch():
    assert rows(*ASK, "--pes", "12", "--mini-batch", "100", "--strategy", "data")[0]["mini_batch"] == 100


@pytest.mark.parametrize(
    ("options", "term"),
    [
        (("--optimizer", "adam"), "optimizer"),
        (("--bytes-per-item", "2"), "weights"),
        (("--reuse", "0.5"), "activations"),
        (("--dataset-size", "1000"), "epoch_time"),
        (("--hierarchical",), "gradient_exchange"),
        (("--split", "2x2"), "halo_exchange"),
        (("--split-layers", "convolutions"), "halo_exchange"),
        (("--profile", "none"), "forward"),
        (("--input-size", "256"), "forward"),
        (("--group", "2"), "gradient_exchange"),
    ],
)
def test_every_option_changes_an_answer(options, term):
    ask = (*SMALL, "--strategy", "data+spatial")
    assert rows(*ask)[0][term] != rows(*ask, *options)[0][term]


def test_segments_change_a_pipeline():
    ask = (*SMALL, "--strategy", "pipeline")
    assert rows(*ask)[0]["forward"] != rows(*ask, "--segments", "2")[0]["forward"]


def test_layers_to_split_can_be_named_in_a_file(tmp_path):
    path = tmp_path / "split.txt"
    path.write_text("convolution_1\nactivation_2  # and no more\n")
    ask = (*SMALL, "--strategy", "spatial")
    named = rows(*ask, "--split-layers", path)[0]
    path.write_text("1\n1\n" + 16 * "0\n")
    assert rows(*ask, "--split-layers", path)[0] == named
    for text, word in (("convolution_99\n", "Did you mean"), ("1\n0\n", "for each of the 18 layers")):
        path.write_text(text)
        result = run(*ask, "--split-layers", path)
        assert result.exit_code == 2
        assert word in result.stderr


# ---- explain -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_explained_terms_sum_to_the_totals(strategy):
    result = run(
        "explain",
        "alexnet",
        "--system",
        "abci",
        "--pes",
        "8",
        "--samples-per-pe",
        "4",
        "--strategy",
        strategy,
        "--json",
    )
    found = json.loads(result.stdout)
    for unit, total in (("s", found["iteration_time"]), ("byte", found["memory"])):
        terms = [row for row in found["terms"] if row["unit"] == unit]
        close(sum(row["value"] for row in terms), total, rtol=1e-6)
        close(sum(row["share"] for row in terms), 1.0, rtol=1e-6)
    assert all(row["inputs"] and row["formula"] and row["source"] for row in found["terms"] if row["value"])
    moved = sum(e["startup_time"] + e["transfer_time"] + e["congestion_time"] for e in found["events"])
    exchanged = sum(row["value"] for row in found["terms"] if row["term"] in TIMES[3:])
    close(moved, exchanged, rtol=1e-5)


def test_inputs_are_those_that_a_term_depends_on():
    ask = ("explain", "alexnet", "--system", "abci", "--pes", "8", "--samples-per-pe", "4", "--profile", "none")
    found = json.loads(run(*ask, "--strategy", "data", "--json").stdout)
    inputs = {row["term"]: set(row["inputs"]) for row in found["terms"]}
    assert "device.peak" in inputs["forward"]
    assert "device.peak" not in inputs["gradient_exchange"]
    assert {"interconnect.leaf.latency", "interconnect.leaf.bandwidth"} <= inputs["gradient_exchange"]
    assert not {name for name in inputs["forward"] if name.startswith("interconnect")}
    assert not {"interconnect.node.bandwidth", "interconnect.rack.latency"} & inputs["gradient_exchange"]
    assert "job.samples_per_pe" not in inputs["gradient_exchange"]
    assert inputs["weights"] == {"layers.weight_items", "layers.kind", "job.bytes_per_item"}


def test_an_explanation_says_whether_it_is_feasible_and_which_formula_is_in_use():
    ask = ("explain", "alexnet", "--system", "abci", "--samples-per-pe", "4", "--strategy", "data+spatial")
    assert "infeasible: p2 = 4 does not divide p = 6" in run(*ask, "--pes", "6").output
    flat, leader = (run(*ask, "--pes", "8", *more).output for more in ((), ("--hierarchical",)))
    assert "flat: 2 (p-1)" in flat
    assert "hierarchical: " not in flat
    assert "hierarchical: 2 (p2-1)" in leader
    found = json.loads(run(*ask, "--pes", "6", "--json").stdout)
    assert found["iteration_time"] is None
    assert found["limit"] == "group"


@pytest.mark.parametrize(
    ("pes", "more", "share"),
    [
        (1, (), 1 / 7),
        (2, (), 2 / 7),
        (7, (), 1),
        (14, (), 2),
        (4, ("--split", "2x2"), 2 / 7),
        (8, ("--split", "1x8"), 8 / 7),
    ],
)
def test_number_of_pes_of_spatial_is_over_the_extents_that_it_splits(pes, more, share):
    """ResNet-50's smallest split extent is 7."""
    ask = ("project", "resnet50", "--system", "abci", "--mini-batch", "64", "--strategy", "spatial")
    row = rows(*ask, "--pes", pes, *more)[0]
    assert row["findings"]["number_of_pes"] == pytest.approx(share, rel=1e-6)


def test_what_splits_nothing_uses_one_pe(tmp_path):
    path = tmp_path / "mlp.toml"
    path.write_text('name = "mlp"\ninput = [64]\n[[layer]]\nkind = "dense"\nfilters = 32\n')
    ask = ("project", path, "--system", "abci", "--samples-per-pe", "4", "--strategy", "spatial")
    assert rows(*ask, "--pes", "16")[0]["limit"] == "pes"
    assert rows(*ask, "--pes", "1")[0]["feasible"]


def test_an_explanation_is_text_for_people():
    text = run(
        "explain", "alexnet", "--system", "abci", "--pes", "8", "--samples-per-pe", "4", "--strategy", "filter"
    ).output
    for word in (
        "7 x ring_allgather",
        "Table III, filter",
        "memory per PE",
        "interconnect.leaf.latency",
        "feasible, ",
    ):
        assert word in text


# ---- sweep ---------------------------------------------------------------------------------------------------------

SWEEP = 'dnn = "alexnet"\nsystem = "abci"\nstrategy = "data"\n[axes]\npes = [1, 2]\nsamples_per_pe = [2]\n'


def test_a_sweep_lands_in_results_says_what_it_did_and_is_not_run_twice(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ask.toml").write_text(SWEEP)
    first = run("sweep", "ask.toml")
    assert first.exit_code == 0
    assert "pes 2" in first.stdout
    assert "2 points" in first.stdout
    assert "results/ask.zarr" in first.stdout
    assert jaxoracle.open("results/ask.zarr").sizes["pes"] == 2
    second = run("sweep", "ask.toml")
    assert second.exit_code == 0
    assert "complete already" in second.stdout
    (tmp_path / "ask.toml").write_text(SWEEP.replace("[2]", "[4]"))
    third = run("sweep", "ask.toml")
    assert third.exit_code == 2
    assert "--overwrite" in third.stderr
    assert run("sweep", "ask.toml", "--overwrite").exit_code == 0


# ---- errors --------------------------------------------------------------------------------------------------------

WRONG = [
    ("project", "resnet51", "--system", "abci", "--pes", "4", "--samples-per-pe", "1"),
    ("project", "alexnet", "--system", "abic", "--pes", "4", "--samples-per-pe", "1"),
    ("project", "nowhere.toml", "--system", "abci", "--pes", "4", "--samples-per-pe", "1"),
    ("project", "alexnet", "--system", "nowhere.toml", "--pes", "4", "--samples-per-pe", "1"),
    ("project", "/", "--system", "abci", "--pes", "4", "--samples-per-pe", "1"),
    (*ASK,),
    (*ASK, "--pes", "4"),
    (*ASK, "--pes", "0", "--samples-per-pe", "1"),
    (*ASK, "--pes", "-4", "--samples-per-pe", "1"),
    (*ASK, "--pes", "nan", "--samples-per-pe", "1"),
    (*ASK, "--pes", "2.5", "--samples-per-pe", "1"),
    (*ASK, "--pes", "1e30", "--samples-per-pe", "1"),
    (*ASK, "--pes", "four", "--samples-per-pe", "1"),
    (*ASK, "--pes", "4", "--samples-per-pe", "0"),
    (*ASK, "--pes", "4", "--samples-per-pe", "inf"),
    (*ASK, "--pes", "4", "--samples-per-pe", "1", "--mini-batch", "4"),
    (*ASK, "--pes", "4", "--samples-per-pe", "max", "--mini-batch", "4"),
    (*SMALL, "--strategy", "dta"),
    (*SMALL, "--group", "0"),
    (*SMALL, "--segments", "1.5"),
    (*SMALL, "--optimizer", "addam"),
    (*SMALL, "--split", "2y2"),
    (*SMALL, "--split-layers", "nowhere"),
    (*SMALL, "--profile", "nowhere.toml"),
    (*SMALL, "--precision", "16"),
    (*SMALL, "--reuse", "2"),
    (*SMALL, "--bytes-per-item", "0"),
    (*SMALL, "--dataset-size", "0"),
    (*SMALL, "--input-size", "0x0"),
    (*SMALL, "--sped", "1"),
    ("explain", "alexnet", "--system", "abci", "--pes", "4", "--samples-per-pe", "1", "--strategy", "filtr"),
    ("sweep", "nowhere.toml"),
    ("sweep", "/"),
    ("sweep",),
    ("list", "dnnss"),
    ("swep", "x.toml"),
]


@pytest.mark.parametrize("arguments", WRONG, ids=lambda a: " ".join(a[:1] + a[4:]))
def test_bad_input_is_one_line_and_exit_code_2(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_name_gives_the_nearest_and_no_number():
    result = run("project", "alexnet", "--system", "dgx-a10", "--pes", "4", "--samples-per-pe", "1")
    assert "Did you mean 'dgx-a100'" in result.stderr


def test_a_full_output_is_one_line():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "jaxoracle", "list", "dnns"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("Error: the output could not be written")
    assert result.stderr.count("\n") == 1


# ---- start-up ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_import_nothing_heavy(argument):
    code = (
        "import sys; from click.testing import CliRunner; from jaxoracle.cli import main; "
        f"r = CliRunner().invoke(main, [{argument!r}]); assert r.exit_code == 0; "
        "heavy = {'jax', 'numpy', 'xarray', 'zarr'} & set(sys.modules); assert not heavy, heavy"
    )
    start = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True)
    assert time.monotonic() - start < 30  # not a timing: a process that hangs
