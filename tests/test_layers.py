"""Shape arithmetic and exchange sizes, by hand."""

import numpy as np
import pytest
from conftest import close

import jaxoracle
from jaxoracle.errors import OracleError
from jaxoracle.layers import Builder, padded
from jaxoracle.records import PADDING


def built(channels, extent, *add):
    net = Builder(channels, extent)
    x = net.input
    for step in add:
        x = step(net, x)
    return net.layers()


@pytest.mark.parametrize(
    ("extent", "keys", "out"),
    [
        ((224,), {"kernel": 7, "stride": 2, "padding": 3}, (112,)),
        ((224, 224), {"kernel": 7, "stride": 2, "padding": 3}, (112, 112)),
        ((10, 20, 30), {"kernel": 3}, (8, 18, 28)),
        ((8, 8), {"kernel": 2}, (7, 7)),
        ((8, 8), {"kernel": 2, "padding": "same"}, (8, 8)),
        ((9, 9), {"kernel": 3, "stride": 2, "padding": "same"}, (5, 5)),
        ((32, 32), {"kernel": 3, "dilation": 2}, (28, 28)),
        ((32, 16), {"kernel": [3, 5], "stride": [1, 2], "padding": [1, 0]}, (32, 6)),
        ((5, 5), {"kernel": 2, "stride": 2, "transposed": True}, (10, 10)),
        ((5, 5), {"kernel": 3, "stride": 2, "padding": 1, "transposed": True}, (9, 9)),
    ],
)
def test_extent_of_a_convolution(extent, keys, out):
    layers = built(4, extent, lambda n, x: n.convolution(x, 8, **keys))
    assert tuple(layers.output_extent[0][: len(out)]) == out
    assert (layers.output_extent[0][len(out) :] == 1).all()


@pytest.mark.parametrize(
    ("extent", "keys", "out"),
    [
        ((113, 113), {"kernel": 2}, (56, 56)),
        ((113, 113), {"kernel": 2, "ceil": True}, (57, 57)),
        ((112, 112), {"kernel": 3, "stride": 2, "padding": 1}, (56, 56)),
        ((4,), {"kernel": 2, "stride": 3, "padding": 1, "ceil": True}, (2,)),
        ((5,), {"kernel": 1, "stride": 4, "padding": 0, "ceil": True}, (2,)),
        ((6,), {"kernel": 1, "stride": 5, "padding": 0, "ceil": True}, (2,)),
    ],
)
def test_extent_of_a_pool(extent, keys, out):
    layers = built(4, extent, lambda n, x: n.pool(x, **keys))
    assert tuple(layers.output_extent[0][: len(out)]) == out


def test_a_convolution_by_hand():
    # 6 channels of 10x10, 4 filters of 3x3 in 2 groups: 3 x 4 x 9 weights and 4 biases, out 8x8
    layers = built(6, (10, 10), lambda n, x: n.convolution(x, 4, 3, groups=2))
    assert layers.weight_items[0] == 3 * 4 * 9 + 4
    assert layers.forward_flops[0] == 2 * 3 * 4 * 9 * 64
    assert layers.backward_flops[0] == 2 * layers.forward_flops[0]
    assert (layers.input_items[0], layers.output_items[0]) == (600, 256)
    assert (layers.channels[0], layers.filters[0]) == (6, 4)


def test_a_transposed_convolution_counts_its_input_positions():
    layers = built(2, (5, 5), lambda n, x: n.convolution(x, 3, 2, stride=2, transposed=True, bias=False))
    assert layers.weight_items[0] == 2 * 3 * 4
    assert layers.forward_flops[0] == 2 * 2 * 3 * 4 * 25


def test_dilation_widens_the_window_that_a_halo_sees():
    layers = built(2, (32, 32), lambda n, x: n.convolution(x, 3, 3, dilation=4))
    assert layers.kernel[0].tolist() == [9, 9, 1]


def test_other_layers_by_hand():
    layers = built(
        2,
        (4, 4),
        lambda n, x: n.norm(x),
        lambda n, x: n.activation(x),
        lambda n, x: n.pool(x, 2),
        lambda n, x: n.dense(x, 5),
    )
    assert layers.forward_flops.tolist() == [4 * 32, 32, 2 * 4 * 4, 2 * 8 * 5]
    assert layers.backward_flops.tolist() == [4 * 32, 32, 32, 4 * 8 * 5]
    assert layers.weight_items.tolist() == [4, 0, 0, 45]


def test_a_projection_shortcut_exchanges_nothing():
    net = Builder(8, (4, 4))
    stem = net.activation(net.convolution(net.input, 16, 3, padding=1))
    main = net.convolution(net.activation(net.convolution(stem, 8, 1)), 32, 1)
    shortcut = net.convolution(stem, 32, 1)
    net.dense(net.global_pool(net.activation(net.add(main, shortcut))), 10)
    layers = net.layers()
    weighted = layers.weighted > 0
    # stem, first, second, shortcut, dense
    assert layers.exchanged_items[weighted].tolist() == [16 * 16, 8 * 16, 32, 0, 0]
    assert layers.entered_items[weighted].tolist() == [0, 16 * 16, 8 * 16, 0, 32]
    assert layers.reduced_items[weighted].tolist() == [256, 128, 512, 512, 10]


def test_a_tensor_with_several_readers_is_exchanged_once_and_a_concatenation_by_its_parts():
    net = Builder(3, (8, 8))
    stem = net.convolution(net.input, 4, 1)
    left, right = net.convolution(stem, 5, 1), net.convolution(stem, 6, 1)
    joined = net.concatenate(left, right)
    net.convolution(net.pool(joined, 2), 7, 1)
    layers = net.layers()
    weighted = layers.weighted > 0
    assert layers.exchanged_items[weighted].tolist() == [4 * 64, 5 * 16, 6 * 16, 0]
    assert layers.entered_items[weighted].tolist() == [0, 4 * 64, 0, 11 * 16]


def test_bare_concatenations_move_each_tensor_once_and_norms_between_make_new_ones():
    def dense_block(between):
        net = Builder(3, (8, 8))
        x = net.convolution(net.input, 4, 1)
        for _ in range(3):
            x = net.concatenate(x, net.convolution(between(net, x), 2, 1))
        net.dense(x, 10)
        layers = net.layers()
        weighted = layers.weighted > 0
        return layers.exchanged_items[weighted].tolist(), layers.entered_items[weighted].tolist()

    bare = dense_block(lambda net, x: x)
    assert bare == ([4 * 64, 2 * 64, 2 * 64, 2 * 64, 0], [0, 4 * 64, 2 * 64, 2 * 64, 2 * 64])
    # each norm reads all channels so far: 4, 6 and 8 of them, and the dense layer the last 10 unchanged
    normed, completed = dense_block(lambda net, x: net.norm(x))
    assert sum(normed) == sum(completed) == 64 * (4 + 6 + 8 + 10)


def test_the_input_is_never_exchanged():
    net = Builder(3, (8, 8))
    joined = net.concatenate(net.convolution(net.input, 4, 1), net.input)
    net.convolution(joined, 2, 1)
    layers = net.layers()
    assert layers.entered_items.tolist() == [0, 0, 4 * 64]


@pytest.mark.parametrize("name", ["vgg16", "alexnet", "resnet50", "cosmoflow", "unet3d"])
def test_what_is_exchanged_forward_is_completed_backward(name):
    layers = jaxoracle.dnn(name)
    close(layers.exchanged_items.sum(), layers.entered_items.sum())


def test_halo_of_cosmoflow_is_the_published_face(x64):
    """A 3³ convolution on 4 channels of 512³, split in slabs: 512 x 512 x 4 items, 4,194,304 byte a face."""
    from jaxoracle.strategies.spatial import halo

    layers = built(4, (512, 512, 512), lambda n, x: n.convolution(x, 16, 3, padding=1))
    job = jaxoracle.Job(pes=4.0, samples_per_pe=0.25, hierarchical=0.0)
    forward, _ = halo(layers, job, np.ones(1), 4.0)
    close(forward.volume, 2 * 4_194_304)
    close(forward.messages, 2)


@pytest.mark.parametrize(
    ("step", "word"),
    [
        (lambda n, x: n.convolution(x, 8, 9), "too small"),
        (lambda n, x: n.convolution(x, 8, 3, groups=3), "groups must divide"),
        (lambda n, x: n.convolution(x, 0, 3), "filters"),
        (lambda n, x: n.convolution(x, 8, [3, 3, 3]), "kernel"),
        (lambda n, x: n.pool(x, 2, stride=0), "stride"),
        (lambda n, x: n.add(x), "two or more"),
        (lambda n, x: n.add(x, n.pool(x, 2)), "one shape"),
        (lambda n, x: n.convolution(n.flatten(x), 3, 3), "vector"),
        (lambda n, x: n.convolution(x, 10**12, 1, padding=10**6), "larger than"),
    ],
)
def test_a_layer_that_does_not_fit_is_an_error(step, word):
    net = Builder(4, (8, 8))
    with pytest.raises(OracleError, match=word):
        step(net, net.input)


def test_padding_adds_nothing():
    layers = jaxoracle.dnn("alexnet")
    longer = padded(layers, 30)
    assert (longer.kind[18:] == PADDING).all()
    assert longer.weight_items.sum() == layers.weight_items.sum()
    assert longer.filters[18:].min() == 1e30
