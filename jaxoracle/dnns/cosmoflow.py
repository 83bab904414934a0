"""CosmoFlow as in LBANN's model zoo (Oyama et al., arXiv 2007.12856), for inputs of 128³, 256³ and 512³."""

from __future__ import annotations

from jaxoracle.layers import Builder


def cosmoflow(net: Builder) -> None:
    """Seven 3³ convolutions without bias, average pools, dense layers of 2048, 256 and 4.

    The pools after the sixth and seventh convolution exist from 256³ and 512³ on, so that 2³ is left of each size.
    """
    x = net.input
    width = x.extent[0]
    for filters, stride, least in (
        (16, 1, 0),
        (32, 1, 0),
        (64, 1, 0),
        (128, 2, 0),
        (256, 1, 0),
        (256, 1, 256),
        (256, 1, 512),
    ):
        x = net.activation(net.convolution(x, filters, 3, stride=stride, padding=1, bias=False))
        if width >= least:
            x = net.pool(x, 3, stride=2, padding=1)
    for filters in (2048, 256):
        x = net.activation(net.dense(x, filters))
    net.dense(x, 4)
