"""A small builder of ONNX graphs whose weights are types alone, so that they take no memory."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from tracer.graph.model import Model


class Graph:
    """Nodes are appended; each method returns the name of its output."""

    def __init__(self, **inputs: tuple[int | str, ...]) -> None:
        self.inputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in inputs.items()
        ]
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.declared: list[onnx.ValueInfoProto] = []

    def weight(self, *shape: int, dtype: int = TensorProto.FLOAT) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(TensorProto(name=name, data_type=dtype, dims=shape))
        return name

    def ints(self, *values: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        return name

    def op(self, op_type: str, *inputs: str, **attributes: object) -> str:
        output = f"{op_type}_{len(self.nodes)}"
        node = helper.make_node(op_type, inputs, [output], output, **attributes)
        self.nodes.append(node)
        return output

    def fused(
        self, op_type: str, *inputs: str, shape: tuple[int, ...], **attributes: object
    ) -> str:
        """An operator of onnxruntime, whose output ONNX cannot infer."""
        output = self.op(op_type, *inputs, domain="com.microsoft", **attributes)
        self.declared.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, shape))
        return output

    def conv(
        self,
        x: str,
        channels: int,
        filters: int,
        kernel: int,
        *,
        stride: int = 1,
        pad: int = 0,
        group: int = 1,
        bias: bool = False,
    ) -> str:
        inputs = [x, self.weight(filters, channels // group, kernel, kernel)]
        if bias:
            inputs.append(self.weight(filters))
        return self.op("Conv", *inputs, strides=[stride] * 2, pads=[pad] * 4, group=group)

    def conv_bn(self, x: str, channels: int, filters: int, kernel: int, **options: int) -> str:
        y = self.conv(x, channels, filters, kernel, pad=kernel // 2, **options)
        return self.op("BatchNormalization", y, *(self.weight(filters) for _ in range(4)))

    def max_pool(self, x: str, kernel: int, stride: int, pad: int = 0) -> str:
        return self.op(
            "MaxPool", x, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4
        )

    def linear(self, x: str, features: int, outputs: int) -> str:
        return self.op("Gemm", x, self.weight(outputs, features), self.weight(outputs), transB=1)

    def dense(self, x: str, features: int, outputs: int) -> str:
        """MatMul and Add, as exporters write a linear layer on more than two dimensions."""
        product = self.op("MatMul", x, self.weight(features, outputs))
        return self.op("Add", product, self.weight(outputs))

    def model(self, opset: int = 17, output: str | None = None) -> Model:
        last = helper.make_empty_tensor_value_info(output or self.nodes[-1].output[0])
        graph = helper.make_graph(
            self.nodes, "graph", self.inputs, [last], self.weights, value_info=self.declared
        )
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        proto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return Model.of(proto)
