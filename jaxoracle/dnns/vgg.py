"""VGG (Simonyan and Zisserman, arXiv 1409.1556, table 1, columns D and E)."""

from __future__ import annotations

from collections.abc import Callable

from jaxoracle.layers import Builder


def vgg(*convolutions: int) -> Callable[[Builder], None]:
    """Five blocks of that many 3x3 convolutions and a pool, three dense layers of 4096, 4096 and 1000."""

    def build(net: Builder) -> None:
        x = net.input
        for filters, count in zip((64, 128, 256, 512, 512), convolutions, strict=True):
            for _ in range(count):
                x = net.activation(net.convolution(x, filters, 3, padding=1))
            x = net.pool(x, 2)
        x = net.adaptive_pool(x, 7)
        for filters in (4096, 4096):
            x = net.activation(net.dense(x, filters))
        net.dense(x, 1000)

    return build
