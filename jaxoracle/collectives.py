"""Communication operations in the α-β model: each is two numbers.

An operation over n PEs on buffers of m bytes costs `startups(n) α + volume(n) m β`. m is always the *full* buffer:
each PE's for an Allreduce, the gathered result for an Allgather. With n = 1 all cost 0, exactly. The algorithms are
rings (paper, section 4.1): every synchronous step runs at the ring's slowest hop. The cost is linear in messages, so
counts and bytes are summed over layers before α and β enter.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

import jax.numpy as jnp

from jaxoracle.records import Scalar

#: (start-ups [1], part of the full buffer that crosses a link [1]) over n PEs
Factors = tuple[Scalar, Scalar]


def _point_to_point(pes: Scalar) -> Factors:
    """(1, 1), and (0, 0) for one PE."""
    once = jnp.where(pes > 1, 1.0, 0.0)
    return once, once


def _ring_allgather(pes: Scalar) -> Factors:
    """(n-1, (n-1)/n)."""
    return pes - 1, (pes - 1) / pes


def _ring_allreduce(pes: Scalar) -> Factors:
    """(2(n-1), 2(n-1)/n): a Reduce-scatter and an Allgather."""
    startups, volume = _ring_allgather(pes)
    return 2 * startups, 2 * volume


OPERATIONS: MappingProxyType[str, Callable[[Scalar], Factors]] = MappingProxyType(
    {
        "point_to_point": _point_to_point,
        "ring_allgather": _ring_allgather,
        "ring_allreduce": _ring_allreduce,
    }
)


def point_to_point(message: Scalar, alpha: Scalar, beta: Scalar) -> Scalar:
    """α + m β [s], for two PEs."""
    return alpha + message * beta


def ring_allgather(gathered: Scalar, pes: Scalar, alpha: Scalar, beta: Scalar) -> Scalar:
    """(p-1)(α + (m/p) β) [s]; a Reduce-scatter costs the same.

    Args:
      gathered: m, the full result [byte].
      pes: p [1].
      alpha: α [s].
      beta: β [s/byte].
    """
    startups, volume = _ring_allgather(pes)
    return startups * alpha + volume * gathered * beta


def ring_allreduce(buffer: Scalar, pes: Scalar, alpha: Scalar, beta: Scalar) -> Scalar:
    """2(p-1)(α + (m/p) β) [s].

    Args:
      buffer: m, what each PE holds before and after [byte].
      pes: p [1].
      alpha: α [s].
      beta: β [s/byte].
    """
    startups, volume = _ring_allreduce(pes)
    return startups * alpha + volume * buffer * beta
