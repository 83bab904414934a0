"""ResNet (He et al., arXiv 1512.03385, table 1), stride on a bottleneck's 3x3 convolution, as torchvision has it."""

from __future__ import annotations

from collections.abc import Callable

from jaxoracle.layers import Builder, Tensor


def resnet(*blocks: int, bottleneck: bool) -> Callable[[Builder], None]:
    """Four stages of that many residual blocks, global pool, one dense layer of 1000."""

    def build(net: Builder) -> None:
        x = net.activation(net.norm(net.convolution(net.input, 64, 7, stride=2, padding=3, bias=False)))
        x = net.pool(x, 3, stride=2, padding=1)
        for stage, count in enumerate(blocks):
            for block in range(count):
                stride = 2 if stage and not block else 1
                x = _block(net, x, 64 * 2**stage, stride, bottleneck)
        net.dense(net.global_pool(x), 1000)

    return build


def _block(net: Builder, x: Tensor, width: int, stride: int, bottleneck: bool) -> Tensor:
    """Two 3x3 convolutions, or 1x1, 3x3 and 1x1 to four times the width; a projection where shapes differ."""
    path = ((1, 1, width), (3, stride, width), (1, 1, 4 * width)) if bottleneck else ((3, stride, width), (3, 1, width))
    y = x
    for position, (kernel, step, filters) in enumerate(path):
        y = net.norm(net.convolution(y, filters, kernel, stride=step, padding=kernel // 2, bias=False))
        if position < len(path) - 1:
            y = net.activation(y)
    if x.channels != y.channels or x.extent != y.extent:
        x = net.norm(net.convolution(x, y.channels, 1, stride=stride, bias=False))
    return net.activation(net.add(y, x))
