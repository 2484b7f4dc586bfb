"""Cuts nodes out of a model, with the values that they read when the model runs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tracer.accumulators.engine.value_ranges import StoredValues
from tracer.errors import InputError, UsageError
from tracer.graph.model import IR_WITH_UNLISTED_WEIGHTS, Model, Node, Scope
from tracer.graph.shape_inference import FAILURES
from tracer.graph.stored_weights import is_large
from tracer.inputs.feedset import Feeds
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.observers import Observer
from tracer.interpreter.values import Value, type_proto
from tracer.support.types import Array
from tracer.text import suggest


@dataclass(frozen=True, slots=True)
class Case:
    """A graph without weights, its weights, and arrays for its inputs: what a run takes.

    `kinds` has an empty array of the type of each tensor that is known, by name. `formulas` are
    Python expressions for arrays that have one, by name.
    """

    proto: onnx.ModelProto = field(repr=False)
    weights: Mapping[str, Array] = field(repr=False)
    feeds: Feeds = field(repr=False)
    kinds: Mapping[str, Array] = field(default_factory=dict, repr=False)
    formulas: Mapping[str, str] = field(default_factory=dict, repr=False)

    def model(self) -> onnx.ModelProto:
        """Returns the graph with its weights."""
        proto = deepcopy(self.proto)
        stored = (numpy_helper.from_array(value, name) for name, value in self.weights.items())
        proto.graph.initializer.extend(stored)
        return proto

    @property
    def arrays(self) -> dict[str, Any]:
        """The inputs and the weights, by name."""
        return {**self.feeds, **self.weights}

    def with_arrays(self, arrays: Mapping[str, Any], formulas: Mapping[str, str]) -> "Case":
        """Returns the case with other values of inputs and weights; outputs lose their shapes."""
        proto = deepcopy(self.proto)
        for value in proto.graph.input:
            value.type.CopyFrom(type_proto(arrays[value.name]))
        for value in proto.graph.output:
            value.ClearField("type")
        return replace(
            self, proto=proto, formulas=formulas,
            weights={name: arrays[name] for name in self.weights},
            feeds={name: arrays[name] for name in self.feeds},
        )  # fmt: skip


class Cutter:
    """Cuts nodes of one graph of a model out; `values` has the tensors of a run, by name.

    `values` has those of the graphs around it as well. What follows from weights alone is a weight
    of the part.
    """

    def __init__(self, model: Model, scope: Scope, values: Mapping[str, Value]) -> None:
        self._model, self._scope, self._values = model, scope, values
        self._stored, flow = StoredValues(model), model.dataflow
        around = [each.path for each in scope.outward()]
        self.nodes = [node for node in model.nodes if node.scope.path == scope.path]
        own = {node.key for node in self.nodes}
        read = defaultdict[str, dict[str, None]](dict)
        for node in model.nodes:
            outer: Node | None = node
            while outer is not None and outer.key not in own:
                outer = outer.scope.owner
            if outer is None:
                continue
            names = [*node.inputs]
            if node is not outer:  # a body may return what is around it
                names += [value.name for value in node.scope.graph.output]
            for name in filter(None, names):
                if flow.address(name, node.scope)[0] in around:
                    read[outer.key][name] = None
        self._read = {key: tuple(names) for key, names in read.items()}
        self._results = {value.name for value in scope.graph.output}
        self.kinds = {
            name: np.empty(0, value.dtype)
            for name, value in values.items()
            if isinstance(value, np.ndarray)
        }

    def cut_out(self, nodes: Sequence[Node], is_exposed: bool = False) -> Case:
        """Returns `nodes` as a model, on the values that they read.

        Its outputs are results of the graph and what none of `nodes` reads; if `is_exposed`, also
        what other nodes read. Raises InputError for a value that is not known.
        """
        chosen = {node.key for node in nodes}
        made = dict.fromkeys(name for node in nodes for name in node.outputs if name)
        read = dict.fromkeys(name for node in nodes for name in self._read.get(node.key, ()))
        others = [node.key for node in self.nodes if is_exposed and node.key not in chosen]
        outside = {name for key in others for name in self._read.get(key, ())}
        weights, feeds = dict[str, Array](), dict[str, Any]()
        for name in read:
            if name in made:
                continue
            stored = self._stored.value(name, self._scope)
            if stored is not None:
                weights[name] = stored
            elif self._values.get(name) is not None:
                feeds[name] = self._values[name]
            else:
                raise InputError(
                    f"{self._model.name}: the value of '{name}' is not known",
                    "Extract a node that runs on these inputs.",
                )
        outputs = [n for n in made if n in self._results or n in outside or n not in read]
        graph = onnx.helper.make_graph(
            [node.proto for node in nodes], "extracted",
            [self._declaration(name) for name in feeds], [*map(self._declaration, outputs)],
        )  # fmt: skip
        whole = self._model.proto
        proto = onnx.helper.make_model(
            graph, opset_imports=whole.opset_import, functions=whole.functions,
            ir_version=max(whole.ir_version, IR_WITH_UNLISTED_WEIGHTS),
        )  # fmt: skip
        return Case(proto, weights, feeds, self.kinds)

    def _declaration(self, name: str) -> onnx.ValueInfoProto:
        """Returns a tensor with its type: that of its value, or of a sequence, map or optional."""
        kind = self._no_tensors.get(name) or type_proto(self._values.get(name))
        return onnx.helper.make_value_info(name, kind)

    @cached_property
    def _no_tensors(self) -> Mapping[str, onnx.TypeProto]:
        """The types of what is no tensor: a value does not tell that of an empty sequence."""
        graphs = [self._scope.graph]
        are_tensors = all(isinstance(value, np.ndarray) for value in self._values.values())
        if self._scope.owner is None and not are_tensors and not is_large(self._model):
            with suppress(*FAILURES):
                graphs.append(onnx.shape_inference.infer_shapes(self._model.proto).graph)
        return {
            value.name: value.type
            for graph in graphs
            for value in (*graph.input, *graph.output, *graph.value_info)
            if value.type.WhichOneof("value") not in (None, "tensor_type")
        }


class _Recorder(Observer):
    """Keeps all tensors by name, in bodies those of the first run."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}

    def after(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Keeps what the node reads and computes."""
        for names, values in ((node.inputs, inputs), (node.outputs, outputs)):
            for name, value in zip(names, values, strict=False):
                self.values.setdefault(name, value)


def values_in_bodies(model: Model, feeds: Feeds) -> Mapping[str, Value]:
    """Returns all tensors of a run in the interpreter, in bodies of their first run."""
    recorder = _Recorder()
    Interpreter(model, observers=[recorder], late_kernels=True).run(None, feeds)
    return {**recorder.values, **feeds}


def find_nodes(model: Model, nodes: Sequence[str], modules: Sequence[str]) -> list[Node]:
    """Returns the nodes of these names, or of outputs of these names, and those of modules.

    Raises UsageError for a name that is not there, and for nodes of several graphs.
    """
    found = set[str]()
    for name in nodes:
        named = next((n.key for n in model.nodes if name in (n.key, *n.outputs)), None)
        if named is None:
            near = suggest(name, [node.key for node in model.nodes])
            if any(node.module == name for node in model.nodes):
                near = f"It is a module: --module {name}."
            raise UsageError(
                f"{model.name} has no node '{name}'", near or "tracer count lists them."
            )
        found.add(named)
    for name in modules:
        inside = [n.key for n in model.nodes if f"{n.module}.".startswith(f"{name}.")]
        if not inside:
            every = {node.module for node in model.nodes if node.module}
            usual = "tracer count --by module lists them." if every else "It has none: give --node."
            raise UsageError(f"{model.name} has no module '{name}'", suggest(name, every) or usual)
        found.update(inside)
    chosen = [node for node in model.nodes if node.key in found]
    owners = {f"{node.key}." for node in chosen}
    chosen = [n for n in chosen if not n.scope.path.startswith(tuple(owners))]  # they come along
    if len({node.scope.path for node in chosen}) > 1:
        raise UsageError("the nodes are of several graphs", "Name nodes of one body, or its owner.")
    return chosen
