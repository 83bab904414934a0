"""Evaluate a scalar program on a grid: one `vmap` per dim, every output on its natural dims.

The program is written for one point. Each input leaf has dims; the `vmap` of a dim maps every leaf that has it. An
output has a dim if dead-code elimination would keep an input that carries it, so nothing is materialised on axes that
it does not depend on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import jaxpr_as_fun

#: dim -> (start, stop) of the dims that a region divides
Bounds = Mapping[str, tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class Labelled:
    """An array whose leading axes are named; further axes (layers, extents) belong to the scalar program."""

    dims: tuple[str, ...]
    values: Any

    def part(self, bounds: Bounds, block: Mapping[str, int]) -> Labelled:
        """What lies within a region; past the end of a dim its last entry again, so that all regions have one shape."""
        values = self.values
        for axis, dim in enumerate(self.dims):
            if dim in bounds:
                start, stop = bounds[dim]
                if stop - start == block[dim]:
                    values = values[(slice(None),) * axis + (slice(start, stop),)]
                else:
                    values = np.take(values, np.minimum(np.arange(start, start + block[dim]), stop - 1), axis=axis)
        return Labelled(self.dims, values)


@dataclasses.dataclass(frozen=True)
class Program:
    """A scalar program on a grid.

    Attributes:
      run: flat input arrays -> flat output arrays; not compiled yet.
      leaves: flat inputs on the whole grid.
      dims: dims of each output.
    """

    run: Callable[..., Any]
    leaves: tuple[Labelled, ...]
    dims: tuple[tuple[str, ...], ...]

    def keeping(self, wanted: Sequence[int]) -> Program:
        """The program with the outputs at these positions only; what only others need is not computed."""
        run, positions = self.run, tuple(wanted)

        def some(*inputs: Any) -> Any:
            outputs = run(*inputs)
            return [outputs[position] for position in positions]

        return Program(some, self.leaves, tuple(self.dims[position] for position in positions))

    def numbers(self, sizes: Mapping[str, int]) -> float:
        """Numbers that the outputs have on a grid of these sizes."""
        return sum(math.prod(sizes[dim] for dim in dims) for dims in self.dims)

    def inputs(self, bounds: Bounds, block: Mapping[str, int]) -> list[np.ndarray]:
        """The inputs of one region."""
        return [leaf.part(bounds, block).values for leaf in self.leaves]

    def compiled(self, inputs: Sequence[np.ndarray], *, quickly: bool) -> Callable[..., list[Any]]:
        """An executable for inputs of these shapes; `quickly` for what takes longer to compile than to run."""
        options: dict[str, Any] = {"xla_backend_optimization_level": 0} if quickly else {}
        executable: Callable[..., list[Any]] = jax.jit(self.run).lower(*inputs).compile(compiler_options=options)
        return executable


def natural_dims(jaxpr: Any, input_dims: Sequence[tuple[str, ...]], order: Sequence[str]) -> list[tuple[str, ...]]:
    """Dims of each output: those of the inputs that dead-code elimination would keep for it alone, in one pass."""
    bits = {dim: 1 << position for position, dim in enumerate(order)}
    carried = _reach(jaxpr, [sum(bits[dim] for dim in set(dims)) for dims in input_dims])
    return [tuple(dim for dim in order if bits[dim] & reached) for reached in carried]


def _reach(jaxpr: Any, inputs: Sequence[int]) -> list[int]:
    """For each output the union of the bits of the inputs that it depends on."""
    held: dict[Any, int] = dict(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> int:
        return 0 if hasattr(atom, "val") else held.get(atom, 0)

    for equation in jaxpr.eqns:
        reached = _equation(equation, [read(atom) for atom in equation.invars])
        held.update(zip(equation.outvars, reached, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _equation(equation: Any, inputs: list[int]) -> list[int]:
    """Bits of an equation's outputs: exact through jit and scan, the union of all inputs elsewhere."""
    name, parameters = equation.primitive.name, equation.params
    if name in ("jit", "pjit", "closed_call"):
        return _reach(_open(parameters.get("jaxpr") or parameters["call_jaxpr"]), inputs)
    if name == "scan":
        constants, carries = parameters["num_consts"], parameters["num_carry"]
        body = _open(parameters["jaxpr"])
        while True:
            outputs = _reach(body, inputs)
            grown = [old | new for old, new in zip(inputs[constants : constants + carries], outputs, strict=False)]
            if grown == inputs[constants : constants + carries]:
                return outputs
            inputs = [*inputs[:constants], *grown, *inputs[constants + carries :]]
    union = 0
    for bits in inputs:
        union |= bits
    return [union] * len(equation.outvars)


def _open(jaxpr: Any) -> Any:
    return getattr(jaxpr, "jaxpr", jaxpr)


def plan_grid(program: Callable[..., Any], leaves: Any, order: Sequence[str]) -> Program:
    """Trace `program` for one point and nest one `vmap` per dim of `order` around it.

    Args:
      program: takes the tree `leaves` with scalar-program arrays in place of `Labelled`; returns a tree of scalars.
      leaves: a tree of `Labelled`, whose dims follow `order`.
      order: dims from the outermost (slowest in memory) to the innermost.
    """
    flat, structure = jax.tree.flatten(leaves, is_leaf=lambda leaf: isinstance(leaf, Labelled))
    points = [jax.ShapeDtypeStruct(leaf.values.shape[len(leaf.dims) :], leaf.values.dtype) for leaf in flat]
    closed = jax.make_jaxpr(lambda *args: jax.tree.leaves(program(*jax.tree.unflatten(structure, args))))(*points)
    dims = natural_dims(closed.jaxpr, [leaf.dims for leaf in flat], order)
    run = jaxpr_as_fun(closed)
    for dim in reversed(order):
        mapped = tuple(0 if dim in leaf.dims else None for leaf in flat)
        if all(axis is None for axis in mapped):
            continue
        run = jax.vmap(run, in_axes=mapped, out_axes=[0 if dim in d else None for d in dims])
    return Program(run, tuple(flat), tuple(dims))
