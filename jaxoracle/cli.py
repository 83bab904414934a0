"""The command line. Heavy modules are imported inside commands, so that `--help` answers at once."""

from __future__ import annotations

import dataclasses
import errno
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jaxoracle import __version__
from jaxoracle.errors import OracleError

if TYPE_CHECKING:
    from jaxoracle.answers import Question


#: steps of a progress bar
STEPS = 1000


class Group(click.Group):
    """Turns what a user can cause into one line and exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except OracleError as error:
            message = str(error)
        except click.UsageError as error:
            if isinstance(error, click.exceptions.NoArgsIsHelpError):
                raise
            command = error.ctx.command_path if error.ctx else ctx.command_path
            message = f"{error.format_message()} See {command} --help."
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            message = f"{error.filename or 'the output'} could not be written or read: {error.strerror or error}."
        click.echo(f"Error: {' '.join(message.split())}", err=True)
        ctx.exit(2)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="jaxoracle")
def main() -> None:
    """How long distributed training takes, where time and memory go, and what to change."""


# ---- list ------------------------------------------------------------------------------------------------------------


@main.command("list")
@click.argument("what", type=click.Choice(["strategies", "dnns", "systems", "sweeps"]))
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def list_(what: str, as_json: bool) -> None:
    """What can be asked about."""
    rows = {"strategies": _strategies, "dnns": _dnns, "systems": _systems, "sweeps": _sweeps}[what]()
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    columns = [[str(value) for value in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*columns, strict=True)]
    for column in columns:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(column, widths, strict=True)).rstrip())


def _strategies() -> list[dict[str, Any]]:
    from jaxoracle.strategies import STRATEGIES

    return [{"name": s.name, "limit": s.bound, "summary": s.summary} for s in STRATEGIES.values()]


def _dnns() -> list[dict[str, Any]]:
    from jaxoracle.catalog import dnn_names, find_dnn

    rows = []
    for name in dnn_names():
        network = find_dnn(name)
        layers = network.layers
        rows.append(
            {
                "name": name,
                "layers": f"{len(network.layer_names)} layers",
                "parameters": f"{int(layers.weight_items.sum()):,} parameters",
                "multiply_adds": f"{(layers.forward_flops * layers.weighted).sum() / 2e9:.4g}e9 multiply-adds",
                "source": network.source,
            }
        )
    return rows


def _systems() -> list[dict[str, Any]]:
    from jaxoracle.catalog import find_system, system_names

    rows = []
    for name in system_names():
        machine = find_system(name)
        sizes = zip(machine.levels, machine.system.capacity, strict=True)
        levels = ", ".join(f"{level} of {size:g}" for level, size in sizes)
        rows.append({"name": name, "device": machine.device, "levels": levels, "source": machine.source})
    return rows


def _sweeps() -> list[dict[str, Any]]:
    found = sorted(Path("sweeps").glob("*.toml"))
    if not found:
        message = "no sweep file lies in ./sweeps. Change to a folder that has one."
        raise OracleError(message)
    rows = []
    for path in found:
        first = path.read_text("utf-8", errors="replace").splitlines()[:1]
        rows.append({"path": str(path), "question": first[0].lstrip("# ") if first else ""})
    return rows


# ---- project and explain ---------------------------------------------------------------------------------------------

_QUESTION = [
    click.argument("dnn"),
    click.option("--system", required=True, help="Computer system: a name or a TOML file."),
    click.option("--pes", required=True, help="Processing elements, p."),
    click.option("--samples-per-pe", help="Samples per PE, b (weak scaling), or max: the most that fit."),
    click.option("--mini-batch", help="Samples per iteration, B (strong scaling)."),
    click.option("--group", help="PEs that split one replica in a hybrid, p2; all: the best. Default: one node."),
    click.option("--profile", help="Measured times: a TOML file, or none for the roofline. Default: shipped ones."),
    click.option("--dataset-size", help="Samples of an epoch. Default: the network's data set, else ImageNet's."),
    click.option("--segments", help="Pipeline segments. Default: as many as stages."),
    click.option(
        "--split-layers", help="Layers to split: weighted, convolutions, or a file with a name, or 0 or 1, a line."
    ),
    click.option("--split", help="Factors by which spatial splits extents, such as 2x2. Default: the first only."),
    click.option("--optimizer", default="sgd", show_default=True, help="sgd, momentum or adam."),
    click.option("--bytes-per-item", default="4", show_default=True, help="Bytes of a number."),
    click.option("--reuse", default="1", show_default=True, help="Part of the activation memory bound held at a time."),
    click.option("--hierarchical", is_flag=True, help="Leader-based gradient exchange of data+spatial."),
    click.option("--input-size", help="Extents of the input, such as 256 or 256x256. Default: the network's own."),
    click.option("--precision", default="32", show_default=True, help="Bits of a number, 32 or 64."),
    click.option("--json", "as_json", is_flag=True, help="As JSON, SI units."),
]


def _asks(command: Callable[..., None]) -> Callable[..., None]:
    """The arguments of a question."""
    for option in reversed(_QUESTION):
        command = option(command)
    return command


def _compile_quickly() -> None:
    """One answer takes longer to compile than to compute: fewer passes, unless the user has set XLA's flags."""
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")


def _question(dnn: str, system: str, options: dict[str, Any]) -> Question:
    _compile_quickly()
    from jaxoracle.answers import Question, read_job
    from jaxoracle.catalog import find_dnn, find_profile, find_system
    from jaxoracle.engine.programs import cache_programs
    from jaxoracle.errors import fail, unknown
    from jaxoracle.options import MOST_PES, OPTIMIZERS, read_number, read_splitting

    network, machine = find_dnn(dnn, options["input_size"]), find_system(system)
    measured = find_profile(network, machine, options["profile"])
    if options["optimizer"] not in OPTIMIZERS:
        unknown("optimizer", options["optimizer"], OPTIMIZERS)
    if options["precision"] not in ("32", "64"):
        fail(f"--precision must be 32 or 64; got {options['precision']!r}.")
    splitting = read_splitting((network,), options["split_layers"], options["split"], ("--split-layers", "--split"))
    largest, all_groups = options["samples_per_pe"] == "max", options["group"] == "all"
    if largest and options["mini_batch"] is not None:
        fail("--samples-per-pe max looks for a batch, --mini-batch gives one. Give one of them.")

    def count(name: str, *, whole: bool = True, **rules: Any) -> float | None:
        return read_number(options[name], f"--{name.replace('_', '-')}", whole=whole, **rules)

    job = read_job(
        {
            "pes": count("pes", maximum=MOST_PES),
            "samples_per_pe": 1.0 if largest else count("samples_per_pe", whole=False),
            "mini_batch": count("mini_batch", whole=False),
            "group": None if all_groups else count("group", maximum=MOST_PES),
            "dataset_size": count("dataset_size", whole=False) or network.dataset_size,
            "segments": count("segments", maximum=MOST_PES),
            "bytes_per_item": count("bytes_per_item", whole=False),
            "reuse": count("reuse", whole=False, maximum=1.0),
            "optimizer_copies": OPTIMIZERS[options["optimizer"]],
            "hierarchical": float(options["hierarchical"]),
            "split_layers": None if splitting.layers is None else splitting.layers[0],
            "split": splitting.extents,
        }
    )
    cache_programs()
    return Question(network, machine, measured, job, largest, all_groups, int(options["precision"]))


@main.command(short_help="Rank strategies by epoch time.")
@_asks
@click.option("--strategy", "strategies", multiple=True, help="A strategy; may be given again. Default: all.")
def project(dnn: str, system: str, strategies: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Rank strategies by epoch time for network DNN, a name or a TOML file.

    Infeasible ones come last, with the reason.
    """
    from jaxoracle.strategies import STRATEGIES

    for name in strategies:
        _known_strategy(name)
    question = _question(dnn, system, options)
    from jaxoracle.answers import answers, table

    rows = answers(strategies or tuple(STRATEGIES), question)
    if as_json:
        click.echo(json.dumps(rows, indent=2, allow_nan=False))
        return
    click.echo(_heading(question))
    click.echo(table(rows))


@main.command(short_help="Every term of one projection.")
@_asks
@click.option("--strategy", required=True, help="The strategy.")
def explain(dnn: str, system: str, strategy: str, as_json: bool, **options: Any) -> None:
    """Every term of one projection: formula, source, value, share, inputs."""
    _known_strategy(strategy)
    question = _question(dnn, system, options)
    from jaxoracle.answers import answer
    from jaxoracle.explain import explain as explain_terms
    from jaxoracle.explain import text

    if question.largest_batch or question.all_groups:
        row = answer(strategy, question)
        job = dataclasses.replace(question.job, samples_per_pe=row["samples_per_pe"], group=float(row["group"]))
        question = dataclasses.replace(question, job=job)
    found = explain_terms(strategy, question)
    if as_json:
        click.echo(json.dumps(_finite(found), indent=2, allow_nan=False))
        return
    click.echo(_heading(question))
    click.echo(text(found))


def _known_strategy(name: str) -> None:
    from jaxoracle.errors import unknown
    from jaxoracle.strategies import STRATEGIES

    if name not in STRATEGIES:
        unknown("strategy", name, STRATEGIES)


def _finite(value: Any) -> Any:
    """NaN and infinities as null, which JSON has."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def _heading(question: Question) -> str:
    job, measured = question.job, question.measured
    times = "roofline, no profile" if measured is None else f"profile {measured.description}"
    batch = "largest batch that fits" if question.largest_batch else f"B = {job.samples_per_pe * job.pes:,.12g}"
    return (
        f"{question.network.name} on {question.machine.name}: p = {job.pes:,.12g}, {batch}, "
        f"{job.dataset_size:,.12g} samples an epoch, {times}"
    )


# ---- sweep and info --------------------------------------------------------------------------------------------------


@main.command(short_help="Run a sweep file and land it as a zarr store.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", help="The store: a path, or a URL such as s3://BUCKET/NAME.zarr. Default: results/NAME.zarr."
)
@click.option("--overwrite", is_flag=True, help="Replace what the store holds, also another sweep.")
@click.option("--memory", default="2 GB", show_default=True, help="Bound on the memory of a process.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and how long it would take.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, SI units.")
def sweep(file: Path, output: str | None, **options: Any) -> None:
    """Run a sweep FILE and land it as a zarr store.

    The same command goes on where an interrupted run ended.
    """
    gc.disable()  # tracing makes many objects that live on; collections cost a tenth of a short sweep
    try:
        _sweep(file, output, **options)
    finally:
        gc.enable()


def _sweep(file: Path, output: str | None, *, overwrite: bool, memory: str, dry_run: bool, as_json: bool) -> None:
    from jaxoracle.engine.spec import read_sweep
    from jaxoracle.units import parse

    spec, most = read_sweep(file), parse(memory, "memory", "--memory")
    store = output or str(Path("results") / f"{spec.name}.zarr")
    from jaxoracle.engine import land, report

    if dry_run:
        found = report.rehearse(spec, most)
        click.echo(json.dumps(found, indent=2) if as_json else report.rehearsed(found))
        return
    try:
        with _bar(spec.name) as progress:
            new = land(spec, store, overwrite=overwrite, memory=most, progress=progress) is not None
    except KeyboardInterrupt:
        click.echo(f"\ninterrupted: {report.completeness(store)}. The same command goes on from there.", err=True)
        raise SystemExit(130) from None
    found = report.describe_store(store)
    click.echo(json.dumps(found, indent=2) if as_json else report.summary(found, new=new))


@contextmanager
def _bar(name: str) -> Iterator[Callable[[int, int, float], None]]:
    """A progress bar with rate and time left, on a terminal; silence elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done, total, points: None
        return
    begun: list[float] = []
    with click.progressbar(length=STEPS, label=name, file=sys.stderr, show_eta=False, item_show_func=str) as bar:

        def progress(done: int, total: int, points: float) -> None:
            text = "compiling"
            begun.extend([time.monotonic(), done] if not begun else [])
            if done > begun[1]:
                rate = (done - begun[1]) / max(time.monotonic() - begun[0], 1e-3)
                text = f"{rate * points / total:,.3g} points/s, {(total - done) / rate:.0f} s left"
            bar.update(max(0, STEPS * done // total - bar.pos), text)

        yield progress


@main.command(short_help="What a store holds, and how complete it is.")
@click.argument("store")
@click.option("--json", "as_json", is_flag=True, help="As JSON, SI units.")
def info(store: str, as_json: bool) -> None:
    """What a STORE holds, how complete it is, and where its numbers come from."""
    from jaxoracle.engine import report

    found = report.describe_store(store)
    click.echo(json.dumps(found, indent=2) if as_json else report.described(found))
