"""The shape of the house: imports point down, the core is pure, registries are complete, files stay readable."""

import ast
from pathlib import Path

import pytest

import jaxoracle
from jaxoracle.dnns import DNNS
from jaxoracle.projection import CONTEXT, FINDINGS, TOTALS
from jaxoracle.records import MEMORIES, TIMES, Layers, Terms
from jaxoracle.schema import VARIABLES
from jaxoracle.strategies import STRATEGIES

HOME = Path(jaxoracle.__file__).parent
MODULES = {
    ".".join(path.relative_to(HOME).with_suffix("").parts).removesuffix(".__init__"): path
    for path in HOME.rglob("*.py")
}

#: module -> level; a module imports only from below, or from its own package
LEVELS = {
    "errors": 0,
    "records": 0,
    "units": 1,
    "collectives": 1,
    "layers": 1,
    "partition": 1,
    "interconnect": 2,
    "strategies": 2,
    "dnns": 2,
    "price": 3,
    "projection": 3,
    "oracle": 4,
    "readers": 5,
    "catalog": 6,
    "options": 7,
    "schema": 7,
    "engine": 8,
    "answers": 9,
    "explain": 10,
    "cli": 11,
    "__main__": 12,
}
PURE = [name for name in MODULES if LEVELS.get(name.split(".")[0], 99) <= 4]
PURE_THIRD_PARTY = {
    "jax",
    "numpy",
    "__future__",
    "abc",
    "collections",
    "dataclasses",
    "difflib",
    "functools",
    "math",
    "re",
}
PURE_THIRD_PARTY |= {"types", "typing", "bisect", "fractions", "itertools", "numbers", "jaxoracle"}


def imports(name):
    """(module, whether at the top level) of everything that a module imports."""
    tree = ast.parse(MODULES[name].read_text())
    top = set(tree.body)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            known = [s for s in submodules if s.removeprefix("jaxoracle.") in MODULES and s != node.module]
            yield from ((module, node in top) for module in known or [node.module])


def own(module):
    return module.removeprefix("jaxoracle.").split(".")[0] if module.startswith("jaxoracle.") else None


@pytest.mark.parametrize("name", [name for name in MODULES if name != "__init__"])
def test_imports_point_down(name):
    level = LEVELS[name.split(".")[0]]
    for module, _ in imports(name):
        target = own(module)
        assert target is None or target == name.split(".")[0] or LEVELS[target] < level, f"{name} imports {module}"


@pytest.mark.parametrize("name", PURE)
def test_the_core_is_pure(name):
    """No files, no clock, no printing, no xarray."""
    for module, _ in imports(name):
        assert module.split(".")[0] in PURE_THIRD_PARTY, f"{name} imports {module}"
    assert "print(" not in MODULES[name].read_text()


@pytest.mark.parametrize("name", [name for name in MODULES if name not in ("__init__", "cli")])
def test_only_the_command_line_and_extras_are_imported_inside_functions(name):
    allowed = {"engine.spec": {"jaxoracle"}, "engine.objects": {"fsspec"}}
    late = {module for module, top in imports(name) if not top}
    assert late <= allowed.get(name, set())


def test_strategies_and_networks_do_not_know_each_other():
    for name in MODULES:
        family = name.split(".")[0]
        if family in ("strategies", "dnns"):
            other = "dnns" if family == "strategies" else "strategies"
            assert all(own(module) != other for module, _ in imports(name))


def test_a_member_of_strategies_imports_base_and_hybrids_their_members():
    members = {name.split(".")[1] for name in MODULES if name.startswith("strategies.")}
    for member in members - {"base"}:
        used = {m.split(".")[2] for m, _ in imports(f"strategies.{member}") if m.startswith("jaxoracle.strategies.")}
        allowed = {"base", "filter"} if "channel" in member else {"base"}  # channel holds what filter holds
        assert used <= allowed | (set(member.split("_")) if member.startswith("data_") else set())


def test_every_file_of_a_family_is_in_its_registry():
    strategies = {path.stem for path in (HOME / "strategies").glob("*.py")} - {"__init__", "base"}
    assert {name.replace("+", "_") for name in STRATEGIES} == strategies
    dnns = {path.stem for path in (HOME / "dnns").glob("*.py")} - {"__init__"}
    assert {entry.build.__module__.rpartition(".")[2] for entry in DNNS.values()} == dnns


def test_every_strategy_is_final_and_says_its_formulas():
    for strategy in STRATEGIES.values():
        assert getattr(type(strategy), "__final__", False)
        assert set(strategy.formulas) <= {*TIMES, "memory"}
        assert {"forward", "backward", "weight_update", "memory"} <= set(strategy.formulas)


def test_the_schema_knows_every_term_total_and_finding():
    names = {*Terms.__dataclass_fields__, *TOTALS, *FINDINGS, *CONTEXT}
    assert names <= set(VARIABLES)
    assert {*TIMES, *MEMORIES} <= set(Terms.__dataclass_fields__)
    assert all(unit and long_name for unit, long_name in VARIABLES.values())


def test_public_names():
    assert sorted(jaxoracle.__all__) == jaxoracle.__dir__()
    assert jaxoracle.__all__ == [
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
    assert all(getattr(jaxoracle, name) is not None for name in jaxoracle.__all__)
    with pytest.raises(AttributeError, match="no attribute 'projct'"):
        _ = jaxoracle.projct


def test_layers_have_the_fields_of_the_specification():
    assert set(Layers.__dataclass_fields__) == {
        *("forward_flops", "backward_flops", "input_items", "output_items", "weight_items"),
        *("exchanged_items", "entered_items", "reduced_items", "channels", "filters"),
        *("input_extent", "output_extent", "kernel", "stride", "kind", "weighted"),
    }


@pytest.mark.parametrize("name", [name for name in MODULES if name != "__init__"])
def test_files_fit_in_the_head(name):
    assert len(MODULES[name].read_text().splitlines()) <= 450
