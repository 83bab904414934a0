"""Every block of the README runs."""

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import jaxoracle
from jaxoracle.catalog import find_dnn, find_system
from jaxoracle.cli import main
from jaxoracle.engine import read_sweep

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A folder as a newcomer has it after the first command."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "sweeps", folder / "sweeps")
    jaxoracle.sweep(folder / "sweeps" / "quickstart.toml", folder / "results" / "quickstart.zarr")
    return folder


@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: re.findall(r"import (\w+)", code)[0])
def test_python_blocks_run(code, checkout, monkeypatch, capsys):
    import matplotlib as mpl

    mpl.use("Agg")
    monkeypatch.chdir(checkout)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out or "savefig" in code


@pytest.mark.parametrize("line", re.findall(r"^\$ jaxoracle (.*)$", README, re.M))
def test_console_lines_run(line, checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    result = CliRunner().invoke(main, line.split())
    assert result.exit_code == 0, result.output
    printed = re.search(rf"^\$ jaxoracle {re.escape(line)}\n((?:(?!\$|```).*\n)*)", README, re.M)[1]
    shown = [row for row in printed.splitlines() if row != "..."]
    assert shown == result.output.splitlines()[: len(shown)]


def test_the_two_commands_are_those_of_the_machine():
    setup, tests = blocks("sh")
    assert "jaxoracle sweep sweeps/quickstart.toml" in setup
    assert "pytest" in tests
    assert (ROOT / ".ci" / "run").read_text().count("[test]") == 1


def test_toml_blocks_are_what_they_say(checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    sweep, network, system = blocks("toml")
    (checkout / "my_network.toml").write_text(network)
    (checkout / "mine.toml").write_text(system)
    (checkout / "mine_sweep.toml").write_text(sweep)
    assert find_dnn("my_network.toml").name == "tiny"
    assert find_system("mine.toml").levels == ("node", "cluster")
    assert len(read_sweep("mine_sweep.toml").axes) == 4
