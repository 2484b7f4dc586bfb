"""PyTorch's own flop counter, which counts a MAC as two, on the same operations."""

import pytest

from tests.analyzers.cost.graphs import Graph
from tracer.analyzers.cost import cost
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.graph import shape_inference

torch = pytest.importorskip("torch")

CONVOLUTIONS = [
    # channels, filters, kernel, stride, padding, groups
    (3, 8, 3, 1, 1, 1),
    (8, 12, 5, 2, 0, 4),
    (6, 6, 3, 1, 2, 6),
    (4, 2, 1, 3, 0, 1),
]


def torch_flops(function, *inputs):
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        function(*(torch.zeros(shape) for shape in inputs))
    return counter.get_total_flops()


def our_macs(graph):
    model = graph.model(opset=23)
    counted = cost(TypedModel(model, shape_inference.infer(model, {})))
    assert counted.unknown == ()
    return counted.table["macs"].sum()


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions(case):
    channels, filters, kernel, stride, pad, group = case
    graph = Graph(x=(2, channels, 11, 9))
    graph.conv("x", channels, filters, kernel, stride=stride, pad=pad, group=group)
    layer = torch.nn.Conv2d(channels, filters, kernel, stride, pad, groups=group)
    assert 2 * our_macs(graph) == torch_flops(layer, (2, channels, 11, 9))


def test_transposed_convolution():
    graph = Graph(x=(2, 6, 7, 5))
    graph.op("ConvTranspose", "x", graph.weight(6, 4, 3, 3), strides=[2, 2], pads=[1] * 4)
    layer = torch.nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1)
    assert 2 * our_macs(graph) == torch_flops(layer, (2, 6, 7, 5))


def test_linear_layer_and_batched_product():
    graph = Graph(x=(4, 10))
    graph.linear("x", 10, 7)
    assert 2 * our_macs(graph) == torch_flops(torch.nn.Linear(10, 7), (4, 10))
    graph = Graph(x=(3, 4, 5), y=(3, 5, 6))
    graph.op("MatMul", "x", "y")
    assert 2 * our_macs(graph) == torch_flops(torch.bmm, (3, 4, 5), (3, 5, 6))


def test_scaled_dot_product_attention():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    graph = Graph(q=(2, 4, 9, 8), k=(2, 4, 9, 8), v=(2, 4, 9, 8))
    graph.op("Attention", "q", "k", "v")
    attention = torch.nn.functional.scaled_dot_product_attention
    with sdpa_kernel(SDPBackend.MATH):  # the fused kernel of the CPU is not in torch's table
        assert 2 * our_macs(graph) == torch_flops(attention, *[(2, 4, 9, 8)] * 3)
