"""Infers the types of all tensors: by onnx, then node by node where shapes are computed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import onnx

from tracer.containment import activity
from tracer.graph import shape_inference
from tracer.graph.model import Address, Model, Node, Scope
from tracer.graph.shape_inference import Shapes, TensorTypes
from tracer.graph.tensor_type import TensorType, refined
from tracer.shapes import control_flow
from tracer.shapes.known_values import MOST, KnownValues
from tracer.shapes.one_node import MisfitError, node_outputs
from tracer.shapes.rules import rule_of
from tracer.support.types import Array, dtype_text

_VISITS = 4
"""Visits of a node, on average, before nested bodies are inferred only once."""


def infer(model: Model, shapes: Shapes) -> TensorTypes:
    """Returns the types of all tensors of `model`, and the values that shapes depend on.

    Inputs missing from `shapes` keep their declared, perhaps symbolic, shape. Nothing large is
    computed, and the time is linear in the number of nodes. Raises InputError if a shape
    contradicts the model's declaration.
    """
    inference = inferred(model, shapes)
    weights = {scope.path: {w.name: w for w in scope.graph.initializer} for scope in model.scopes}
    return TensorTypes(inference.tensors, weights, inference.values.by_path())


def fits(model: Model, shapes: Shapes) -> bool:
    """Returns whether the shapes in `model` fit together where its inputs have `shapes`.

    What only values tell, as an index out of range, is not looked at.
    """
    inference = inferred(model, shapes)
    paths = inference.misfits | {node.scope.path for node in model.nodes if inference.resizes(node)}
    return all(map(inference.never_runs, paths))


def inferred(model: Model, shapes: Shapes, numbers: Mapping[str, Array] | None = None) -> Inference:
    """Returns the pass over all nodes; `numbers` are small inputs whose values are known as well.

    Raises InputError if a shape contradicts the model's declaration.
    """
    inference = Inference(model, shape_inference.infer(model, shapes))
    for name, value in (numbers or {}).items():
        inference.values.assume(("", name), value)
    with activity.doing(model.name, f"onnx {onnx.__version__} inferred the shapes"):
        inference.graph(next(scope for scope in model.scopes if not scope.path))
    return inference


class Inference:
    """A pass over the nodes of a model; `tensors` are the types known so far, by path and name.

    `misfits` are paths of graphs with nodes whose inputs contradict each other, `idle` paths of
    branches that never run. onnx has inferred what it can: a node is inferred again if more is
    known of its inputs, or something else than onnx took them for.
    """

    def __init__(self, model: Model, types: TensorTypes) -> None:
        self.model = model
        self.tensors = {path: dict(of_graph) for path, of_graph in types.tensors.items()}
        self.values = KnownValues(model, self.type_of)
        self._flow = model.dataflow
        self._by_onnx = types.tensors
        self.misfits, self.idle = set[str](), set[str]()
        self._more_known: set[Address] = set()
        self._corrected: set[Address] = set()
        self._visits_left = _VISITS * len(model.nodes)
        self._nodes: dict[str, list[Node]] = defaultdict(list)
        for node in model.nodes:
            self._nodes[node.scope.path].append(node)
        self._bodies: dict[str, dict[str, Scope]] = defaultdict(dict)
        for scope in model.scopes:
            if scope.owner is not None:
                name = scope.path.removeprefix(f"{scope.owner.key}.")
                self._bodies[scope.owner.key][name] = scope

    def graph(self, scope: Scope) -> None:
        """Infers the nodes of a graph and of its bodies, in order."""
        nodes = self._nodes[scope.path]
        self._visits_left -= len(nodes)
        for node in nodes:
            if node.key in self._bodies:
                control_flow.infer(self, node, self._bodies[node.key])
            elif self._is_corrected(node):
                self._infer_again(node)
            elif self._has_rule(node) or any(map(self._is_open, self._flow.outputs_of(node))):
                self._node(node)

    @property
    def may_repeat(self) -> bool:
        """Whether bodies may be inferred twice; nested ones would be so 2, 4, 8 times."""
        return self._visits_left > 0

    def type_of(self, address: Address) -> TensorType | None:
        """Returns what is known of the type of a tensor."""
        of_graph = self.tensors.get(address[0])
        return None if of_graph is None else of_graph.get(address[1])

    def inputs(self, node: Node) -> list[TensorType | None]:
        """Returns the types of the inputs of a node; None for one that is left out or unknown."""
        addresses = [self._flow.address(name, node.scope) for name in node.inputs]
        return [self.type_of(address) for address in addresses]

    def input_value(self, node: Node, index: int) -> Array | None:
        """Returns the value of an input; None if it is left out, or not known."""
        if index >= len(node.inputs) or not node.inputs[index]:
            return None
        return self.values.of(self._flow.address(node.inputs[index], node.scope))

    def result(self, scope: Scope, position: int) -> Address:
        """Returns the tensor that is an output of a body."""
        return self._flow.address(scope.graph.output[position].name, scope)

    def results(self, scope: Scope) -> list[TensorType | None]:
        """Returns the types of the outputs of a body."""
        return [self.type_of(self.result(scope, at)) for at in range(len(scope.graph.output))]

    def refine(self, address: Address, found: TensorType | None) -> None:
        """Adds what was found of the type of a tensor to what is known of it.

        It replaces what it contradicts: onnx knew less, or was wrong.
        """
        known = self.type_of(address)
        better = refined(found, known)
        if better is not None and better != known:
            self.tensors.setdefault(address[0], {})[address[1]] = better
            self._more_known.add(address)
            if refined(known, found) != better:
                self._corrected.add(address)

    def reset(self, body: Scope) -> None:
        """Forgets what was found of the tensors of a body, and in the bodies of its nodes."""
        inside = [body]
        for scope in inside:  # grows
            for node in self._nodes[scope.path]:
                inside += self._bodies.get(node.key, {}).values()
            self.tensors[scope.path] = dict(self._by_onnx.get(scope.path, {}))
        paths = frozenset(scope.path for scope in inside)
        self.values.forget(paths)
        self.misfits -= paths
        self.idle -= paths
        self._more_known = {each for each in self._more_known if each[0] not in paths}
        self._corrected = {each for each in self._corrected if each[0] not in paths}

    def resizes(self, node: Node) -> bool:
        """Whether a node is a Reshape to another number of elements, which onnx lets pass."""
        if node.op_type != "Reshape" or node.domain:
            return False
        before, after = self.inputs(node)[0], self.type_of((node.scope.path, node.outputs[0]))
        sizes = {type_.size for type_ in (before, after) if type_ is not None} - {None}
        return len(sizes) > 1

    def never_runs(self, path: str) -> bool:
        """Whether a graph is in a branch that never runs."""
        return any(f"{path}/".startswith(f"{branch}/") for branch in self.idle)

    def _has_rule(self, node: Node) -> bool:
        """Whether our own rule is to be asked, even where onnx has inferred the outputs."""
        return rule_of(node, self.model.opsets.get(node.domain, 1)) is not None

    def _is_corrected(self, node: Node) -> bool:
        """Whether onnx took an input of a node for something else."""
        return bool(self._corrected) and any(
            address in self._corrected for address in self._flow.read(node)
        )

    def _infer_again(self, node: Node) -> None:
        """Infers the outputs of a node of whose inputs onnx knew something else."""
        before = {address: self.type_of(address) for address in self._flow.outputs_of(node)}
        self._forget(before)
        self._more_known.update(self._flow.read(node))
        self._node(node)
        for address, kind in before.items():
            after = self.type_of(address)
            if after != kind or (after is not None and (after.size or 0) <= MOST):
                self._corrected.add(address)  # a small one may be a shape of other values

    def _forget(self, addresses: Iterable[Address]) -> None:
        """Drops the shapes of tensors that onnx has wrong."""
        for path, name in addresses:
            if (kind := self.type_of((path, name))) is not None:
                self.tensors[path][name] = TensorType(kind.dtype, None)

    def _node(self, node: Node) -> None:
        """Infers the outputs of a node: from their values if these are known, else by onnx."""
        outputs = list(self._flow.outputs_of(node))
        for address in outputs:
            value = self.values.of(address)
            if value is not None:
                self.refine(address, TensorType(dtype_text(value), value.shape))
        inputs = {name: self._flow.address(name, node.scope) for name in node.inputs if name}
        is_open = any(map(self._is_open, outputs)) and self._is_worthwhile(inputs.values())
        if is_open or self._has_rule(node):
            types = {name: self.type_of(address) for name, address in inputs.items()}
            values = {name: self.values.of(address) for name, address in inputs.items()}
            try:
                outputs_found = node_outputs(node, self.model, types, values)
            except MisfitError:
                self.misfits.add(node.scope.path)
                self._forget(outputs)
                return
            for name, found in outputs_found.items():
                self.refine((node.scope.path, name), found)

    def _is_worthwhile(self, inputs: Iterable[Address]) -> bool:
        """Whether onnx may tell more than before: it knew stored values, and the types then."""
        known = [self._is_more_known(address) for address in inputs]
        return any(known) or not any(map(self._is_open, inputs))

    def _is_more_known(self, address: Address) -> bool:
        if address in self._more_known:
            return True
        maker = self._flow.makers.get(address)
        is_stored = maker is None or maker.op_type == "Constant"
        return not is_stored and self.values.of(address) is not None

    def _is_open(self, address: Address) -> bool:
        type_ = self.type_of(address)
        return type_ is None or type_.concrete is None
