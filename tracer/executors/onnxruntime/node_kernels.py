"""Computes single nodes for the interpreter, each in a session on a model of one node."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from onnx import helper
from onnxruntime.capi import onnxruntime_pybind11_state as state

from tracer.errors import TracerError
from tracer.executors.onnxruntime import feeding, sessions
from tracer.executors.settings import OrtSettings
from tracer.graph.loading import open_model
from tracer.graph.model import Model, Node, canonical_domain
from tracer.interpreter import values
from tracer.interpreter.operators import Body, Kernel
from tracer.interpreter.values import Value

_CPU = "CPUExecutionProvider"
_SETTINGS = OrtSettings(optimization="none", threads=1)
"""One thread: the interpreter gives the same bits on any number of them."""


class NodeKernels:
    """The interpreter's fallback: onnxruntime's kernels for the CPU, and those of libraries."""

    def __init__(self, register: Sequence[str | Path] = ()) -> None:
        """`register` are libraries of operators; which ones they have is not known before."""
        self._settings = replace(_SETTINGS, register=tuple(register))

    name = f"onnxruntime {ort.__version__}"

    def refuses(self, node: Node, opsets: Mapping[str, int]) -> str:
        """Returns why onnxruntime cannot compute a node by itself; '' if it has a kernel."""
        if any(each.HasField("g") or each.graphs for each in node.proto.attribute):
            return "its body cannot be handed to onnxruntime alone"
        opset = opsets.get(node.domain, 1)
        if any(first <= opset <= last for first, last in _versions(node.domain, node.op_type)):
            return ""
        if self._settings.register and not onnx.defs.has(node.op_type, node.domain):
            return ""
        return f"{self.name} has no kernel for it either"

    def kernel(self, node: Node, model: Model, constants: Collection[str]) -> Kernel:
        """Returns the kernel of a node, which opens a session for each combination of input types.

        Inputs in `constants` become weights of the session: some kernels ask for that. The kernel
        raises ModelError where onnxruntime refuses the node, InputError where it does not run.
        """
        sessions_by_types: dict[tuple[Any, ...], _Session] = {}

        def kernel(inputs: Sequence[Value], graphs: Mapping[str, Body]) -> Sequence[Value]:
            given = dict(zip(node.inputs, inputs, strict=True))
            given.pop("", None)
            types = tuple(
                values.type_proto(value).SerializeToString(deterministic=True)
                for value in given.values()
            )
            if types not in sessions_by_types:
                sessions_by_types[types] = _Session(node, model, given, constants, self._settings)
            return sessions_by_types[types].run(given)

        return kernel


class _Session:
    """A session on one node, for inputs of the types of `given`."""

    def __init__(
        self,
        node: Node,
        model: Model,
        given: Mapping[str, Value],
        constants: Collection[str],
        settings: OrtSettings,
    ) -> None:
        self._fed = [name for name in given if name not in constants]
        self._outputs = node.outputs
        graph = helper.make_graph(
            [node.proto],
            "node",
            [helper.make_value_info(name, values.type_proto(given[name])) for name in self._fed],
            [onnx.ValueInfoProto(name=name) for name in node.outputs if name],
            [onnx.numpy_helper.from_array(given[n], n) for n in given if n in constants],
        )
        imports = [helper.make_opsetid(*each) for each in model.opsets.items()]
        proto = helper.make_model(
            graph, opset_imports=imports, ir_version=model.proto.ir_version or onnx.IR_VERSION
        )
        self._model = open_model(proto)
        opened = sessions.Factory(self._model, proto.SerializeToString(), settings)
        self._session = _unnamed(self._model, opened.open)

    def run(self, given: Mapping[str, Value]) -> Sequence[Value]:
        """Returns the outputs; None for one that is left out."""
        fed = {name: given[name] for name in self._fed}

        def once() -> list[Value]:
            with sessions.running(self._model):
                return feeding.runner(self._model, self._session, fed)()

        found = iter(_unnamed(self._model, once))
        return [next(found) if name else None for name in self._outputs]


def _unnamed(model: Model, call: Any) -> Any:
    """Calls; an error does not name the model of one node, which the user does not know."""
    try:
        return call()
    except TracerError as error:
        text = error.what.removeprefix(f"{model.name}: ").replace(model.name, "it")
        raise type(error)(text, error.hint) from error


@cache
def _versions(domain: str, op_type: str) -> tuple[tuple[int, int], ...]:
    """Returns the first and last version of each of onnxruntime's kernels for the CPU."""
    return tuple(
        each.version_range
        for each in state.get_all_opkernel_def()
        if each.provider == _CPU
        and (canonical_domain(each.domain), each.op_name) == (domain, op_type)
    )


fallback = NodeKernels
