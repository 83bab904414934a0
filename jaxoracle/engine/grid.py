"""Evaluate a scalar program on a grid: one `vmap` per dim, every output on its natural dims.

The program is written for one point. Each input leaf has dims; the `vmap` of a dim maps every leaf that has it. An
output has a dim if dead-code elimination would keep an input that carries it, so nothing is materialised on axes that
it does not depend on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import jaxpr_as_fun

#: grids with fewer numbers are small
SMALL = 20_000_000


@dataclasses.dataclass(frozen=True)
class Labelled:
    """An array whose leading axes are named; further axes (layers, extents) belong to the scalar program."""

    dims: tuple[str, ...]
    values: Any


@dataclasses.dataclass(frozen=True)
class Program:
    """A scalar program on a grid.

    Attributes:
      run: flat input arrays -> flat output arrays; not compiled yet.
      inputs: flat input arrays.
      dims: dims of each output.
      shapes: shape of each output.
    """

    run: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]
    dims: tuple[tuple[str, ...], ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def cells(self) -> float:
        """Numbers that the grid's outputs have."""
        return sum(math.prod(shape) for shape in self.shapes)

    def evaluate(self) -> list[np.ndarray]:
        """Compile and run. A small grid takes longer to compile than to run, so it is compiled with fewer passes."""
        options: dict[str, Any] = {"xla_backend_optimization_level": 0} if self.cells < SMALL else {}
        executable = jax.jit(self.run).lower(*self.inputs).compile(compiler_options=options)
        return [np.asarray(out) for out in executable(*self.inputs)]


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


def plan_grid(program: Callable[..., Any], leaves: Any, order: Sequence[str], sizes: dict[str, int]) -> Program:
    """Trace `program` for one point and nest one `vmap` per dim of `order` around it.

    Args:
      program: takes the tree `leaves` with scalar-program arrays in place of `Labelled`; returns a tree of scalars.
      leaves: a tree of `Labelled`, whose dims follow `order`.
      order: dims from the outermost (slowest in memory) to the innermost.
      sizes: length of each dim.
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
    return Program(
        run=run,
        inputs=tuple(leaf.values for leaf in flat),
        dims=tuple(dims),
        shapes=tuple(tuple(sizes[dim] for dim in d) for d in dims),
    )
