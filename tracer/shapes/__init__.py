"""The shapes of all tensors of a model: onnx's inference, continued through computed shapes.

Exporters compute shapes in the graph: the sizes of a tensor are sliced, multiplied and joined, and
the result shapes another tensor. Where onnx's inference stops, `infer` evaluates such small tensors
(`known`) and goes on, node by node in the order of the graph.

`check` refuses nodes whose inputs do not fit, before a run, by the checks of the interpreter's
operators (`tracer.interpreter.operators`). Runtimes meet what does not fit in the middle of a run:
some say so without the node, some end the process.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from tracer.containment import activity
from tracer.errors import ModelError, TracerError
from tracer.graph import shape_inference, tensor_type
from tracer.graph.model import Address, Model, Node, Scope, describe
from tracer.graph.operators import RulesByOperator
from tracer.graph.shape_inference import FAILURES, Shapes, TensorTypes
from tracer.graph.tensor_type import Dim, TensorType, bits_of, common_type, refined
from tracer.interpreter import operators, values
from tracer.interpreter.operators import shaped, standard
from tracer.shapes import rules
from tracer.shapes.known import MOST, KnownValues
from tracer.shapes.rules import as_standard, rule_of, with_one_dtype
from tracer.support.types import Array, dtype_text

_COUNTERS = (TensorType("int64", ()), TensorType("bool", ()))
"""The first inputs of the body of a Loop: the number of the trip, and the condition."""
Types = Sequence[TensorType | None]
_SCAN_WITHOUT_BATCH = 9
"""Before this version, Scan had a batch axis."""
_VISITS = 4
"""Visits of a node, on average, before nested bodies are inferred only once."""
_INTEGERS = frozenset({"int32", "int64"})
"""Types of lengths, positions and groups, whose values are checked as well."""
_LARGEST = 2**63 - 1
"""The largest size that ONNX can write down; a Resize may ask for more."""


def infer(model: Model, shapes: Shapes, *, checks: bool = False) -> TensorTypes:
    """Returns the types of all tensors of `model`, and the values that shapes depend on.

    Inputs missing from `shapes` keep their declared, perhaps symbolic, shape. Nothing large is
    computed, and the time is linear in the number of nodes. Raises InputError if a shape
    contradicts the model's declaration; with `checks` what `check` raises.
    """
    inference = inferred(model, shapes)
    values_of_shapes = inference.values.by_path()
    if checks:
        _check(inference, _checked(model))
    return TensorTypes(inference.tensors, inference.weights, values_of_shapes)


def fits(model: Model, shapes: Shapes) -> bool:
    """Returns whether the shapes in `model` fit together where its inputs have `shapes`.

    What only values tell, as an index out of range, is not looked at.
    """
    inference = inferred(model, shapes)
    paths = inference.misfits | {node.scope.path for node in model.nodes if inference.resizes(node)}
    return all(map(inference.never_runs, paths))


def inferred(
    model: Model, shapes: Shapes, numbers: Mapping[str, Array] | None = None
) -> "Inference":
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
        self.weights = types.weights
        self.values = KnownValues(model, self.type_of)
        self._flow = model.dataflow
        self._by_onnx = types.tensors
        self.misfits, self.idle = set[str](), set[str]()
        self._more_known: set[Address] = set()
        self._corrected: set[Address] = set()
        self._visits_left = _VISITS * len(model.nodes)
        self._bodies: dict[str, dict[str, Scope]] = defaultdict(dict)
        for scope in model.scopes:
            if scope.owner is not None:
                name = scope.path.removeprefix(f"{scope.owner.key}.")
                self._bodies[scope.owner.key][name] = scope

    def graph(self, scope: Scope) -> None:
        """Infers the nodes of a graph and of its bodies, in order."""
        nodes = self.model.nodes_by_graph.get(scope.path, ())
        self._visits_left -= len(nodes)
        for node in nodes:
            if node.key in self._bodies:
                rule = _bodies_alone if node.domain else _RULES.get(node.op_type, _bodies_alone)
                types = rule(self, node, self._bodies[node.key])
                for name, found in zip(node.outputs, types, strict=False):
                    if name:
                        self.refine((node.scope.path, name), found)
            elif self._corrected and any(each in self._corrected for each in self._flow.read(node)):
                # onnx took an input for something else
                self._infer_again(node)
            elif self._has_rule(node) or any(map(self._is_open, self._flow.outputs_of(node))):
                self._node(node)
            elif self._more_known and not self._more_known.isdisjoint(self._flow.read(node)):
                self._node(node)  # onnx took an open size for one that fits

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
            for node in self.model.nodes_by_graph.get(scope.path, ()):
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
        is_open = any(map(self._is_open, outputs))
        if is_open:  # onnx may tell more than before: it knew stored values, and the types then
            more = [self._is_more_known(address) for address in inputs.values()]
            is_open = any(more) or not any(map(self._is_open, inputs.values()))
        else:
            is_open = any(address in self._more_known for address in inputs.values())
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

    def _is_more_known(self, address: Address) -> bool:
        if address in self._more_known:
            return True
        maker = self._flow.makers.get(address)
        is_stored = maker is None or maker.op_type == "Constant"
        return not is_stored and self.values.of(address) is not None

    def _is_open(self, address: Address) -> bool:
        type_ = self.type_of(address)
        return type_ is None or type_.concrete is None


class MisfitError(Exception):
    """The inputs of a node do not fit together, or do not fit its attributes."""


def node_outputs(
    node: Node,
    model: Model,
    types: Mapping[str, TensorType | None],
    values: Mapping[str, Array | None],
) -> dict[str, TensorType]:
    """Returns the types of the outputs by name, as far as onnx can tell them.

    `types` and `values` of the inputs are by name; a value is None where it is not known. Raises
    MisfitError where a rule or onnx finds a contradiction.
    """
    version = model.opsets.get(node.domain)
    if version is None:
        return {}
    like = model.operators.shapes.get((node.domain, node.op_type))
    if like is not None:
        kind = types.get(node.inputs[like]) if like < len(node.inputs) else None
        return {} if kind is None else {node.outputs[0]: kind}
    try:
        own = rules.outputs(node, version, types, values)
    except ModelError as error:
        raise MisfitError from error
    if own is not None:
        sizes = (size for kind in own.values() if kind is not None for size in kind.shape or ())
        if any(isinstance(size, int) and size > _LARGEST for size in sizes):
            raise MisfitError
        return own
    proto, domain, version = as_standard(node, version)
    if any(types[name] is None for name in proto.input if name):
        return {}
    known = {name: kind for name, kind in types.items() if kind is not None and name in proto.input}
    if domain != node.domain:
        known = with_one_dtype(known)
    protos = {name: tensor_type.to_type_proto(kind) for name, kind in known.items()}
    data = {n: onnx.numpy_helper.from_array(v, n) for n, v in values.items() if v is not None}
    try:
        outputs = onnx.shape_inference.infer_node_outputs(
            onnx.defs.get_schema(proto.op_type, version, domain), proto, protos, data,
            opset_imports=[onnx.helper.make_opsetid(domain, version)],
            ir_version=model.proto.ir_version,
        )  # fmt: skip
    except onnx.defs.SchemaError:  # an operator that it does not know
        return {}
    except FAILURES as error:
        raise MisfitError from error
    found = {name: tensor_type.from_type_proto(kind) for name, kind in outputs.items()}
    return {name: kind for name, kind in found.items() if kind is not None}


def _bodies_alone(inference: Inference, node: Node, scopes: Mapping[str, Scope]) -> Types:
    """Tells nothing of the outputs."""
    for scope in scopes.values():
        inference.graph(scope)
    return ()


_RULES = RulesByOperator[Callable[[Inference, Node, Mapping[str, Scope]], Types]]()


@_RULES("If")
def _if(inference: Inference, node: Node, scopes: Mapping[str, Scope]) -> Types:
    """Outputs have the types of the branch that runs, else what both branches share."""
    _bodies_alone(inference, node, scopes)
    taken = inference.values.branch(node)
    ran = [scope for name, scope in scopes.items() if taken in (None, name)]
    inference.idle |= {scope.path for scope in scopes.values() if scope not in ran}
    return [common_type(types) for types in zip(*map(inference.results, ran), strict=False)]


@_RULES("Loop")
def _loop(inference: Inference, node: Node, scopes: Mapping[str, Scope]) -> Types:
    """States have what is true before and after each trip; scan outputs stack the trips.

    The body is inferred with the states as they come in. If one leaves with another shape, the
    body is inferred once more, with the shapes of states only as it declares them.
    """
    body = scopes["body"]
    states = inference.inputs(node)[2:]
    for value in body.graph.input[1:2]:  # a trip begins only where the condition is true
        inference.values.assume((body.path, value.name), np.array(True))
    results = _trip(inference, body, [*_COUNTERS, *(states if inference.may_repeat else ())])
    kept = _common_states(states, results[1:])
    if inference.may_repeat and kept != states:
        inference.reset(body)
        results = _trip(inference, body, _COUNTERS)
        kept = _common_states(states, results[1:])
    trips = _loop_trips(inference, node, body)
    after = results[1 : 1 + len(states)] if trips else kept
    return [*after, *(_with_axis(type_, 0, trips) for type_ in results[1 + len(states) :])]


def _trip(inference: Inference, body: Scope, inputs: Types) -> Types:
    """Infers a body with inputs of these types; returns the types of its outputs."""
    for value, type_ in zip(body.graph.input, inputs, strict=False):
        inference.refine((body.path, value.name), type_)
    inference.graph(body)
    return inference.results(body)


def _common_states(before: Types, after: Types) -> list[TensorType | None]:
    return [common_type(pair) for pair in zip(before, after, strict=False)]


def _loop_trips(inference: Inference, node: Node, body: Scope) -> int | None:
    """Returns how often the body of a Loop runs; None if that depends on data."""
    maximum, begins = inference.input_value(node, 0), inference.input_value(node, 1)
    if begins is not None and not begins.all():
        return 0
    goes_on = inference.values.of(inference.result(body, 0)) if body.graph.output else None
    is_certain = begins is not None or len(node.inputs) < 2 or not node.inputs[1]
    if maximum is None or maximum.size != 1 or not is_certain:
        return None
    return max(0, int(maximum.item())) if goes_on is not None and goes_on.all() else None


@_RULES("Scan")
def _scan(inference: Inference, node: Node, scopes: Mapping[str, Scope]) -> Types:
    """A body has one element of each scanned input; states keep their types."""
    if inference.model.opsets.get("", 1) < _SCAN_WITHOUT_BATCH:
        return _bodies_alone(inference, node, scopes)
    attributes = {each.name: each for each in node.proto.attribute}
    count = attributes["num_scan_inputs"].i if "num_scan_inputs" in attributes else 1
    inputs = inference.inputs(node)
    states, scanned = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    axes = _axes(attributes.get("scan_input_axes"), len(scanned))
    parts = [_scanned(type_, axis) for type_, axis in zip(scanned, axes, strict=False)]
    results = _trip(inference, scopes["body"], [*states, *(element for element, _ in parts)])
    stacked = results[len(states) :]
    axes_out = _axes(attributes.get("scan_output_axes"), len(stacked))
    length = next((size for _, size in parts if isinstance(size, int)), None)
    pairs = zip(stacked, axes_out, strict=False)
    after = _common_states(states, results)
    return [*after, *(_with_axis(type_, axis, length) for type_, axis in pairs)]


def _axes(attribute: onnx.AttributeProto | None, count: int) -> Sequence[int]:
    return [0] * count if attribute is None else attribute.ints


def _scanned(type_: TensorType | None, axis: int) -> tuple[TensorType | None, Dim]:
    """Returns one element along an axis, and how many there are; None for what is not known."""
    if type_ is None or type_.shape is None:
        return type_, None
    shape = type_.shape
    at = axis % len(shape) if shape else 0
    size = shape[axis] if -len(shape) <= axis < len(shape) else None
    return TensorType(type_.dtype, shape[:at] + shape[at + 1 :]), size


def _with_axis(type_: TensorType | None, axis: int, size: int | None) -> TensorType | None:
    if type_ is None or type_.shape is None:
        return type_
    at = axis % (len(type_.shape) + 1)
    return TensorType(type_.dtype, (*type_.shape[:at], size, *type_.shape[at:]))


def check(model: Model, shapes: Shapes, fed: Mapping[str, Any] | None = None) -> None:
    """Raises ModelError, which names the node, for inputs that do not fit its operator.

    `shapes` are those of the model's inputs, `fed` the values of some of them. A node is left out
    if the type of an input is not known before a run.
    """
    checked = _checked(model)
    if not checked:
        return
    numbers = {
        name: value
        for name, value in (fed or {}).items()
        if (isinstance(value, np.ndarray) and value.dtype.kind in "biu" and value.size <= MOST)
    }
    _check(inferred(model, shapes, numbers), checked)


def _checked(model: Model) -> dict[tuple[str, str], operators.Operator]:
    """Returns the operators of a model that have a check, by domain and name."""
    return {
        (domain, op_type): found
        for domain, op_type in {(node.domain, node.op_type) for node in model.nodes}
        if (found := standard().find(domain, op_type, model.opsets.get(domain, 1))) and found.check
    }


def _check(known: Inference, checked: Mapping[tuple[str, str], operators.Operator]) -> None:
    model = known.model
    for node in model.nodes if checked else ():
        operator = checked.get((node.domain, node.op_type))
        if operator is None:
            continue
        try:
            inputs = [
                _input(known, node, at) if name else None for at, name in enumerate(node.inputs)
            ]
            if all(
                each is not None for name, each in zip(node.inputs, inputs, strict=True) if name
            ):
                attributes = values.attributes_of(node.proto)
                operators.check(operator, inputs, attributes)
        except Exception as error:  # ranks and attributes that no check foresees
            where = describe(model, (node,), model.opsets.get(node.domain, 1))
            if isinstance(error, TracerError):
                raise type(error)(f"{where}: {error.what}", error.hint) from error
            types = ", ".join(str(kind) for kind in known.inputs(node) if kind is not None)
            raise ModelError(f"{where}: inputs or attributes of no known form: {types}") from error


def _input(known: Inference, node: Node, index: int) -> Array | None:
    """Returns an input: its value if it is of integers, else its type; None if that is unknown."""
    kind = known.inputs(node)[index]
    if kind is None or kind.concrete is None or bits_of(kind.dtype) is None:
        return None
    value = None
    if kind.dtype in _INTEGERS:
        value = known.input_value(node, index)
        if value is None:  # in the file, and too large for shape inference, as groups are
            stored = (each for scope in node.scope.outward() for each in scope.graph.initializer)
            weight = next((each for each in stored if each.name == node.inputs[index]), None)
            if weight is not None and not weight.external_data:
                value = values.from_tensor(weight)
    if value is None:
        return shaped(tensor_type.numpy_dtype(kind.dtype), kind.concrete)
    return value
