"""Which levels of the interconnect a communicator spans, and what it finds there.

PEs of a group are contiguous. A communicator that spans n PEs reaches up to the first level whose unit holds n of them.
The loops run over levels, of which a system has a handful; everything else is traced. An array of levels may be a tuple
of scalars, so that in a sweep each figure has its own dims.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxoracle.records import PerLevel, Scalar, System


def _largest_spanned(values: PerLevel, span: Scalar, capacity: PerLevel) -> Scalar:
    """The largest of `values` over the levels spanned; ties go to the innermost, so a gradient is not split."""
    largest = values[0]
    for level in range(1, len(values)):
        take = (span > capacity[level - 1]) & (values[level] > largest)
        largest = jnp.where(take, values[level], largest)
    return largest


def alpha(system: System, span: Scalar) -> Scalar:
    """α [s]: the largest over the levels that `span` contiguous PEs reach across."""
    return _largest_spanned(system.alpha, span, system.capacity)


def beta(system: System, span: Scalar) -> Scalar:
    """β [s/byte]: the largest over the levels that `span` contiguous PEs reach across."""
    return _largest_spanned(system.beta, span, system.capacity)


def contention(system: System, span: Scalar, rings: Scalar) -> Scalar:
    """φ = max over levels i below the outermost spanned of max(1, min(rings, capacity_i) / links_i) [1].

    `rings` communicators, one per PE of a group, leave each unit over its links to the next level at once. φ multiplies
    β, not α. A ring that stays in the innermost level, or meets levels without a `links` figure, has φ = 1.
    """
    largest = jnp.ones_like(system.beta[0])
    for level in range(len(system.capacity) - 1):
        flows = jnp.minimum(rings, system.capacity[level]) / system.links[level]
        take = (span > system.capacity[level]) & (flows > largest)
        largest = jnp.where(take, flows, largest)
    return largest
