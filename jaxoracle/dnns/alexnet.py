"""AlexNet in one tower (Krizhevsky, arXiv 1404.5997, as torchvision has it)."""

from __future__ import annotations

from jaxoracle.layers import Builder


def alexnet(net: Builder) -> None:
    """Five convolutions, three dense layers of 4096, 4096 and 1000."""
    x = net.input
    for filters, kernel, stride, padding, pooled in (
        (64, 11, 4, 2, True),
        (192, 5, 1, 2, True),
        (384, 3, 1, 1, False),
        (256, 3, 1, 1, False),
        (256, 3, 1, 1, True),
    ):
        x = net.activation(net.convolution(x, filters, kernel, stride=stride, padding=padding))
        if pooled:
            x = net.pool(x, 3, stride=2)
    x = net.adaptive_pool(x, 6)
    for filters in (4096, 4096):
        x = net.activation(net.dense(x, filters))
    net.dense(x, 1000)
