"""ResNet-20 with the shipped weights, in PyTorch and in Chainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx import numpy_helper

from models.resnet_cifar.torch_net import ResNet20
from models.weights import copy_to_chainer
from tracer.graph import loading

if TYPE_CHECKING:
    import torch

ONNX = "models/resnet_cifar/resnet20.onnx"
_STORED = {
    "Conv": ("weight",),
    "BatchNormalization": ("weight", "bias", "running_mean", "running_var"),
    "Gemm": ("weight", "bias"),
}
"""Names of a node's inputs after the first. The file stores equal tensors once."""


def in_torch() -> torch.nn.Module:
    """Returns the PyTorch network; the file lacks projections that never run."""
    import torch

    source = loading.load(ONNX)
    stored = {tensor.name: tensor for tensor in source.graph.initializer}
    model = ResNet20()
    state = model.state_dict()
    for node in source.nodes:
        names = _STORED.get(node.op_type, ())
        for name, tensor in zip(names, node.inputs[1:], strict=False):
            array = numpy_helper.to_array(stored[tensor]).copy()
            state[f"{node.module}.{name}"] = torch.from_numpy(array)
    model.load_state_dict(state)
    return model


def in_chainer() -> Any:
    """Returns the same network in Chainer."""
    from models.resnet_cifar.chainer_net import ResNet20

    model = ResNet20()
    copy_to_chainer(in_torch(), model)
    return model
