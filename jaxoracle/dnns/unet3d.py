"""3D U-Net (Çiçek et al., arXiv 1606.06650, figure 2): valid convolutions, cropped skips, three classes."""

from __future__ import annotations

from jaxoracle.layers import Builder, Tensor


def unet3d(net: Builder) -> None:
    """Analysis path of 32-64, 64-128, 128-256, 256-512; synthesis path of 512, 256 and 128 with skips."""
    x, skips = net.input, []
    for depth, width in enumerate((32, 64, 128, 256)):
        if depth:
            x = net.pool(x, 2)
        x = _convolve(net, _convolve(net, x, width), 2 * width)
        skips.append(x)
    for skip in reversed(skips[:-1]):
        up = net.convolution(x, x.channels, 2, stride=2, bias=False, transposed=True)
        x = net.concatenate(up, skip)
        x = _convolve(net, _convolve(net, x, skip.channels), skip.channels)
    net.convolution(x, 3, 1)


def _convolve(net: Builder, x: Tensor, filters: int) -> Tensor:
    return net.activation(net.norm(net.convolution(x, filters, 3)))
