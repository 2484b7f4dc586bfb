"""What onnxruntime ran, kernel by kernel: the graph, the values of its tensors, and its replay."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from tracer.arithmetic.kernel import Inputs, Kernel, NotKnown, Rule, are_equal, kinds_of, parts
from tracer.arithmetic.replays import replay_of
from tracer.errors import ModelError, TracerError
from tracer.executors.onnxruntime import all_outputs, feeding, kernel_nodes, sessions
from tracer.executors.onnxruntime.profile_events import Label
from tracer.executors.settings import OrtSettings
from tracer.graph import stored_weights
from tracer.graph.model import IR_WITH_UNLISTED_WEIGHTS, Model, Node, bodies, names_read
from tracer.inputs.feedset import Feeds
from tracer.interpreter import operators
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.values import Value, from_sparse, type_proto
from tracer.records import trace
from tracer.support.temporary import TemporaryFolder
from tracer.support.types import Array

RUNTIME = f"onnxruntime {ort.__version__}"
_SAVED, _CPU = "saved.onnx", "CPUExecutionProvider"
INDEX_BYTES = 4
"""Bytes of integers that are indices or sizes; smaller ones are quantised values."""
RuleOf: TypeAlias = Callable[[Kernel], Rule]
"""Returns the rule of a kernel; raises NotKnown without one."""
OF_BODIES = Rule("its graphs run, kernel by kernel")
"""The rule of If, Loop and Scan."""


@dataclass(frozen=True)
class SavedGraph:
    """The graph that onnxruntime runs in place of a model, with its weights.

    `outputs` are the names of the model's outputs; `constants` are the stored values, by name.
    """

    proto: onnx.ModelProto = field(repr=False)
    outputs: tuple[str, ...]
    threads: int
    constants: Mapping[str, Array] = field(repr=False)
    kept: dict[Any, Any] = field(default_factory=dict, repr=False)
    """What is made once for a node: what it reads, and by types of inputs its kernel or graphs."""

    @classmethod
    def of(cls, model: Model, settings: OrtSettings) -> "SavedGraph":
        """Returns the graph of a model at the level of `settings`, which name the threads as well.

        Raises ModelError for what onnxruntime refuses, and for weights that a model in memory
        cannot hold.
        """
        if stored_weights.is_large(model):
            raise ModelError(
                f"{model.name}: its weights are too large to replay its kernels",
                "Replay a smaller model, or a part of this one.",
            )
        with TemporaryFolder() as folder:
            sessions.Factory.of(model, settings).save_on_cpu(folder / _SAVED, divided=False)
            proto = kernel_nodes.saved_proto(folder / _SAVED, with_weights=True)
        outputs = tuple(value.name for value in proto.graph.output)
        constants = {each.name: numpy_helper.to_array(each) for each in proto.graph.initializer}
        sparse = proto.graph.sparse_initializer
        constants |= {each.values.name: from_sparse(each) for each in sparse}
        known = {value.name for value in model.inputs} | constants.keys()
        for value in [each for each in proto.graph.input if each.name not in known]:
            proto.graph.input.remove(value)  # a folded weight, which models before IR 4 list
        return cls(proto, outputs, settings.threads, constants)

    @cached_property
    def defaults(self) -> Mapping[str, Array]:
        """The stored values that are listed among the inputs: a feed may replace them."""
        if self.proto.ir_version < IR_WITH_UNLISTED_WEIGHTS:
            return {}
        names = [value.name for value in self.proto.graph.input]
        return {name: self.constants[name] for name in names if name in self.constants}

    @cached_property
    def fixed(self) -> Mapping[str, Array]:
        """The stored values that no feed replaces: kernels may have packed them."""
        return {n: value for n, value in self.constants.items() if n not in self.defaults}

    @cached_property
    def nodes(self) -> list[onnx.NodeProto]:
        """The nodes, in the order in which they run."""
        return list(self.proto.graph.node)

    def reads(self, node: onnx.NodeProto) -> list[str]:
        """Returns what a node reads: its inputs, and what its graphs read around them."""
        key = "reads", id(node)
        if key not in self.kept:
            self.kept[key] = list(dict.fromkeys(names_read(node)))
        return list(self.kept[key])

    def names(self, model: Model) -> list[str]:
        """Returns the names of the nodes, with the keys of the nodes of `model` in them."""
        return [kernel_nodes.original(model, node.name) or node.op_type for node in self.nodes]

    def ran(self, model: Model) -> tuple[trace.Kernel, ...]:
        """Returns the kernels as an attribution to nodes of `model` reads them."""
        saved = Model.of(self.proto).nodes
        matches = [node for node in saved if node.scope.owner is None]
        labels = [Label(each.proto.name, 0, each.op_type, _CPU) for each in matches]
        return kernel_nodes.kernels(
            model, kernel_nodes.SavedNodes(saved), labels, [1.0] * len(labels), matches=matches
        )

    def runner(self, model: Model) -> Callable[[Feeds], dict[str, Any]]:
        """Returns a function from feeds to the values of all tensors, the feeds among them.

        Errors name `model`, whose graph this is, and its nodes.
        """
        proto = onnx.ModelProto()
        proto.CopyFrom(self.proto)
        settings = OrtSettings(threads=self.threads)
        run = all_outputs.runner(model, proto, all_outputs.computed(proto.graph), settings)
        return lambda feeds: {**self.defaults, **feeds, **run(feeds)}

    def kernel(self, node: onnx.NodeProto, values: Mapping[str, Any]) -> Kernel:
        """Returns the kernel of one of `nodes`, whose inputs are among `values`; made once.

        Raises NotKnown for inputs that are no tensors of numbers.
        """
        names = [name for name in dict.fromkeys(node.input) if name]
        read = {name: values[name] for name in names if name not in self.fixed}
        if not all(isinstance(v, np.ndarray) and not v.dtype.hasobject for v in read.values()):
            raise NotKnown("its inputs are no tensors of numbers")
        inputs = {name: (value.dtype, value.shape) for name, value in read.items()}
        key = (id(node), *inputs.values())
        if key not in self.kept:
            self.kept[key] = Kernel(
                node,
                inputs,
                {name: self.fixed[name] for name in names if name in self.fixed},
                {each.domain: each.version for each in self.proto.opset_import},
                self.threads,
                {
                    name: value
                    for name, value in read.items()
                    if value.dtype.kind == "b"
                    or (value.dtype.kind in "iu" and value.itemsize >= INDEX_BYTES)
                },
            )
        kernel: Kernel = self.kept[key]
        return kernel


@dataclass(frozen=True)
class Verdict:
    """How a replay compares with onnxruntime, of one kernel on its own inputs.

    `equal` of `size` results have equal bits; the others differ by `ulps` at most, units in the
    last place, infinite where one is no number. `reason` says why no rule is known; then tracer's
    interpreter takes its place. `ulps` is None where that lacks the operator, too.
    """

    node: onnx.NodeProto = field(repr=False)
    rule: Rule | None
    reason: str
    equal: int
    size: int
    ulps: float | None

    @property
    def is_equal(self) -> bool:
        """Whether all results have equal bits."""
        return self.equal == self.size and self.ulps is not None


def compare_kernels(
    graph: SavedGraph,
    rule_of: RuleOf,
    values: Mapping[str, Any],
    nodes: Sequence[onnx.NodeProto] | None = None,
) -> Iterator[Verdict]:
    """Yields a verdict on each kernel of the graph, fed the values that onnxruntime computed.

    `nodes` are those of the graph whose kernels are compared [default: all].
    """
    for node in graph.nodes if nodes is None else nodes:
        rule, reason, outputs = None, "", None
        try:
            rule, reason, outputs = replay_node(graph, node, rule_of, values)
        except NotKnown as unknown:
            reason = str(unknown)
        expected = [values[name] for name in node.output if name]
        yield Verdict(node, rule, reason, *_difference(expected, outputs))


def replay_node(
    graph: SavedGraph, node: onnx.NodeProto, rule_of: RuleOf, values: Mapping[str, Any]
) -> tuple[Rule | None, str, list[Any]]:
    """Returns the rule of a node's kernel, or None and why it is not known, and its outputs.

    `values` has what it reads. Raises NotKnown as `replay` does.
    """
    if bodies(node):
        return _replay_bodies(graph, node, rule_of, values)
    kernel = graph.kernel(node, values)
    rule, reason = None, ""
    try:
        rule = rule_of(kernel)
        among = kinds_of(kernel.values(values)) if rule.fails else []
        if failing := [kind for kind in rule.fails if kind in among]:
            raise NotKnown(f"'{rule.text}' does not hold with {' and '.join(failing)}")
    except NotKnown as unknown:
        rule, reason = None, str(unknown)
    return rule, reason, replay(kernel, rule, {name: values[name] for name in kernel.inputs})


def _replay_bodies(
    graph: SavedGraph, node: onnx.NodeProto, rule_of: RuleOf, values: Mapping[str, Any]
) -> tuple[Rule | None, str, list[Any]]:
    """Replays If, Loop or Scan: tracer's interpreter runs its graphs, by the rules of kernels."""
    names = [name for name in graph.reads(node) if name not in graph.fixed]
    feeds = {name: values[name] for name in names if name in values}
    types = {name: type_proto(value) for name, value in feeds.items()}
    key = (id(node), rule_of, *(each.SerializeToString() for each in types.values()))
    if key not in graph.kept:
        graph.kept[key] = _NestedGraphs(graph, node, rule_of, types)
    nested: _NestedGraphs = graph.kept[key]
    nested.reasons.clear()
    try:
        found = nested.interpreter.run(None, feeds)
    except TracerError as error:
        raise NotKnown(f"in its graphs: {error.what}") from error
    reason = "; ".join(nested.reasons)
    return (None if reason else OF_BODIES), reason, list(found)


class _NestedGraphs:
    """A node in tracer's interpreter, whose kernels are replayed; `reasons` are of those without
    a rule.
    """

    def __init__(
        self,
        graph: SavedGraph,
        node: onnx.NodeProto,
        rule_of: RuleOf,
        types: Mapping[str, onnx.TypeProto],
    ) -> None:
        graph_of_node = helper.make_graph(
            [node],
            "node",
            [helper.make_value_info(name, each) for name, each in types.items()],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
            [
                numpy_helper.from_array(graph.fixed[name], name)
                for name in graph.reads(node)
                if name in graph.fixed
            ],
        )
        proto = helper.make_model(
            graph_of_node, opset_imports=graph.proto.opset_import, ir_version=graph.proto.ir_version
        )
        model = Model.of(proto)
        self._rule_of = rule_of
        self._inside: dict[str, SavedGraph] = {}
        self.reasons: dict[str, None] = {}
        for scope in model.scopes:  # those around it come before
            own = {each.name: numpy_helper.to_array(each) for each in scope.graph.initializer}
            around = {} if scope.owner is None else self._inside[scope.owner.scope.path].fixed
            self._inside[scope.path] = SavedGraph(proto, (), graph.threads, {**around, **own})
        self.interpreter = Interpreter(model, wrap_kernel=self._by_rule, fallback=_NoFallback())

    def _by_rule(self, node: Node, plain: operators.Kernel) -> operators.Kernel:
        graph = self._inside[node.scope.path]

        def run(inputs: Sequence[Value], runs: Mapping[str, operators.Body]) -> Sequence[Value]:
            try:
                arrays = (np.asarray(x) if isinstance(x, np.generic) else x for x in inputs)
                given = dict(zip(node.inputs, arrays, strict=True))
                _, reason, found = replay_node(graph, node.proto, self._rule_of, given)
            except NotKnown as unknown:
                reason, found = str(unknown), [*plain(inputs, runs)]
            if reason:
                self.reasons[f"in its graphs, {node.op_type}: {reason}"] = None
            outputs = iter(found)
            return [next(outputs) if name else None for name in node.outputs]

        return plain if bodies(node.proto) else run


class _NoFallback:
    """Lets the interpreter plan operators that it lacks: their kernels have rules, or fail."""

    name = "a rule"

    def refuses(self, node: Node, opsets: Mapping[str, int]) -> str:
        return ""

    def kernel(self, node: Node, model: Model, constants: Collection[str]) -> operators.Kernel:
        def fail(inputs: Sequence[Value], runs: Mapping[str, operators.Body]) -> Sequence[Value]:
            raise ModelError("neither a rule nor tracer's interpreter has the operator")

        return fail


def replay(kernel: Kernel, rule: Rule | None, inputs: Inputs) -> list[Array]:
    """Returns the outputs of a kernel by its rule, or those of tracer's interpreter without one.

    Raises NotKnown where that lacks the operator.
    """
    if rule is not None:
        found = replay_of(kernel.node.domain, kernel.op_type)
        return found.replay(kernel, rule.facts, inputs)
    try:
        return kernel.interpret(inputs)
    except ModelError as error:
        raise NotKnown(f"tracer's interpreter cannot compute it: {error.what}") from error


@dataclass(frozen=True)
class ReplayedRun:
    """The outputs of a graph by rules alone, and the nodes that have none, by position.

    `values` are those of all tensors, or of the last ones alone.
    """

    outputs: Mapping[str, Any] = field(repr=False)
    values: Mapping[str, Any] = field(repr=False)
    without_rule: dict[int, str]


def replay_graph(
    graph: SavedGraph, rule_of: RuleOf, feeds: Feeds, keep: bool = False
) -> ReplayedRun:
    """Computes a graph by the rules of its kernels, one after the other, without onnxruntime.

    What has no rule is computed by tracer's interpreter, and `without_rule` has the reason. Raises
    NotKnown, which names the node, where that lacks an operator as well. With `keep`, values that
    no further node reads are kept as well.
    """
    values: dict[str, Any] = {**graph.defaults, **feeds}
    without: dict[int, str] = {}
    last = {name: place for place, node in enumerate(graph.nodes) for name in graph.reads(node)}
    for place, node in enumerate(graph.nodes):
        try:
            _, reason, outputs = replay_node(graph, node, rule_of, values)
        except NotKnown as unknown:
            raise NotKnown(f"{node.op_type} '{node.name}': {unknown}") from unknown
        if reason:
            without[place] = reason
        names = [name for name in node.output if name]
        values.update(zip(names, outputs, strict=True))
        for name in set() if keep else {*graph.reads(node), *names} - {*graph.outputs}:
            if last.get(name, -1) <= place:
                values.pop(name, None)
    found = {name: values.get(name, graph.constants.get(name)) for name in graph.outputs}
    tensors = {n: np.asarray(v) if isinstance(v, np.generic) else v for n, v in found.items()}
    return ReplayedRun(tensors, values, without)


def outputs_of(model: Model, settings: OrtSettings) -> Callable[[Feeds], dict[str, Any]]:
    """Returns a function from feeds to what onnxruntime computes for the outputs of a model."""
    session = sessions.Factory.of(model, settings).open()
    names = [value.name for value in model.graph.output]

    def run(feeds: Feeds) -> dict[str, Any]:
        with sessions.running(model):
            outputs = map(feeding.as_array, feeding.runner(model, session, feeds)())
            return dict(zip(names, outputs, strict=True))

    return run


def _difference(expected: list[Any], outputs: list[Array] | None) -> tuple[int, int, float | None]:
    """Returns how many results are equal, of how many, and by how many ulps others differ."""
    tensors, found = parts(expected), [] if outputs is None else parts(outputs)
    size = sum(tensor.size for tensor in tensors)
    if len(found) != len(tensors):
        return 0, size, None
    equal, most = 0, 0.0
    for tensor, replayed in zip(tensors, found, strict=True):
        same = are_equal(tensor, replayed)
        equal += int(same.sum()) if same.size == tensor.size else 0
        if not same.all():
            most = max(most, ulps(tensor, replayed))
    return equal, size, most


def overlap(x: Any, y: Any, batches: bool, padded: bool) -> tuple[Any, Any]:
    """Returns two values as far as both sides have them; None each where they are not alike.

    With `padded`, one has further channels of zeros; of two `batches` the smaller one is compared.
    """
    are_tensors = isinstance(x, np.ndarray) and isinstance(y, np.ndarray)
    if not are_tensors or x.dtype != y.dtype or x.ndim != y.ndim:
        return None, None
    free = {0} if batches else set()
    free |= {1} if padded else set()
    if {axis for axis in range(x.ndim) if x.shape[axis] != y.shape[axis]} - free:
        return None, None
    part = tuple(map(slice, map(min, x.shape, y.shape)))
    return x[part], y[part]


def ulps(first: Array, second: Array) -> float:
    """Returns the largest distance of two arrays: floats that lie between, or integers.

    Infinite for arrays of other shapes or types, and where one alone is not a number.
    """
    if first.shape != second.shape or first.dtype != second.dtype:
        return float("inf")
    if first.dtype.kind != "f":
        numbers = first.dtype.kind in "iub"
        return float(np.abs(first.astype(float) - second).max()) if numbers else float("inf")
    if (np.isnan(first) != np.isnan(second)).any():
        return float("inf")
    steps = list[Array]()  # how many floats lie between 0 and each value, with its sign
    for each in (first, second):
        values = np.ascontiguousarray(np.where(np.isnan(each), 0, each))
        bits = values.view(f"i{values.dtype.itemsize}").astype(np.int64)
        steps.append(np.where(bits < 0, int(np.iinfo(f"i{each.itemsize}").min) - bits, bits))
    one, other = np.maximum(*steps), np.minimum(*steps)
    return float((one.view(np.uint64) - other.view(np.uint64)).max(initial=0))
