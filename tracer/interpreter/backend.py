"""Wraps the interpreter as an ONNX backend, for ONNX's own tests and scoreboards.

This module itself is the backend; `onnx.backend.base` describes the interface.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx.backend.base import Backend, BackendRep

from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.values import Value, type_proto


class Prepared(BackendRep):
    """A model ready to run, with inputs in order or by name."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._interpreter = Interpreter(model)

    def run(
        self, inputs: Sequence[Value] | Mapping[str, Value], **kwargs: Any
    ) -> tuple[Value, ...]:
        """Returns the model's outputs; optional inputs at the end may be missing."""
        if not isinstance(inputs, Mapping):
            names = (value.name for value in self._interpreter.get_inputs())
            inputs = dict(zip(names, inputs, strict=False))
        return tuple(self._interpreter.run(None, inputs))


class TracerBackend(Backend):
    """Runs models on the CPU."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Checks the model and prepares it for many runs."""
        return Prepared(model)

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Value, ...]:
        """Runs a model once."""
        return cls.prepare(model, device).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Any = None,
        **kwargs: Any,
    ) -> tuple[Value, ...]:
        """Runs a single node at `opset_version`, by default the newest opset."""
        version = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        names = [name for name in node.input if name]
        feeds = dict(zip(names, inputs, strict=True))
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [onnx.helper.make_value_info(name, type_proto(feeds[name])) for name in names],
            [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in node.output if name],
        )
        opsets = [onnx.helper.make_opsetid(node.domain, version)]
        return cls.run_model(onnx.helper.make_model(graph, opset_imports=opsets), feeds)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether the device is the CPU, the only one supported."""
        return device.split(":")[0] == "CPU"


prepare = TracerBackend.prepare
run_model = TracerBackend.run_model
run_node = TracerBackend.run_node
supports_device = TracerBackend.supports_device
is_compatible = TracerBackend.is_compatible
