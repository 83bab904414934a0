"""The grid engine: natural dims are what dead-code elimination and batching find, cells what `project` says."""

import dataclasses

import jax
import numpy as np
import pytest
from conftest import close
from jax.interpreters import partial_eval
from questions import LENGTH, levelled, network

import jaxoracle
from jaxoracle.engine.grid import Labelled, natural_dims, plan_grid
from jaxoracle.engine.inputs import Inputs
from jaxoracle.engine.spec import read_sweep
from jaxoracle.engine.terms import TERMS
from jaxoracle.oracle import stage_costs, terms
from jaxoracle.partition import balanced_stages
from jaxoracle.records import MEMORIES, TIMES
from jaxoracle.strategies import STRATEGIES

SPEC = {
    "dnn": ["alexnet", "cosmoflow"],
    "system": ["abci", "dgx-a100"],
    "strategy": "all",
    "job": {"optimizer": "momentum"},
    "axes": {
        "pes": [1, 6, 8, 2048],
        "group": [2, 3],
        "samples_per_pe": [1, 20],
        "device.memory": ["2 GB", "16 GB"],
        "interconnect.node.bandwidth": ["10 GB/s", "70 GB/s"],
        "interconnect.*.latency": ["1 us", "50 us"],
    },
}


@pytest.fixture(scope="module")
def inputs():
    return Inputs(read_sweep(SPEC))


def flat_program(inputs, strategy):
    leaves, structure = jax.tree.flatten(inputs.of(strategy), is_leaf=lambda leaf: isinstance(leaf, Labelled))
    points = [jax.ShapeDtypeStruct(leaf.values.shape[len(leaf.dims) :], leaf.values.dtype) for leaf in leaves]

    def program(*args):
        return jax.tree.leaves(terms(strategy, *jax.tree.unflatten(structure, args)))

    return program, leaves, points


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_natural_dims_are_those_of_dead_code_elimination(strategy, inputs):
    program, leaves, points = flat_program(inputs, strategy)
    jaxpr = jax.make_jaxpr(program)(*points).jaxpr
    found = natural_dims(jaxpr, [leaf.dims for leaf in leaves], inputs.order)
    for index, dims in enumerate(found):
        _, used = partial_eval.dce_jaxpr(jaxpr, [i == index for i in range(len(found))])
        kept = {dim for leaf, keep in zip(leaves, used, strict=True) if keep for dim in leaf.dims}
        assert dims == tuple(dim for dim in inputs.order if dim in kept), TERMS[index]


@pytest.mark.parametrize("strategy", ["data", "spatial", "data+pipeline"])
def test_natural_dims_are_those_that_batching_sees(strategy, inputs):
    """An identity whose batching rule is told whether its input is batched."""
    program, leaves, points = flat_program(inputs, strategy)
    found = natural_dims(jax.make_jaxpr(program)(*points).jaxpr, [leaf.dims for leaf in leaves], inputs.order)
    for dim in inputs.order:
        seen = {}

        def probe(index, seen=seen):
            identity = jax.custom_batching.custom_vmap(lambda x: x)

            @identity.def_vmap
            def rule(size, in_batched, x):
                seen[index] = in_batched[0]
                return x, in_batched[0]

            return identity

        probes = [probe(index) for index in range(len(found))]
        shapes = [
            jax.ShapeDtypeStruct((2, *p.shape) if dim in leaf.dims else p.shape, p.dtype)
            for p, leaf in zip(points, leaves, strict=True)
        ]
        axes = tuple(0 if dim in leaf.dims else None for leaf in leaves)
        jax.eval_shape(
            jax.vmap(lambda *a, probes=probes: [f(x) for f, x in zip(probes, program(*a), strict=True)], axes), *shapes
        )
        for index, dims in enumerate(found):
            assert seen.get(index, False) == (dim in dims), (dim, TERMS[index])


def test_a_term_has_no_dim_that_it_does_not_depend_on(inputs):
    plan = plan_grid(lambda *a: terms("data", *a), inputs.of("data"), inputs.order)
    dims = dict(zip(TERMS, plan.dims, strict=True))
    assert dims["weights"] == ("dnn",)
    assert "samples_per_pe" not in dims["gradient_exchange"]
    assert "interconnect.node.bandwidth" not in dims["forward"]
    assert "device.memory" not in {dim for found in plan.dims for dim in found}
    assert "group" not in dims["forward"]


ROOFLINE = SPEC["axes"] | {"device.peak": ["10 TFLOP/s", "300 TFLOP/s"]}
FEW = {"strategy": ["data", "data+spatial", "pipeline"], "precision": 32, "axes": ROOFLINE}

PROFILED = ["serial", "spatial", "channel", "data+filter", "data+pipeline"]


@pytest.mark.parametrize("changes", [FEW, {"precision": 64, "strategy": PROFILED}], ids=["float32", "float64"])
def test_every_cell_is_what_project_says(changes):
    precision = changes["precision"]
    dataset = jaxoracle.sweep(SPEC | changes)
    random = np.random.default_rng(0)
    with jax.enable_x64(precision == 64):
        for _ in range(60):
            at = {str(dim): int(random.integers(size)) for dim, size in dataset.sizes.items()}
            cell = dataset.isel(at)
            name, machine = str(cell.dnn.values), str(cell.system.values)
            base, strategy = levelled(machine), str(cell.strategy.values)
            system = dataclasses.replace(
                base,
                peak_flops=float(cell["device.peak"]) if "device.peak" in cell.coords else base.peak_flops,
                memory_bytes=float(cell["device.memory"]),
                alpha=np.full(len(base.alpha), float(cell["interconnect.*.latency"])),
                beta=np.array([1 / float(cell["interconnect.node.bandwidth"]), *base.beta[1:]]),
            )
            job = jaxoracle.Job(
                pes=float(cell.pes),
                group=float(cell.group),
                samples_per_pe=float(cell.samples_per_pe),
                dataset_size=1584.0 if name == "cosmoflow" else 1281167.0,
                optimizer_copies=1.0,
            )
            measured = None if "device.peak" in cell.coords else jaxoracle.profile(name, machine)
            if STRATEGIES[strategy].staged:
                costs = stage_costs(jaxoracle.dnn(name), measured)
                stages = balanced_stages(np.asarray(costs), int(STRATEGIES[strategy].parts(job)))
                job = dataclasses.replace(job, stages=np.pad(stages, (0, LENGTH - len(stages)), mode="edge"))
            if measured is not None:
                measured = jax.tree.map(lambda a: np.pad(a, (0, LENGTH - len(a))), measured)
            found = jaxoracle.project(strategy, network(name), job, system, measured)
            for term in (
                *TIMES,
                *MEMORIES,
                "iteration_time",
                "epoch_time",
                "memory",
                "speedup",
                "throughput",
                "congestion",
            ):
                expected = found.findings[term] if term == "congestion" else getattr(found, term)
                close(cell[term], expected, rtol=1e-5 if precision == 32 else 1e-12)
            assert int(cell.limit) == int(found.limit)
            assert bool(cell.feasible) == bool(found.feasible)
            assert int(cell.bottleneck) == int(found.bottleneck)


def test_a_large_grid_stays_on_its_natural_dims():
    spec = read_sweep(
        SPEC
        | {
            "axes": {
                "pes": {"range": [1, 1000, 1]},
                "samples_per_pe": {"range": [1, 1000, 1]},
                "interconnect.node.bandwidth": {"geomspace": ["1 GB/s", "1 TB/s"], "num": 1000},
            }
        }
    )
    inputs = Inputs(spec)
    plan = plan_grid(lambda *a: terms("data", *a), inputs.of("data"), inputs.order)
    assert plan.numbers(inputs.sizes) < 5e7  # of 4e9 grid points
