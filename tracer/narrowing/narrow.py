"""Changes the sums of a quantised graph until they fit, one node after the other.

Two runs of all calibration batches stop at each node that is to be changed: one of the model as it
is, which tells what the node should return, and one of the model with all changes so far, which
tells what the node will read. The changed node then computes its output for the second run. So each
layer makes up for what those before it have lost, as in GPTQ.

Or the graph moves to powers of two, so that no float operation rounds. The scales of activations
become the powers of two that lose the least on calibration data, with even zero points; those of
weights the ones that `fitting` finds, in 7 bits, so that pairs of products fit 16 bits. What an Add
reads and returns has one step, and a sum that it reads is an odd number, so that no half is
rounded: all weights of the layer are even, and its bias is odd. A mean of a count that is no power
of two becomes a convolution with ones: its sum is divided by a power of two, and the rest of the
quotient goes into the weights of the layers behind it. Slopes of PRelu and LeakyRelu are rounded to
a few bits, whose products with integers of 8 bits are exact. `tracer.accumulators.exactness` proves
the result, and does not trust this module.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import TypeVar

import numpy as np
import onnx
from onnx import helper

from tracer.accumulators.engine.value_ranges import integer_range
from tracer.containment.activity import Progress
from tracer.graph import loading
from tracer.graph.model import Model, Node
from tracer.graph.provenance import describe_like
from tracer.inputs.feedset import Feeds
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.numeric import parallel
from tracer.interpreter.observers import Observer, TensorRecorder
from tracer.interpreter.values import Value
from tracer.narrowing import fitting, measures, samples
from tracer.narrowing.fragment import Fragment, write_layer
from tracer.narrowing.layers import MEANS, OPERATORS, Layer, PlainSum, find_layers
from tracer.narrowing.requirement import Need
from tracer.quantization.graph_editor import GraphEditor
from tracer.support.types import Array
from tracer.whatif.reuse import ArrayRoom

Sum = Layer | PlainSum
SumT = TypeVar("SumT", bound=Sum)
Alive = Mapping[str, Value]
"""The tensors of a batch that later nodes read, by name."""
_Call = tuple[Sequence[Value], Array]
"""What a node reads and returns."""


def walk(
    model: Model,
    sums: Mapping[str, SumT],
    batches: Iterable[Feeds],
    change: Callable[[SumT, Node, Sequence[samples.Batch]], Fragment | None],
    report: Progress,
) -> None:
    """Calls `change` for the nodes of `sums`, by key, in the order of the graph.

    It returns what takes the place of the node, or None for a node that stays. Tensors of all
    batches are kept from node to node, in an `ArrayRoom`.
    """
    seen, room = _Seen(), ArrayRoom()
    interpreter = Interpreter(model, observers=[seen])

    def advance(side: Sequence[Alive]) -> tuple[list[Alive], list[_Call]]:
        ahead, calls = list[Alive](), list[_Call]()
        for each in side:
            alive = interpreter.advance(each, at, stop)
            inputs, output = seen.calls.pop()
            kept = room.keep([*alive.values(), *inputs, output])
            ahead.append(dict(zip(alive, kept, strict=False)))
            calls.append((kept[len(alive) : -1], np.asarray(kept[-1])))
        return ahead, calls

    begun = map(interpreter.begin, batches)
    wide: list[Alive] = [dict(zip(b, room.keep([*b.values()]), strict=True)) for b in begun]
    narrow, at, done = wide, 0, 0
    total = sum(each.cost for each in sums.values())
    for index, node in enumerate(interpreter.steps):
        if node.key not in sums:
            continue
        seen.key = node.key
        stop = index + 1
        is_changed = narrow is not wide
        room = ArrayRoom()  # what earlier steps kept in memory is freed as this one goes on
        wide, wanted = advance(wide)
        narrow, read = advance(narrow) if is_changed else (wide, wanted)
        at, done = stop, done + sums[node.key].cost
        parts = [
            samples.Batch(inputs, read_inputs, output)
            for (inputs, output), (read_inputs, _) in zip(wanted, read, strict=True)
        ]
        fragment = change(sums[node.key], node, parts)
        if fragment is not None:
            run = fragment.runner(model.proto, parts[0].read)
            narrow = [
                {**alive, node.outputs[0]: room.keep([run(part.read)])[0]}
                for alive, part in zip(narrow, parts, strict=True)
            ]
        report(100 * done // total, 100, "fitting nodes, % of the work")


@dataclass
class _Seen(Observer):
    """Keeps what a node reads and returns, until it is taken."""

    key: str = ""
    calls: list[_Call] = field(default_factory=list)

    def after(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Keeps a computation of the node."""
        if node.key == self.key:
            self.calls.append((tuple(inputs), np.asarray(outputs[0])))


_ENOUGH_DB = 0.5
"""A measure that changes less is kept where a better one gains no more than this."""


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a node: the measure and what it costs; the new nodes that sum, by name.

    A node that fits already has no measure and no proposal; a node that cannot fit has `reason`.
    """

    need: Need
    measure: str = ""
    proposal: measures.Proposal | None = None
    sums: tuple[str, ...] = ()
    reason: str = ""


@dataclass
class _Narrowing:
    """The changes of a graph so far."""

    model: Model
    needs: Mapping[str, Need]
    dear: bool
    editor: GraphEditor = field(init=False)
    taken: set[str] = field(init=False)
    changes: dict[str, Change] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.editor = GraphEditor(self.model.proto)
        self.taken = self.editor.names()

    def change(self, sum_: Sum, node: Node, batches: Sequence[samples.Batch]) -> Fragment | None:
        """Changes a node in the graph, and returns what takes its place."""
        need = self.needs[node.key]
        seen: samples.LayerSamples | samples.SumSamples
        if isinstance(sum_, Layer):
            seen = samples.layer_samples(sum_, batches)
            fits = fitting.fits_already(seen, need)
        else:
            same = Fragment(node.proto, node.key, set())
            same.finish(same.copy(node.proto.input, "sum"))
            run = same.runner(self.model.proto, batches[0].read)
            seen = samples.sum_samples(sum_, run, batches)
            fits = measures.fits_already(seen, need)
        if fits:
            self.changes[node.key] = Change(need)
            return None
        chosen = _chosen(seen, need, self.dear)
        if chosen is None:
            why = "no grid of its operands is coarse enough"
            if need.machine is not None:
                why = "its sums of activations alone are not changed for a machine"
            self.changes[node.key] = Change(need, reason=why)
            return None
        measure, proposal = chosen
        fragment = Fragment(node.proto, node.key, self.taken)
        proposal.write(fragment)
        self.editor.replace(node.outputs[0], fragment.nodes, fragment.weights)
        self.changes[node.key] = Change(need, measure.name, proposal, tuple(fragment.sums))
        return fragment


def narrow_graph(
    model: Model,
    sums: Mapping[str, Sum],
    needs: Mapping[str, Need],
    batches: Iterable[Feeds],
    dear: bool,
    progress: Progress,
) -> tuple[onnx.ModelProto, Mapping[str, Change]]:
    """Returns the graph with the nodes of `needs` changed, and what became of each, by key.

    Measures that are `dear` are tried only if asked for.
    """
    narrowing = _Narrowing(model, needs, dear)
    asked = {key: each for key, each in sums.items() if key in needs}
    with parallel.threads(None):
        walk(model, asked, batches, narrowing.change, progress)
    narrowing.editor.prune()
    return narrowing.editor.proto, narrowing.changes


def _chosen(
    seen: samples.LayerSamples | samples.SumSamples, need: Need, dear: bool
) -> tuple[measures.Measure, measures.Proposal] | None:
    """Returns the measure that changes the least of those that lose about as little as any.

    Those of a layer with many outputs are compared on a few, since each takes as long as a fit.
    """
    few = seen.some_outputs() if isinstance(seen, samples.LayerSamples) else seen
    proposals = list[tuple[measures.Measure, measures.Proposal]]()
    for each in measures.measures():
        moves = each.dear or (need.machine is not None and each.rank > 1)
        if not isinstance(seen, each.changes) or (moves and not dear):
            continue  # a machine's runtime fuses only layers without further nodes
        proposal = each.propose(seen if each.keeps_values else few, need)
        if proposal is None:
            continue
        if each.keeps_values:
            return each, proposal
        proposals.append((each, proposal))
    most = max((proposal.sqnr_db for _, proposal in proposals), default=0.0)
    for measure, proposal in proposals:
        if proposal.sqnr_db >= most - _ENOUGH_DB:
            again = proposal.again if few is not seen else None
            return measure, proposal if again is None else again(seen)
    return None


BITS = 24
"""Bits of the sums: half of 2^24, so that zero points have room."""
_WEIGHT_BITS = 7
_SLOPE_BITS = 10
_MOVES = (
    "DepthToSpace", "Flatten", "GlobalMaxPool", "Identity", "MaxPool", "ReduceMax", "ReduceMin",
    "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze",
)  # fmt: skip
"""Operators that a quantiser is moved across: both sides have one scale."""
_CLIPS = ("Relu", "Clip")
_CONVERSIONS = ("QuantizeLinear", "DequantizeLinear")
_ADDS = ("Add", "Sub")


def exact_graph(
    model: Model, needs: Mapping[str, Need], batches: Iterable[Feeds], progress: Progress
) -> tuple[onnx.ModelProto, Mapping[str, Change]]:
    """Returns the graph in powers of two, and what became of its layers, by key."""
    averaged = loading.from_proto(_with_rounded_slopes(_with_sums_for_means(model.proto)))
    stepped = loading.from_proto(_with_steps(averaged, batches))
    editor, changes = GraphEditor(stepped.proto), dict[str, Change]()
    taken = editor.names()

    def change(layer: Layer, node: Node, parts: Sequence[samples.Batch]) -> Fragment:
        need, is_term = replace(needs[node.key], exact=True), _reaches_add(editor, node.outputs[0])
        bits = min(layer.weight_bits, _WEIGHT_BITS - is_term)
        seen = samples.layer_samples(replace(layer, weight_bits=bits), parts)
        fit = fitting.fit_layer(seen, layer.grid, need.registers(layer.depth))
        finest = _finest_unit(editor, node.outputs[0]) / layer.grid.step
        factors = np.maximum(finest / fit.scales, 1.0)  # no weight is in finer units than this
        bias = None if fit.bias is None else np.rint(fit.bias / factors)
        integers = np.rint(fit.integers / factors[:, None])
        fit = replace(fit, integers=integers, scales=fit.scales * factors, bias=bias)
        if is_term:
            odd = 1 + 2 * (0 if fit.bias is None else fit.bias) + np.zeros(len(fit.integers))
            fit = replace(fit, integers=2 * fit.integers, scales=fit.scales / 2, bias=odd)
        write = partial(write_layer, layer=layer, fit=fit)
        fragment = Fragment(node.proto, node.key, taken)
        write(fragment)
        editor.replace(node.outputs[0], fragment.nodes, fragment.weights)
        proposal = measures.Proposal(write, fit.error, fit.power, layer.grid.bits)
        changes[node.key] = Change(need, "scales", proposal, tuple(fragment.sums))
        return fragment

    given = {node.key for node in model.nodes if node.op_type in OPERATORS}
    layers = {each.key: each for each in find_layers(stepped)[0] if each.key in given}
    walk(stepped, layers, batches, change, progress)
    editor.prune()
    return editor.proto, changes


def _finest_unit(editor: GraphEditor, name: str) -> float:
    """Returns the least unit of sums that a quantiser adds its zero point to; 0 for any unit.

    Sums of `BITS` and a zero point of 8 bits stay within 2^24 units, half as large ones too.
    """
    finest = 0.0
    for node in editor.readers(name):
        if node.op_type == "QuantizeLinear":
            _, step, zero = editor.parameters(node)
            finest = max(finest, float(step) * 2.0 ** (10 - BITS) if zero.any() else 0.0)
        elif node.op_type in (*_MOVES, *_CLIPS):
            finest = max([finest, *(_finest_unit(editor, each) for each in node.output)])
    return finest


def _reaches_add(editor: GraphEditor, name: str) -> bool:
    """Whether an Add reads a tensor, perhaps quantised, clipped or moved."""
    passed = (*_CONVERSIONS, *_MOVES, *_CLIPS)
    return any(
        node.op_type in _ADDS
        or (node.op_type in passed and any(_reaches_add(editor, each) for each in node.output))
        for node in editor.readers(name)
    )


def _with_sums_for_means(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the graph with convolutions for means whose count is no power of two.

    A mean stays where its inputs have no fixed size, or where other nodes than layers read it.
    """
    editor = GraphEditor(proto)
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    shapes = {
        value.name: [each.dim_value for each in value.type.tensor_type.shape.dim]
        for value in (*inferred.value_info, *inferred.input)
    }
    for node in editor.nodes(*MEANS):
        shape = shapes.get(node.input[0], [])
        options = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        axes = editor.stored(node.input[1]) if len(node.input) > 1 else options.get("axes", [2, 3])
        edges = any(options.get("pads", [])) or options.get("auto_pad", b"NOTSET") != b"NOTSET"
        is_plain = options.get("keepdims", 1) and not edges and not options.get("ceil_mode")
        is_of_images = axes is not None and sorted(axis % 4 for axis in axes) == [2, 3]
        if len(shape) != 4 or not all(shape[1:]) or not is_of_images or not is_plain:
            continue
        window = options.get("kernel_shape", shape[2:])
        count, path = math.prod(window), list(_path(editor, node.output[0]))
        if count & (count - 1) == 0 or not path or None in path:
            continue
        divisor = 2.0 ** round(math.log2(count))
        for each in filter(None, path):
            target = each if each.op_type in _CONVERSIONS else editor.producer(each.input[1])
            factor = count / divisor if target is each else divisor / count
            assert target is not None
            moved = np.asarray(editor.parameters(target)[1] * factor, np.float32)
            target.input[1] = editor.constant(target, "scale", moved)
        ones = (np.ones((shape[1], 1, *window), np.int8), np.float32(1 / divisor), np.int8(0))
        names = [editor.constant(node, part, np.asarray(each))
                 for part, each in zip(("ones", "step", "zero"), ones, strict=True)]  # fmt: skip
        weights = editor.inserted(node, "DequantizeLinear", names)
        kept = {key: value for key, value in options.items() if key == "strides"}
        made = helper.make_node(
            "Conv", [node.input[0], weights], [node.output[0]], node.name,
            group=shape[1], kernel_shape=window, **kept,
        )  # fmt: skip
        describe_like(made, node)
        editor.replace(node.output[0], [made], [])
    return editor.proto


def _path(editor: GraphEditor, name: str) -> Iterator[onnx.NodeProto | None]:
    """Yields the conversions and layers that a tensor reaches; None for what else reads it."""
    if name in {value.name for value in editor.proto.graph.output}:
        yield None
    for node in editor.readers(name):
        if node.op_type in OPERATORS and node.input[0] == name:
            source = editor.producer(node.input[1])
            is_stored = source is not None and editor.stored(source.input[0]) is not None
            is_own = is_stored and len(editor.readers(node.input[1])) == 1
            yield node if is_own else None
        elif node.op_type in (*_CONVERSIONS, *_MOVES, "Relu"):
            if node.op_type in _CONVERSIONS:
                yield node
            for output in node.output:
                yield from _path(editor, output)
        else:
            yield None


def _with_rounded_slopes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the graph with slopes of `_SLOPE_BITS`, by the largest of each tensor."""
    editor = GraphEditor(proto)

    def rounded(slopes: Array) -> Array:
        _, exponent = np.frexp(np.abs(slopes).max(initial=0))
        step = np.ldexp(np.float32(1), exponent - _SLOPE_BITS)
        return np.asarray(np.rint(slopes / step) * step)

    for node in editor.nodes("PRelu"):
        slopes = editor.stored(node.input[1])
        if slopes is not None and slopes.dtype == np.float32:
            node.input[1] = editor.constant(node, "slopes", rounded(slopes))
    for node in editor.nodes("LeakyRelu"):
        alpha = next((a.f for a in node.attribute if a.name == "alpha"), 0.01)
        del node.attribute[:]  # it has no other
        node.attribute.append(helper.make_attribute("alpha", float(rounded(np.array(alpha)))))
    return editor.proto


@dataclass(eq=False)
class _Steps:
    """The scale of some quantisers, the errors of powers of two for it, and the `exponent` taken.

    The integers are from `low` to `high`.
    """

    scale: float
    zero: int
    low: int
    high: int
    errors: dict[int, float] = field(default_factory=dict)
    exponent: int = 0

    def zero_point(self, exponent: int) -> int:
        """Returns an even zero point: the range begins where it did, or is cut at both ends."""
        ratio = min(self.scale / 2.0**exponent, 1.0)
        zero = self.low + 2 * round((self.zero - self.low) * ratio / 2)
        return zero if zero <= self.high else zero - 2

    def add(self, values: Array) -> None:
        """Adds the errors of a tensor at the two exponents nearest to the scale."""
        coarse = math.ceil(math.log2(self.scale))
        for exponent in (coarse, coarse - 1):
            step, zero = 2.0**exponent, self.zero_point(exponent)
            kept = np.clip(np.rint(values / step), self.low - zero, self.high - zero) * step
            error = float(np.square(kept - values).sum(dtype=np.float64))
            self.errors[exponent] = self.errors.get(exponent, 0.0) + error


def _with_steps(model: Model, batches: Iterable[Feeds]) -> onnx.ModelProto:
    """Returns the graph with powers of two for the scales of activations."""
    editor, steps = GraphEditor(model.proto), dict[str, _Steps]()
    conversions = list[onnx.NodeProto]()
    for node in editor.nodes(*_CONVERSIONS):
        parameters = [editor.stored(name) for name in node.input]
        given = [each for each in parameters[1:] if each is not None and each.size == 1]
        if parameters[0] is None and len(given) == 2:
            scale, zero = given
            made = _Steps(float(scale.item()), int(zero.item()), *integer_range(zero.dtype))
            steps.setdefault(node.input[1], made)
            conversions.append(node)
    added = list[tuple[str, str]]()
    for node in conversions:
        own = steps[node.input[1]]
        for source, is_added in _sources(editor, node.input[0]):
            before = steps.get(source.input[1], own)
            if is_added:
                added.append((node.input[1], source.input[1]))
            else:
                steps = {name: before if each is own else each for name, each in steps.items()}
    quantisers = [node for node in conversions if node.op_type == "QuantizeLinear"]
    recorder = TensorRecorder({node.input[0] for node in quantisers})
    interpreter = Interpreter(model, observers=[recorder])
    for feeds in batches:
        recorder.tensors = dict(feeds)
        interpreter.run(None, feeds)
        for node in quantisers:
            steps[node.input[1]].add(np.asarray(recorder.tensors[node.input[0]]))
    for each in steps.values():
        known = (math.ceil(math.log2(each.scale)), 0.0)  # of what no quantiser wrote
        each.exponent, _ = min(each.errors.items(), key=itemgetter(1), default=known)
    pairs = [[steps[name] for name in names if name in steps] for names in added]
    for _ in pairs:  # residuals pass a step on from one to the next
        for pair in pairs:
            pair[0].exponent = pair[-1].exponent = max(each.exponent for each in pair)
    for node in conversions:
        each, kind = steps[node.input[1]], editor.parameters(node)[2].dtype
        zero = np.asarray(each.zero_point(each.exponent), kind)
        node.input[2] = editor.constant(node, "zero", zero)
        node.input[1] = editor.constant(node, "step", np.asarray(2.0**each.exponent, np.float32))
    return editor.proto


def _sources(editor: GraphEditor, name: str) -> Iterator[tuple[onnx.NodeProto, bool]]:
    """Yields what a tensor was before it was moved, or what was added to it: dequantised tensors.

    It is told whether they are added.
    """
    node = editor.producer(name)
    passed = list[str]()
    while node is not None and node.op_type in (*_MOVES, *_CLIPS):
        passed.append(node.op_type)
        node = editor.producer(node.input[0])
    if node is not None and node.op_type == "DequantizeLinear" and not {*passed} & {*_CLIPS}:
        yield node, False
    elif node is not None and node.op_type in _ADDS:
        for each in node.input:
            yield from ((source, True) for source, _ in _sources(editor, each))
