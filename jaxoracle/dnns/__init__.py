"""The networks that are built from layer arithmetic, by name: one line each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import MappingProxyType

from jaxoracle.dnns.alexnet import alexnet
from jaxoracle.dnns.cosmoflow import cosmoflow
from jaxoracle.dnns.resnet import resnet
from jaxoracle.dnns.unet3d import unet3d
from jaxoracle.dnns.vgg import vgg
from jaxoracle.layers import Builder

IMAGENET = 1_281_167  # training images of ILSVRC 2012
COSMOFLOW = 1584  # samples of the published CosmoFlow runs (ParaDL's layer files)
UNET3D = 77  # annotated slices of arXiv 1606.06650


@dataclasses.dataclass(frozen=True)
class Dnn:
    """A network of the registry.

    Attributes:
      name: as on the command line and in datasets.
      build: adds its layers.
      channels: of its input.
      extent: of its standard input.
      dataset_size: samples of its usual data set.
      source: where its layers come from.
    """

    name: str
    build: Callable[[Builder], None]
    channels: int
    extent: tuple[int, ...]
    dataset_size: int
    source: str


_RESNET = "arXiv 1512.03385, stride on the 3x3 convolution"
_VGG = "arXiv 1409.1556"

DNNS: MappingProxyType[str, Dnn] = MappingProxyType(
    {
        dnn.name: dnn
        for dnn in (
            Dnn("alexnet", alexnet, 3, (224, 224), IMAGENET, "arXiv 1404.5997, one tower"),
            Dnn("vgg16", vgg(2, 2, 3, 3, 3), 3, (224, 224), IMAGENET, _VGG),
            Dnn("vgg19", vgg(2, 2, 4, 4, 4), 3, (224, 224), IMAGENET, _VGG),
            Dnn("resnet18", resnet(2, 2, 2, 2, bottleneck=False), 3, (224, 224), IMAGENET, _RESNET),
            Dnn("resnet34", resnet(3, 4, 6, 3, bottleneck=False), 3, (224, 224), IMAGENET, _RESNET),
            Dnn("resnet50", resnet(3, 4, 6, 3, bottleneck=True), 3, (224, 224), IMAGENET, _RESNET),
            Dnn("resnet101", resnet(3, 4, 23, 3, bottleneck=True), 3, (224, 224), IMAGENET, _RESNET),
            Dnn("resnet152", resnet(3, 8, 36, 3, bottleneck=True), 3, (224, 224), IMAGENET, _RESNET),
            Dnn("cosmoflow", cosmoflow, 4, (128, 128, 128), COSMOFLOW, "LBANN model zoo, arXiv 2007.12856"),
            Dnn("unet3d", unet3d, 3, (132, 132, 116), UNET3D, "arXiv 1606.06650, figure 2"),
        )
    }
)
