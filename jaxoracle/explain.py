"""Where a projection comes from: every term with its formula, source, share, and the inputs that it depends on."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxoracle.answers import Question
from jaxoracle.catalog import DEVICE, LEVEL, Machine
from jaxoracle.engine.grid import natural_dims
from jaxoracle.engine.run import precise
from jaxoracle.oracle import completed, terms
from jaxoracle.price import event_seconds
from jaxoracle.records import COMPUTATIONS, MEMORIES, TIMES, Event, Job, Layers, Profile, System
from jaxoracle.strategies import STRATEGIES
from jaxoracle.units import show

Arguments = tuple[Layers, Job, System, Profile | None]
EXPLAINED = (*TIMES, *MEMORIES)

MEMORY_FORMULAS = {
    "weights": "delta sum |w_l|",
    "gradients": "delta sum |w_l|",
    "optimizer": "optimizer_copies delta sum |w_l|",
    "activations": "reuse delta sum samples (|x_l|+|y_l|)",
    "activation_gradients": "reuse delta sum samples (|x_l|+|y_l|)",
}


def _names(machine: Machine, arguments: Arguments) -> list[str]:
    """A name for each leaf, as in files."""
    device = {field: f"device.{key}" for key, (field, _) in DEVICE.items()}
    level = {field: key for key, (field, _) in LEVEL.items()}
    names = []
    for path, _ in jax.tree_util.tree_flatten_with_path(arguments)[0]:
        position, field = path[0].idx, path[1].name
        if position == 2 and field in level:
            names.append(f"interconnect.{machine.levels[path[2].idx]}.{level[field]}")
        elif position == 2:
            names.append(device[field])
        else:
            names.append(("layers.", "job.", "", "profile.")[position] + field)
    return names


def _by_level(system: System) -> System:
    """Levels as tuples of scalars, so that each figure is an input of its own."""
    return dataclasses.replace(system, **{f: tuple(np.asarray(getattr(system, f))) for f, _ in LEVEL.values()})


def depends(strategy: str, machine: Machine, arguments: Arguments) -> dict[str, list[str]]:
    """Term -> inputs that its program reads; of the levels' figures only those that it is priced with here."""
    leaves, structure = jax.tree.flatten(arguments)
    names = _names(machine, arguments)

    def program(*flat: Any) -> list[Any]:
        found = terms(strategy, *jax.tree.unflatten(structure, flat))
        return [getattr(found, name) for name in EXPLAINED]

    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    read = natural_dims(jax.make_jaxpr(program)(*shapes).jaxpr, [(name,) for name in names], names)
    priced = [i for i, name in enumerate(names) if name.startswith("interconnect.") and not name.endswith(".capacity")]

    def of_figures(figures: list[Any]) -> Any:
        flat = list(leaves)
        for index, figure in zip(priced, figures, strict=True):
            flat[index] = figure
        return jnp.stack(program(*flat))

    slopes = jax.jit(jax.jacfwd(of_figures))([leaves[i] for i in priced])
    idle = [
        {names[i] for i, slope in zip(priced, slopes, strict=True) if not float(slope[row]) != 0}
        for row in range(len(EXPLAINED))
    ]
    return {name: [n for n in read[row] if n not in idle[row]] for row, name in enumerate(EXPLAINED)}


@functools.partial(jax.jit, static_argnums=0)
def _priced(strategy: str, arguments: Arguments) -> tuple[tuple[Event, ...], list[Any]]:
    layers, job, system, _ = arguments
    events = STRATEGIES[strategy].traffic(layers, job)
    return events, [event_seconds(event, system) for event in events]


def _events(strategy: str, arguments: Arguments) -> list[dict[str, Any]]:
    found, seconds = _priced(strategy, arguments)
    return [
        {
            "operation": event.operation,
            "component": event.component,
            "phase": event.phase,
            **{name: float(getattr(event, name)) for name in ("messages", "volume", "group", "span", "rings")},
            "startup_time": float(cost.startup),
            "transfer_time": float(cost.transfer),
            "congestion_time": float(cost.congestion),
        }
        for event, cost in zip(found, seconds, strict=True)
        if float(event.volume) > 0 and float(event.group) > 1
    ]


def explain(strategy: str, question: Question) -> dict[str, Any]:
    """Terms, their sum, and the communication behind them; SI units, NaN where times mean nothing."""
    profile = None if question.measured is None else question.measured.profile
    kind = STRATEGIES[strategy]
    with precise(question.precision):
        layers, job, system, measured = completed(
            strategy, question.network.layers, question.job, question.machine.system, profile
        )
        arguments = (layers, job, _by_level(system), measured)
        arguments = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), arguments)
        found = question.project(strategy, question.job)
        inputs = depends(strategy, question.machine, arguments)
        events = _events(strategy, arguments)
    total = {"s": float(found.iteration_time), "byte": float(found.memory)}
    rows = []
    for name in EXPLAINED:
        value, unit = float(getattr(found, name)), "s" if name in TIMES else "byte"
        formula = kind.formulas.get(name, "0") if unit == "s" else MEMORY_FORMULAS[name]
        rows.append(
            {
                "term": name,
                "value": value,
                "unit": unit,
                "share": value / total[unit] if total[unit] else 0.0,
                "formula": formula,
                "source": _source(name, kind.source, question),
                "inputs": inputs[name] if formula != "0" else [],
            }
        )
    return {
        "strategy": strategy,
        "iteration_time": total["s"],
        "memory": total["byte"],
        "memory_formula": kind.formulas["memory"],
        "terms": rows,
        "events": events,
    }


def _source(term: str, source: str, question: Question) -> str:
    if term in COMPUTATIONS:
        how = "roofline" if question.measured is None else f"profile {question.measured.name}"
        return f"{source}; {how}"
    return f"{source}; ring, alpha-beta model" if term in TIMES else source


def text(found: dict[str, Any]) -> str:
    """An explanation as aligned text; terms that are 0 are left out."""
    lines = [
        f"{found['strategy']}: alpha start-up time, beta inverse bandwidth, delta bytes per item, phi contention,",
        "b samples per PE, p2 PEs that split one of p1 replicas",
        "",
    ]
    for unit, total, title in (
        ("s", found["iteration_time"], "time of one iteration"),
        ("byte", found["memory"], f"memory per PE, {found['memory_formula']}"),
    ):
        lines.append(f"{title}: {show(total, 'B' if unit == 'byte' else 's')}")
        for row in found["terms"]:
            if row["unit"] == unit and row["value"] != 0:
                value = show(row["value"], "B" if unit == "byte" else "s")
                lines.append(f"  {row['term']:<22}{value:>12}{row['share']:>8.1%}  {row['formula']}")
                lines.append(f"  {'':<44}[{row['source']}]")
                lines.append(f"  {'':<44}from {', '.join(row['inputs'])}")
        lines.append("")
    lines.append("communication of one iteration:" if found["events"] else "communication of one iteration: none")
    for event in found["events"]:
        lines.append(
            f"  {event['component']:<18} {event['operation']:<15} {event['phase']:<9} {event['messages']:g} messages, "
            f"{show(event['volume'], 'B')}, {event['group']:g} PEs, {event['rings']:g} at once: "
            f"start-up {show(event['startup_time'], 's')}, transfer {show(event['transfer_time'], 's')}, "
            f"contention {show(event['congestion_time'], 's')}"
        )
    return "\n".join(lines)
