"""Where a projection comes from: every term with its formula, source, share, and the inputs that it depends on."""

from __future__ import annotations

import dataclasses
import functools
import textwrap
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxoracle import interconnect
from jaxoracle.answers import Question, group_of, reason
from jaxoracle.catalog import DEVICE, LEVEL, Machine
from jaxoracle.engine.grid import natural_dims
from jaxoracle.engine.programs import precise
from jaxoracle.oracle import completed
from jaxoracle.price import event_seconds, price
from jaxoracle.records import BOTTLENECKS, COMPUTATIONS, LIMITS, MEMORIES, TIMES, Event, Job, Layers, Profile, System
from jaxoracle.strategies import STRATEGIES
from jaxoracle.units import show

Arguments = tuple[Layers, Job, System, Profile | None]
EXPLAINED = (*TIMES, *MEMORIES)

ROOFLINE = {
    "forward": "roofline: FW_l = overhead + max(FLOP/(peak efficiency), bytes/bandwidth)",
    "backward": "roofline: BW_l = overhead + max(FLOP/(peak efficiency), bytes/bandwidth)",
    "weight_update": "roofline: WU_l = overhead + (3 + optimizer_copies) delta |w_l|/bandwidth",
}
MEMORY_FORMULAS = {
    "weights": "delta sum of |w_l|, or of its part, as above",
    "gradients": "as weights",
    "optimizer": "optimizer_copies times weights",
    "activations": "reuse delta sum of samples (|x_l|+|y_l|) as above",
    "activation_gradients": "as activations",
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
        layers, job, system, profile = jax.tree.unflatten(structure, flat)
        plan = STRATEGIES[strategy].plan(layers, job)
        found = price(plan, layers, job, system, profile, masked=False)
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
    figures = [
        (
            event_seconds(event, system),
            interconnect.alpha(system, event.span),
            1 / interconnect.beta(system, event.span),
            interconnect.contention(system, event.span, event.rings),
        )
        for event in events
    ]
    return events, figures


def _events(strategy: str, arguments: Arguments) -> list[dict[str, Any]]:
    found, figures = _priced(strategy, arguments)
    return [
        {
            "operation": event.operation,
            "component": event.component,
            "phase": event.phase,
            **{name: float(getattr(event, name)) for name in ("messages", "volume", "group", "span", "rings")},
            "alpha": float(alpha),
            "bandwidth": float(bandwidth),
            "phi": float(phi),
            "startup_time": float(cost.startup),
            "transfer_time": float(cost.transfer),
            "congestion_time": float(cost.congestion),
        }
        for event, (cost, alpha, bandwidth, phi) in zip(found, figures, strict=True)
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
        found = question.project(strategy, job)
        inputs = depends(strategy, question.machine, arguments)
        events = _events(strategy, arguments)
    total = {"s": float(found.iteration_time), "byte": float(found.memory)}
    rows = []
    for name in EXPLAINED:
        value, unit = float(getattr(found, name)), "s" if name in TIMES else "byte"
        formula = _formula(strategy, name, bool(question.job.hierarchical))
        rows.append(
            {
                "term": name,
                "value": value,
                "unit": unit,
                "share": value / total[unit] if total[unit] > 0 else 0.0,
                "formula": formula,
                "source": _source(name, kind.source, question),
                "inputs": inputs[name] if formula != "0" else [],
            }
        )
    return {
        "strategy": strategy,
        "pes": float(job.pes),
        "group": group_of(strategy, question, job),
        "mini_batch": float(job.samples_per_pe * job.pes),
        "segments": float(job.segments or kind.parts(job)) if kind.staged else None,
        "feasible": bool(found.feasible),
        "limit": LIMITS[int(found.limit)],
        "reason": reason(strategy, question, job, found),
        "bottleneck": BOTTLENECKS[int(found.bottleneck)],
        "iteration_time": total["s"],
        "memory": total["byte"],
        "memory_formula": kind.formulas["memory"],
        "terms": rows,
        "events": events,
    }


def _formula(strategy: str, term: str, hierarchical: bool) -> str:
    """The formula of a term; of several the one that is in use."""
    if term in MEMORIES:
        return MEMORY_FORMULAS[term]
    formula = STRATEGIES[strategy].formulas.get(term, "0")
    used = [part for part in formula.split("; ") if part.startswith("hierarchical: " if hierarchical else "flat: ")]
    return used[0] if used else formula


def _source(term: str, source: str, question: Question) -> str:
    if term in COMPUTATIONS:
        how = ROOFLINE[term] if question.measured is None else f"profile {question.measured.name}"
        return f"{source}; {how}"
    return f"{source}; ring, alpha-beta model" if term in TIMES else source


def text(found: dict[str, Any]) -> str:
    """An explanation as aligned text; terms that are 0 are left out."""
    verdict = (
        f"feasible, {found['bottleneck']} takes longest" if found["feasible"] else f"infeasible: {found['reason']}"
    )
    replicas = found["pes"] / found["group"]
    segments = f", {found['segments']:g} segments" if found["segments"] else ""
    lines = [
        f"{found['strategy']}, p1 x p2 = {replicas:g} x {found['group']:g}, B = {found['mini_batch']:,.12g}{segments}",
        verdict,
        "alpha start-up time, beta inverse bandwidth, delta bytes per item, phi contention, b samples per PE,",
        "FW_l, BW_l, WU_l time of a layer's forward, backward (a sample) and update (an iteration), x_l, y_l, w_l its",
        "items, e_l, n_l, r_l what is exchanged after it, halo() its border rows",
        "",
    ]
    for unit, total, title in (
        ("s", found["iteration_time"], "time of one iteration"),
        ("byte", found["memory"], f"memory per PE, {found['memory_formula']}"),
    ):
        lines.append(f"{title}: {show(total, 'B' if unit == 'byte' else 's')}")
        rows = [row for row in found["terms"] if row["unit"] == unit and row["value"] > 0]
        for row in rows:
            value = show(row["value"], "B" if unit == "byte" else "s")
            lines.append(f"  {row['term']:<22}{value:>12}{row['share']:>8.1%}  {row['formula']}")
            lines.append(f"      [{row['source']}]")
            lines += textwrap.wrap(
                "from " + ", ".join(row["inputs"]), 110, initial_indent=6 * " ", subsequent_indent=11 * " "
            )
        if not rows:
            lines.append("  times mean nothing here")
        lines.append("")
    lines.append("communication of one iteration:" if found["events"] else "communication of one iteration: none")
    for event in found["events"]:
        lines.append(
            f"  {event['component']}, {event['phase']}: {event['messages']:g} x {event['operation']} over "
            f"{event['group']:g} PEs, {show(event['volume'], 'B')} in all, alpha {show(event['alpha'], 's')}, "
            f"{show(event['bandwidth'], 'B/s')}, phi {event['phi']:g}"
        )
        lines.append(
            f"      start-up {show(event['startup_time'], 's')}, transfer {show(event['transfer_time'], 's')}, "
            f"contention {show(event['congestion_time'], 's')}"
        )
    return "\n".join(lines)
