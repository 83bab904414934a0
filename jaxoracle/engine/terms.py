"""The terms of every point of a product grid: one program a strategy, every variable on its natural dims."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from jaxoracle.engine.dataset import form, grid_coordinates
from jaxoracle.engine.grid import Program, plan_grid
from jaxoracle.engine.inputs import Inputs
from jaxoracle.engine.layout import Region, Variable, divide
from jaxoracle.engine.programs import precise
from jaxoracle.engine.spec import Sweep
from jaxoracle.oracle import serial_time, terms
from jaxoracle.records import Terms
from jaxoracle.schema import FLAGS

TERMS = tuple(field.name for field in dataclasses.fields(Terms))
#: totals that are stored when they are small, so that a bare `xr.open_zarr` has them
STORED_TOTALS = ("iteration_time", "epoch_time", "memory", "feasible", "limit", "bottleneck")
#: up to this size each [byte]
SMALL = 256 * 10**6
#: programs whose outputs have fewer numbers take longer to compile than to run
FEW = 20_000_000

#: the program of `serial_time`, beside the strategies'
SERIAL = "serial reference"

#: an array that broadcasts to a region's part of a variable, or one for each strategy, without that dim
Value = np.ndarray | list[np.ndarray]


class Grid:
    """A sweep's terms, evaluated region by region.

    Attributes:
      sizes: length of each dim, `strategy` first.
      variables: name -> what is stored.
      regions: in the order in which they are evaluated.
      coordinates: labels of the dims.
    """

    def __init__(self, sweep: Sweep, most: int) -> None:
        self.sweep = sweep
        self.inputs = inputs = Inputs(sweep)
        self.order = tuple(inputs.order)
        self.sizes = {"strategy": len(sweep.strategies), **{dim: inputs.sizes[dim] for dim in self.order}}
        with precise(sweep.precision):
            self._programs = {name: _program(name, inputs) for name in (*sweep.strategies, SERIAL)}
        self.totals = STORED_TOTALS if math.prod(self.sizes.values()) * sweep.precision / 8 <= SMALL else ()
        self.variables = {v.name: v for v in self._variables()}
        self.coordinates = grid_coordinates(sweep)
        dims = {dim: self.sizes[dim] for dim in self.order}
        self.regions = divide(list(self.variables.values()), dims, most)
        self._executables: dict[tuple[str, bool], Callable[..., Any]] = {}
        self._locks = {name: threading.Lock() for name in self._programs}

    @property
    def points(self) -> float:
        """Design points."""
        return math.prod(self.sizes.values())

    def _variables(self) -> list[Variable]:
        number = np.dtype(np.float64 if self.sweep.precision == 64 else np.float32)
        found = []

        def add(name: str, dims: tuple[str, ...], dtype: Any = number) -> None:
            found.append(Variable(name, dims, tuple(self.sizes[dim] for dim in dims), np.dtype(dtype)))

        for index, name in enumerate(TERMS):
            union = {dim for strategy in self.sweep.strategies for dim in self._programs[strategy].dims[index]}
            dims = ("strategy", *(dim for dim in self.order if dim in union))
            add(name, dims, np.int8 if name in FLAGS else number)
        add("serial_time", self._programs[SERIAL].dims[0])
        for name, value in self.inputs.context.items():
            if name not in self.inputs.axes:
                add(name, tuple(dim for dim in self.order if dim in value.dims))
        if self.totals:
            one = {v.name: (v.dims, np.ones((1,) * len(v.dims), v.dtype)) for v in found}
            labels = {axis: [1.0] for axis in self.inputs.axes}
            for name, total in self._formed(xr.Dataset(one, labels)).items():
                add(name, tuple(map(str, total.dims)), total.dtype)
        return found

    def _formed(self, dataset: xr.Dataset) -> dict[str, xr.DataArray]:
        return form(dataset, self.totals, ("strategy", *self.order))

    # ---- evaluation ------------------------------------------------------------------------------------------------

    def evaluate(self, region: Region) -> dict[str, Value]:
        """The variables of one region."""
        wanted = self._wanted(region)
        values: dict[str, Value] = {}
        names = [name for name in self._programs if name != SERIAL or "serial_time" in wanted]
        with ThreadPoolExecutor(2) as pool:
            results = dict(zip(names, pool.map(lambda name: self._run(name, region, wanted), names), strict=True))
        for name in wanted:
            if name == "serial_time":
                values[name] = results[SERIAL][name]
            elif name in TERMS:
                values[name] = [results[strategy][name] for strategy in self.sweep.strategies]
            else:
                values[name] = self._context(name, region)
        if self.totals and set(self.totals) & set(region.names):
            values |= self._total(values, region)
        return {name: values[name] for name in region.names}

    def _wanted(self, region: Region) -> tuple[str, ...]:
        """What a region's programs put out: all terms where totals are formed, else what regions of its kind store."""
        kind = {name for other in self.regions if other.whole == region.whole for name in other.names}
        if set(self.totals) & kind:
            kind = set(self.variables)
        return tuple(name for name in self.variables if name in kind and name not in self.totals)

    def _run(self, name: str, region: Region, wanted: tuple[str, ...]) -> dict[str, np.ndarray]:
        outputs = ("serial_time",) if name == SERIAL else tuple(term for term in TERMS if term in wanted)
        if not outputs:
            return {}
        program = self._programs[name]
        if len(outputs) < len(program.dims):
            program = program.keeping([TERMS.index(term) for term in outputs])
        with precise(self.sweep.precision):
            inputs = program.inputs(region.bounds, region.block)
            with self._locks[name]:
                if (name, region.whole) not in self._executables:
                    quickly = program.numbers(self.sizes) < FEW
                    self._executables[name, region.whole] = program.compiled(inputs, quickly=quickly)
            arrays = [np.asarray(array) for array in self._executables[name, region.whole](*inputs)]
        return {
            term: self._placed(self.variables[term], array, dims, region)
            for term, array, dims in zip(outputs, arrays, program.dims, strict=True)
        }

    def _placed(self, variable: Variable, array: np.ndarray, dims: tuple[str, ...], region: Region) -> np.ndarray:
        """Without what lies past the end, as a flag where it is one, with the dims of its variable."""
        cut = tuple(
            slice(0, region.bounds[d][1] - region.bounds[d][0]) if d in region.bounds else slice(None) for d in dims
        )
        array = array[cut].astype(variable.dtype, copy=False)
        shape = dict(zip(dims, array.shape, strict=True))
        return array.reshape([shape.get(dim, 1) for dim in variable.dims if dim != "strategy"])

    def _context(self, name: str, region: Region) -> np.ndarray:
        variable = self.variables[name]
        ordered = self.inputs.context[name].transpose(*variable.dims)
        return np.asarray(ordered.values[region.selection(variable)], variable.dtype)

    def _total(self, values: Mapping[str, Value], region: Region) -> dict[str, Value]:
        """Totals of a region, by the definitions of `projection`."""
        data = {}
        for name, value in values.items():
            variable = self.variables[name]
            data[name] = (variable.dims, merged(value, [part.stop - part.start for part in region.selection(variable)]))
        labels = {
            name: (name, axis.values[slice(*region.bounds.get(name, (None, None)))])
            for name, axis in self.inputs.axes.items()
        }
        return {name: total.values for name, total in self._formed(xr.Dataset(data, labels)).items()}


def merged(value: Value, shape: list[int]) -> np.ndarray:
    """A region's part of a variable as one array."""
    if not isinstance(value, list):
        return np.broadcast_to(value, shape)
    whole = np.empty(shape, value[0].dtype)
    for position, one in enumerate(value):
        whole[position] = one
    return whole


def _program(name: str, inputs: Inputs) -> Program:
    if name == SERIAL:
        return plan_grid(serial_time, inputs.of("serial"), inputs.order)
    return plan_grid(partial(terms, name), inputs.of(name), inputs.order)
