"""The published architectures, as their papers and torchvision define them."""

from __future__ import annotations

from tests.analyzers.cost.graphs import Graph

IMAGE = (1, 3, 224, 224)


def resnet(blocks: tuple[int, ...], *, bottleneck: bool, stride_in_3x3: bool = True) -> Graph:
    g = Graph(x=IMAGE)
    x = g.op("Relu", g.conv_bn("x", 3, 64, 7, stride=2))
    x = g.max_pool(x, 3, 2, pad=1)
    channels = 64
    for stage, count in enumerate(blocks):
        width = 64 << stage
        filters = width * 4 if bottleneck else width
        for block in range(count):
            stride = 2 if stage and not block else 1
            if bottleneck:
                first, second = (1, stride) if stride_in_3x3 else (stride, 1)
                y = g.op("Relu", g.conv_bn(x, channels, width, 1, stride=first))
                y = g.op("Relu", g.conv_bn(y, width, width, 3, stride=second))
                y = g.conv_bn(y, width, filters, 1)
            else:
                y = g.op("Relu", g.conv_bn(x, channels, width, 3, stride=stride))
                y = g.conv_bn(y, width, width, 3)
            if stride != 1 or channels != filters:
                x = g.conv_bn(x, channels, filters, 1, stride=stride)
            x = g.op("Relu", g.op("Add", y, x))
            channels = filters
    g.linear(g.op("Flatten", g.op("GlobalAveragePool", x)), channels, 1000)
    return g


def mobilenet_v2() -> Graph:
    g = Graph(x=IMAGE)
    x = g.op("Clip", g.conv_bn("x", 3, 32, 3, stride=2))
    channels = 32
    stages = (
        *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
        *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
    )
    for expansion, filters, count, first_stride in stages:
        for block in range(count):
            stride = 1 if block else first_stride
            wide = channels * expansion
            y = x if expansion == 1 else g.op("Clip", g.conv_bn(x, channels, wide, 1))
            y = g.op("Clip", g.conv_bn(y, wide, wide, 3, stride=stride, group=wide))
            y = g.conv_bn(y, wide, filters, 1)
            x = g.op("Add", x, y) if stride == 1 and channels == filters else y
            channels = filters
    x = g.op("Clip", g.conv_bn(x, channels, 1280, 1))
    g.linear(g.op("Flatten", g.op("GlobalAveragePool", x)), 1280, 1000)
    return g


def vgg16() -> Graph:
    g = Graph(x=IMAGE)
    x, channels = "x", 3
    for filters, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            x = g.op("Relu", g.conv(x, channels, filters, 3, pad=1, bias=True))
            channels = filters
        x = g.max_pool(x, 2, 2)
    return _classifier(g, x, 512 * 7 * 7)


def alexnet() -> Graph:
    g = Graph(x=IMAGE)
    x = g.max_pool(g.op("Relu", g.conv("x", 3, 64, 11, stride=4, pad=2, bias=True)), 3, 2)
    x = g.max_pool(g.op("Relu", g.conv(x, 64, 192, 5, pad=2, bias=True)), 3, 2)
    for channels, filters in ((192, 384), (384, 256), (256, 256)):
        x = g.op("Relu", g.conv(x, channels, filters, 3, pad=1, bias=True))
    return _classifier(g, g.max_pool(x, 3, 2), 256 * 6 * 6)


def _classifier(g: Graph, x: str, features: int) -> Graph:
    x = g.op("Relu", g.linear(g.op("Flatten", x), features, 4096))
    x = g.op("Relu", g.linear(x, 4096, 4096))
    g.linear(x, 4096, 1000)
    return g


def vit_b16() -> Graph:
    """Opset 17 with LayerNormalization; the attention is written out as MatMul and Softmax."""
    width, heads, tokens = 768, 12, 197
    g = Graph(x=IMAGE)
    patches = g.conv("x", 3, width, 16, stride=16, bias=True)
    patches = g.op("Reshape", patches, g.ints(1, width, 196))
    patches = g.op("Transpose", patches, perm=[0, 2, 1])
    x = g.op("Concat", g.weight(1, 1, width), patches, axis=1)
    x = g.op("Add", x, g.weight(1, tokens, width))
    split = g.ints(1, tokens, heads, width // heads)
    join = g.ints(1, tokens, width)
    for _ in range(12):
        y = _layer_norm(g, x, width)
        q, k, v = (
            g.op("Transpose", g.op("Reshape", g.dense(y, width, width), split), perm=perm)
            for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scores = g.op("Softmax", g.op("Mul", g.op("MatMul", q, k), g.weight()))
        y = g.op("Transpose", g.op("MatMul", scores, v), perm=[0, 2, 1, 3])
        x = g.op("Add", x, g.dense(g.op("Reshape", y, join), width, width))
        y = g.dense(_layer_norm(g, x, width), width, 4 * width)
        y = g.op("Mul", y, g.op("Sigmoid", y))
        x = g.op("Add", x, g.dense(y, 4 * width, width))
    token = g.op("Gather", _layer_norm(g, x, width), g.ints(0), axis=1)
    g.linear(g.op("Flatten", token), width, 1000)
    return g


def _layer_norm(g: Graph, x: str, width: int) -> str:
    return g.op("LayerNormalization", x, g.weight(width), g.weight(width))
