"""Networks, systems and profiles by name and by file."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from conftest import close

import jaxoracle
from jaxoracle.catalog import dnn_names, find_dnn, find_profile, find_system, published_names, read_system, system_names
from jaxoracle.errors import OracleError

ABCI = (Path(jaxoracle.__file__).parent / "systems" / "abci.toml").read_text()
FULL = (
    ABCI.replace("[[interconnect]]", 'price = "2.0 USD/hour"\n\n[[interconnect]]', 1)
    .replace('level = "leaf"', 'level = "leaf"\nlinks = 17')
    .replace('level = "rack"', 'level = "rack"\nlinks = 20')
)


def system_file(folder, text):
    path = folder / "machine.toml"
    path.write_text(text)
    return str(path)


# ---- every figure of a system file changes an answer ---------------------------------------------------------------


def lines_with_figures(text):
    return [
        i
        for i, line in enumerate(text.splitlines())
        if "=" in line and not line.startswith(("name", "source", "#", "level"))
    ]


def changed(line):
    key, _, value = line.partition("=")
    value = value.split("#")[0].strip()
    if value.startswith('"'):
        number, _, unit = value.strip('"').partition(" ")
        return f'{key}= "{float(number) * 0.9} {unit}"'
    if key.strip() == "capacity":
        return f"{key}= {int(value) - 1}"
    return f"{key}= {float(value) * 0.5}"


def all_answers(system):
    """Everything that is said of jobs of several spans."""
    layers, rows = jaxoracle.dnn("alexnet"), []
    for pes, group in ((3, 3), (4, 2), (60, 4), (68, 4), (134, 2), (136, 34), (4350, 2), (4352, 68)):
        for strategy in ("data", "filter", "data+filter"):
            job = jaxoracle.Job(pes=pes, samples_per_pe=16, group=group)
            found = jaxoracle.project(strategy, layers, job, system)
            rows.append([float(getattr(found, f.name)) for f in dataclasses.fields(found)])
            rows.append([float(found.epoch_cost), float(found.limit)])
    return rows


@pytest.mark.parametrize(
    "position", lines_with_figures(FULL), ids=lambda i: f"line{i}-{FULL.splitlines()[i].split('=')[0].strip()}"
)
def test_changing_any_figure_of_a_system_file_changes_an_answer(position, tmp_path):
    lines = FULL.splitlines()
    lines[position] = changed(lines[position])
    before = all_answers(jaxoracle.system(system_file(tmp_path, FULL)))
    after = all_answers(jaxoracle.system(system_file(tmp_path, "\n".join(lines))))
    assert any(not np.array_equal(a, b, equal_nan=True) for a, b in zip(before, after, strict=True))


# ---- systems -------------------------------------------------------------------------------------------------------


def test_abci_is_the_paper_s_machine():
    machine = find_system("abci")
    assert machine.levels == ("node", "leaf", "rack", "system")
    assert machine.system.capacity.tolist() == [4, 68, 136, 4352]
    close(machine.system.alpha, [9e-6, 40.31e-6, 40.49e-6, 40.98e-6])
    close(1 / machine.system.beta, [50e9, 12.5e9, 12.5e9, 12.5e9])
    assert machine.system.links.tolist() == [2, np.inf, np.inf, np.inf]
    assert machine.system.memory_bytes == 16e9


@pytest.mark.parametrize("name", system_names())
def test_every_shipped_system_loads_and_names_its_source(name):
    machine = find_system(name)
    assert machine.name == name
    assert len(machine.source) > 20
    path = Path(jaxoracle.__file__).parent / "systems" / f"{name}.toml"
    figures = [
        line for line in path.read_text().splitlines() if '= "' in line and line[0].isalpha() and line[0] not in "nsl"
    ]
    assert figures
    assert all("#" in line or "source" in line for line in figures if "bandwidth" not in line), (
        "a figure without a source"
    )


def test_names_that_the_issue_tracker_knows_are_there():
    assert {"abci", "dgx1-v100", "dgx-a100", "dgx-h100", "summit"} < set(system_names())


def test_a_bandwidth_of_both_directions_is_halved(tmp_path):
    text = ABCI.replace('"50 GB/s"', '"600 GB/s bidirectional"')
    close(1 / jaxoracle.system(system_file(tmp_path, text)).beta[0], 300e9)


def test_zero_latency_and_overhead_are_legal(tmp_path):
    text = ABCI.replace('"9 us"', '"0 us"').replace('"5 us"', '"0 s"')
    found = jaxoracle.project(
        "data",
        jaxoracle.dnn("alexnet"),
        jaxoracle.Job(pes=4, samples_per_pe=2),
        jaxoracle.system(system_file(tmp_path, text)),
    )
    assert np.isfinite(found.iteration_time)


BROKEN = {
    "no unit": ('"12.5 GB/s"', "12.5", "Write the unit"),
    "wrong unit": ('"16 GB"', '"16 GB/s"', "no memory"),
    "negative": ('"9 us"', '"-9 us"', "zero or positive"),
    "zero": ('"50 GB/s"', '"0 GB/s"', "finite and positive"),
    "nan": ('"50 GB/s"', '"nan GB/s"', "finite"),
    "misspelt key": ("latency =", "latencies =", "Did you mean 'latency'"),
    "missing key": ("memory = ", "#memory = ", "memory is missing"),
    "capacities that fall": ("capacity = 68", "capacity = 2", "capacity must grow"),
    "part of a PE": ("capacity = 68", "capacity = 68.5", "whole number"),
    "levels of one name": ('level = "leaf"', 'level = "node"', "must differ"),
    "a dotted level": ('level = "leaf"', 'level = "le.af"', "letters, digits"),
    "efficiency above one": ("efficiency = 0.6", "efficiency = 1.6", "at most 1"),
    "links that lead nowhere": ("capacity = 4352", "capacity = 4352\nlinks = 2", "there is none"),
    "no device": ("[device]", "[dev]", "Did you mean 'device'"),
    "no toml": ("[device]", "[device", "TOML"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_system_file_is_one_error_that_names_file_and_key(case, tmp_path):
    old, new, word = BROKEN[case]
    assert old in ABCI
    with pytest.raises(OracleError, match=word) as caught:
        read_system(Path(system_file(tmp_path, ABCI.replace(old, new, 1))))
    assert "machine.toml" in str(caught.value)


# ---- networks ------------------------------------------------------------------------------------------------------

TINY = """
name = "tiny"
input = [3, 224, 224]
[[layer]]
kind = "convolution"
name = "a"
filters = 64
kernel = 7
stride = 2
padding = 3
[[layer]]
kind = "norm"
[[layer]]
kind = "activation"
name = "b"
[[layer]]
kind = "convolution"
name = "c"
filters = 64
kernel = [3, 3]
padding = "same"
bias = false
groups = 4
[[layer]]
kind = "add"
from = ["b", "c"]
[[layer]]
kind = "dropout"
[[layer]]
kind = "pool"
global = true
[[layer]]
kind = "flatten"
[[layer]]
kind = "dense"
filters = 10
[[layer]]
kind = "softmax"
"""


def network_file(folder, text):
    path = folder / "net.toml"
    path.write_text(text)
    return str(path)


def test_a_network_file_is_read_layer_by_layer(tmp_path):
    network = find_dnn(network_file(tmp_path, TINY))
    assert network.name == "tiny"
    layers = network.layers
    assert network.layer_names == ("a", "norm_2", "b", "c", "add_5", "pool_6", "dense_7")
    assert layers.weight_items.tolist() == [3 * 64 * 49 + 64, 128, 0, 64 * 16 * 9, 0, 0, 650]
    assert layers.output_items.tolist() == [64 * 112**2] * 5 + [64, 10]
    assert layers.input_items[4] == 2 * 64 * 112**2
    assert layers.exchanged_items.tolist() == [64 * 112**2, 0, 0, 64, 0, 0, 0]


def test_a_network_of_every_kind_of_layer_in_three_dimensions(tmp_path):
    text = """
name = "every"
input = [2, 8, 8, 8]
dataset_size = 100
[[layer]]
kind = "convolution"
filters = 4
kernel = 3
dilation = 2
[[layer]]
kind = "convolution"
name = "up"
filters = 4
kernel = 2
stride = 2
transposed = true
[[layer]]
kind = "pool"
name = "down"
kernel = 2
[[layer]]
kind = "concatenate"
from = ["down", "up"]
[[layer]]
kind = "identity"
[[layer]]
kind = "dense"
units = 3
bias = false
"""
    network = find_dnn(network_file(tmp_path, text))
    assert network.dataset_size == 100
    # 4x4x4, 8x8x8, 4x4x4, 8 channels cropped to 4x4x4
    assert network.layers.output_items.tolist() == [4 * 64, 4 * 512, 4 * 64, 8 * 64, 3]
    assert network.layers.weight_items[-1] == 8 * 64 * 3
    job = jaxoracle.Job(pes=4, samples_per_pe=2)
    for strategy in ("data+spatial", "pipeline", "channel"):
        assert np.isfinite(jaxoracle.project(strategy, network.layers, job, jaxoracle.system("abci")).iteration_time)


@pytest.mark.parametrize("shape", ["[16]", "[1, 30]"])
def test_vectors_and_one_dimension(shape, tmp_path):
    text = f'name = "x"\ninput = {shape}\n[[layer]]\nkind = "dense"\nfilters = 8\n[[layer]]\nkind = "activation"\n'
    layers = jaxoracle.dnn(network_file(tmp_path, text))
    assert layers.output_extent.tolist() == [[1, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('kind = "norm"', 'kind = "conv"', "Did you mean 'convolution'"),
        ('from = ["b", "c"]', 'from = ["b", "cc"]', "Did you mean 'c'"),
        ('from = ["b", "c"]', "", "from is missing"),
        ("filters = 64", "filters = -64", "whole number from 1"),
        ("filters = 64", "filters = 64.0", "whole number"),
        ("filters = 64", "filters = 1" + 400 * "0", "whole number from 1"),
        ("kernel = 7", "kernel = 7" + 400 * "0", "whole number from 1"),
        ("padding = 3", "padding = 7" + 400 * "0", "whole number from 0"),
        ('kind = "norm"', 'kind = ["norm"]', "unknown kind"),
        ('kind = "norm"', "kind = {a = 1}", "unknown kind"),
        ("filters = 64", 'filters = "64"', "whole number"),
        ("stride = 2", "strides = 2", "Did you mean 'stride'"),
        ("kernel = 7", "", "kernel is missing"),
        ("kernel = 7", "kernel = 700", "too small"),
        ("groups = 4", "groups = 7", "groups must divide"),
        ("input = [3, 224, 224]", "input = [3, 0, 224]", "input must be"),
        ("input = [3, 224, 224]", "input = 224", "input must be"),
        ('name = "c"', 'name = "a"', "must be new"),
        ("global = true", "global = true\nkernel = 2", "no effect"),
        ('from = ["b", "c"]', 'from = ["a", "input"]', "one shape"),
    ],
)
def test_a_broken_network_file_is_one_error_that_names_file_and_layer(old, new, word, tmp_path):
    assert old in TINY
    with pytest.raises(OracleError, match=word) as caught:
        find_dnn(network_file(tmp_path, TINY.replace(old, new, 1)))
    assert "net.toml" in str(caught.value)


def test_an_input_size_changes_extents_and_the_name():
    network = find_dnn("resnet50", "288")
    assert network.name == "resnet50@288"
    assert network.layers.input_extent[0].tolist() == [288, 288, 1]
    assert find_dnn("resnet50@288").layers.forward_flops.sum() == network.layers.forward_flops.sum()
    assert network.layers.weight_items.sum() == 25_557_032
    assert find_profile(network, find_system("abci")) is None


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("resnet5", "Did you mean 'resnet50'"),
        ("resnet50@big", "input size"),
        ("resnet50@0", "input size"),
        ("resnet50@8x8x8", "one number or 2"),
        ("vgg16@8", "too small"),
        ("paradl-vgg16@224", "one input size"),
        ("nowhere.toml", "readable network file"),
        ("", "name or the path"),
    ],
)
def test_a_network_that_is_not_there_is_an_error(name, word):
    with pytest.raises(OracleError, match=word):
        find_dnn(name)


# ---- profiles ------------------------------------------------------------------------------------------------------

SHIPPED = {
    "paradl-resnet50": 3.119502e-3,
    "paradl-vgg16": 8.245589e-3,
    "paradl-alexnet": 0.610938e-3,
    "paradl-cosmoflow256": 263.517898e-3,
    "paradl-cosmoflow512": 2108.143184e-3,
    "resnet50": 3.119502e-3,
    "vgg16": 8.245589e-3,
    "alexnet": 0.610938e-3,
}


@pytest.mark.parametrize("name", dnn_names())
def test_shipped_profiles_sum_to_the_published_times(name):
    measured = find_profile(find_dnn(name), find_system("abci"))
    assert (measured is not None) == (name in SHIPPED)
    if measured is not None:
        forward, backward = measured.profile.forward.sum(), measured.profile.backward.sum()
        close(forward + backward, SHIPPED[name], rtol=1e-9)
        close(backward, 2 * forward, rtol=1e-9)
        assert measured.spread == (name not in published_names())
    assert find_profile(find_dnn(name), find_system("abci"), "none") is None
    assert find_profile(find_dnn(name), find_system("summit")) is None


def test_a_user_s_file_does_not_inherit_a_measured_time_by_its_name(tmp_path):
    """Its figures may be others: with a shipped profile a changed peak would change nothing."""
    mine = find_system(system_file(tmp_path, ABCI.replace('"15.7 TFLOP/s"', '"1 TFLOP/s"')))
    assert mine.name == "abci"
    assert find_profile(find_dnn("resnet50"), mine) is None
    named = network_file(tmp_path, TINY.replace('"tiny"', '"vgg16"'))
    assert find_profile(find_dnn(named), find_system("abci")) is None


def test_a_profile_by_layer_is_read_from_a_file(tmp_path):
    layers = find_dnn(network_file(tmp_path, TINY))
    path = tmp_path / "times.toml"
    times = ", ".join(f'"{i + 1} ms"' for i in range(7))
    path.write_text(
        f'dnn = "tiny"\nsystem = "abci"\nsource = "a test"\n'
        f"forward = [{times}]\nbackward = [{times}]\nupdate = [{times}]\n"
    )
    measured = find_profile(layers, find_system("abci"), str(path))
    close(measured.profile.update, np.arange(1, 8) * 1e-3)
    found = jaxoracle.project(
        "data", layers.layers, jaxoracle.Job(pes=2, samples_per_pe=3), jaxoracle.system("abci"), measured.profile
    )
    close([found.forward, found.backward, found.weight_update], [84e-3, 84e-3, 28e-3], rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('dnn = "tiny"\nsystem = "abci"\nsource = "t"\ntotal = "3"\n', "unit is missing"),
        ('dnn = "tiny"\nsystem = "abci"\nsource = "t"\nforward = ["1 ms"]\nbackward = ["1 ms"]\n', "list of 7 times"),
        ('dnn = "other"\nsystem = "abci"\nsource = "t"\ntotal = "3 ms"\n', "what is projected"),
        ('dnn = "tiny"\nsystem = "summit"\nsource = "t"\ntotal = "3 ms"\n', "what is projected"),
        ('dnn = "tiny"\nsystem = "abci"\nsource = "t"\n', "forward is missing"),
        ('dnn = "tiny"\nsystem = "abci"\nsource = "t"\ntotal = "3 ms"\nforward = []\n', "got both"),
    ],
)
def test_a_broken_profile_is_one_error(text, word, tmp_path):
    path = tmp_path / "times.toml"
    path.write_text(text)
    with pytest.raises(OracleError, match=word) as caught:
        find_profile(find_dnn(network_file(tmp_path, TINY)), find_system("abci"), str(path))
    assert "times.toml" in str(caught.value)
