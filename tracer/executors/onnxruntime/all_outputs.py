"""Runs graphs without optimisation, with chosen tensors as outputs, and single nodes.

Tensors inside the bodies of If, Loop and Scan cannot be outputs. So each body is made a model of
its own, which is fed what the body reads the first time that it runs: its inputs, and tensors of
the graphs around it.

Every processor computes the same products of a saved graph. Without VNNI, x86 kernels add pairs of
uint8 × int8 products in 16 bits, and saturate. The same weights in uint8, with a zero point 128
higher, are multiplied in more bits: the results are exact.
"""

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper
from onnx.external_data_helper import set_external_data, uses_external_data
from onnxruntime.capi import onnxruntime_pybind11_state as state

from tracer.accumulators.engine.value_ranges import StoredValues
from tracer.errors import InputError, ModelError, TracerError
from tracer.executors.onnxruntime import feeding, kernel_nodes, sessions
from tracer.executors.settings import OrtSettings
from tracer.graph import stored_weights
from tracer.graph.loading import open_model
from tracer.graph.model import Model, Node, bodies, canonical_domain, encoded, names_read
from tracer.inputs.feedset import Feeds
from tracer.interpreter.operators import Body, Kernel
from tracer.interpreter.values import Value, type_proto
from tracer.support.types import Array

_CPU_PROVIDER = "CPUExecutionProvider"
_ONE_THREAD = OrtSettings(optimization="none", threads=1)
"""One thread: the interpreter gives the same bits on any number of them."""
_LEAST_SCAN = 9
"""The opset since which Scan has no batches."""
_SIGN_BIT = 128
"""Turned over, it makes the byte of v + 128 in uint8 of the byte of v in int8."""
_SHIFTED_FILE = "unsaturated.weights"
"""The file of weights that were external data before."""
_WEIGHTS_AND_ZERO_POINTS = {
    # operator: positions of the weights and of their zero point
    "ConvInteger": (1, 3),
    "DynamicQuantizeMatMul": (1, 3),
    "MatMulInteger": (1, 3),
    "MatMulIntegerToFloat": (1, 5),
    "QGemm": (3, 5),
    "QLinearConv": (3, 5),
    "QLinearMatMul": (3, 5),
}
_CPU = OrtSettings()


def tensors(model: Model, feeds: Feeds, settings: OrtSettings = _CPU) -> Mapping[str, Any]:
    """Returns every tensor that nodes of the main graph of `model` compute, by name.

    Threads and provider are those of `settings`.

    Of a large model those that follow from weights alone are missing, if they are no outputs: the
    floats of integer weights take four times their memory. Raises ModelError or InputError for what
    onnxruntime refuses.
    """
    proto = onnx.ModelProto.FromString(kernel_nodes.serialize(model))
    names = computed(proto.graph)
    if stored_weights.is_large(model):
        outputs = {value.name for value in proto.graph.output}
        constant = _constant_first(model, proto.graph) - outputs
        names = [name for name in names if name not in constant]
    return runner(model, proto, names, settings)(feeds)


def _constant_first(model: Model, graph: onnx.GraphProto) -> set[str]:
    """Returns the tensors that follow from weights alone; their nodes become the first of `graph`.

    onnxruntime's order is a depth-first search from the outputs that goes to the inputs of later
    nodes first. So it computes the floats of a weight right before they are read, and frees them.
    """
    stored, scope = StoredValues(model), model.scopes[0]
    nodes = [deepcopy(node) for node in graph.node]
    names = {name for node in nodes for name in node.output if name and stored.has(name, scope)}
    del graph.node[:]
    graph.node.extend(sorted(nodes, key=lambda node: names.isdisjoint(node.output)))
    return names


def runner_of_saved(
    path: Path, inputs: Container[str], settings: OrtSettings
) -> Callable[[Feeds], Mapping[str, Any]]:
    """Returns a function from feeds to all tensors, by name, of the main graph saved at `path`.

    `inputs` are the names of the inputs that feeds will hold. Models before IR 4 list all weights
    as inputs, folded ones too; these are removed from the list.

    Raises ModelError for a graph that onnxruntime saves and does not load again; the function
    raises InputError for feeds that it does not run on.
    """
    proto = kernel_nodes.saved_proto(path)
    shift_int8_weights(proto, path.parent)
    weights = {weight.name for weight in proto.graph.initializer}
    for value in list(proto.graph.input):
        if value.name not in inputs and value.name not in weights:
            proto.graph.input.remove(value)
    return runner(Model.of(proto, path), proto, computed(proto.graph), settings)


def computed(graph: onnx.GraphProto) -> Sequence[str]:
    """Returns the names of the graph's outputs, then of the other tensors that nodes compute."""
    outputs = [value.name for value in graph.output]
    names = (name for node in graph.node for name in node.output if name)
    return list(dict.fromkeys([*outputs, *names]))


def runner(
    model: Model, proto: onnx.ModelProto, names: Sequence[str], settings: OrtSettings = _CPU
) -> Callable[[Feeds], Mapping[str, Any]]:
    """Returns a function from feeds to the tensors `names` of `proto`, a form of `model`.

    The outputs of `proto` are replaced. Beside a tensor of a type that numpy lacks, what is no
    tensor is None.
    """
    outputs = proto.graph.output
    for value in [value for value in outputs if value.name not in names]:
        outputs.remove(value)
    listed = {value.name for value in outputs}
    outputs.extend(onnx.ValueInfoProto(name=name) for name in names if name not in listed)
    order = [value.name for value in outputs]
    settings = replace(settings, optimization="none")
    session = sessions.Factory(model, encoded(proto, model.name), settings, arena=False).open()

    def run(feeds: Feeds) -> Mapping[str, Any]:
        with sessions.running(model):
            values = feeding.runner(model, session, feeds)()
        tensors: dict[str, Any] = dict.fromkeys(order)
        for name, value in zip(order, values, strict=True):
            with suppress(RuntimeError, ValueError):  # no tensor, or one that numpy cannot hold
                tensors[name] = feeding.as_array(value)
        return tensors

    return run


def first_runs(
    model: Model,
    saved: Model,
    values: Mapping[str, Any],
    settings: OrtSettings,
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the path of each body that runs, and all tensors that it reads or computes.

    `saved` is a form of `model`, and `values` has the tensors of its main graph. The paths are
    those of `model`. A body that cannot run alone is left out, and so are those inside it.
    """
    stored = {tensor.name: tensor for tensor in saved.graph.initializer}
    yield from _run_bodies(saved.graph, Surroundings(model, saved, settings, values, stored))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a body of the graph `saved` may read: `values` and stored tensors around it, by name.

    `saved` is a form of `model`; its stored tensors may lie beside its file.
    """

    model: Model
    saved: Model
    settings: OrtSettings
    values: Mapping[str, Any] = field(repr=False)
    stored: Mapping[str, onnx.TensorProto] = field(repr=False)

    def read(self, name: str) -> Any:
        """Returns the value of a tensor; None if it is left out, or numpy lacks its type."""
        if name in self.stored:
            path = self.saved.path
            return numpy_helper.to_array(self.stored[name], str(path.parent) if path else "")
        return self.values.get(name)


def _run_bodies(
    graph: onnx.GraphProto, around: Surroundings
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for node in graph.node:
        for attribute, body in bodies(node):
            inputs = _first_inputs(node, attribute, body, around)
            own = {tensor.name: tensor for tensor in body.initializer}
            inside = replace(around, stored={**around.stored, **own})
            computed = None if inputs is None else _compute(body, inputs, inside)
            if inputs is None or computed is None:
                continue
            path = f"{kernel_nodes.original(around.model, node.name)}.{attribute}"
            read = {
                name: around.values[name] for name in _names_read(body) if name in around.values
            }
            yield path, {**read, **inputs, **computed}
            within = {**around.values, **inputs, **computed}
            yield from _run_bodies(body, replace(inside, values=within))


def _first_inputs(
    node: onnx.NodeProto, attribute: str, body: onnx.GraphProto, around: Surroundings
) -> Mapping[str, Array] | None:
    """Returns the inputs of a body the first time, by name; None if it does not run."""
    given = [around.read(name) if name else None for name in node.input]
    match node.op_type:
        case "If" if given[0] is not None:
            return {} if (attribute == "then_branch") == bool(np.all(given[0])) else None
        case "Loop":
            trips, goes_on, *states = given
            if (trips is not None and not np.all(trips > 0)) or np.any(goes_on == np.False_):
                return None
            first = [np.zeros((), np.int64), np.ones((), np.bool_), *states]
        case "Scan" if around.saved.opsets.get("", 1) >= _LEAST_SCAN:
            first = _first_of_scan(node, given)
        case _:
            return None
    if not all(isinstance(value, np.ndarray | np.generic) for value in first):
        return None
    inputs = {}
    for declared, value in zip(body.input, map(np.asarray, first), strict=False):
        # the number of a trip, or whether to go on, where a body declares a shape of [1]
        is_vector = len(declared.type.tensor_type.shape.dim) == 1
        inputs[declared.name] = value.reshape(1) if not value.shape and is_vector else value
    return inputs


def _first_of_scan(node: onnx.NodeProto, given: list[Any]) -> list[Any]:
    """Returns the states, and the first slice of each sequence; None for what is not known."""
    settings = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    count = settings["num_scan_inputs"]
    axes = settings.get("scan_input_axes", [0] * count)
    backwards = settings.get("scan_input_directions", [0] * count)
    states, sequences = given[: len(given) - count], given[len(given) - count :]
    slices = [
        None
        if not isinstance(sequence, np.ndarray) or not sequence.shape[axis]
        else sequence.take(-1 if back else 0, axis)
        for sequence, axis, back in zip(sequences, axes, backwards, strict=True)
    ]
    return [*states, *slices]


def _compute(
    body: onnx.GraphProto, inputs: Mapping[str, Array], around: Surroundings
) -> Mapping[str, Any] | None:
    """Returns the tensors that the nodes of a body compute; None if it cannot run alone.

    `around` has the stored tensors of the body as well.
    """
    known = {**around.values, **inputs}
    feeds = {name: known[name] for name in (*inputs, *_names_read(body)) if name in known}
    if not all(isinstance(value, np.ndarray) for value in feeds.values()):
        return None
    stored = [around.stored[name] for name in _names_read(body) if name in around.stored]
    listed = [helper.make_value_info(name, type_proto(value)) for name, value in feeds.items()]
    proto = helper.make_model(
        helper.make_graph(body.node, "body", listed, [], stored),
        opset_imports=around.saved.proto.opset_import,
        ir_version=around.saved.proto.ir_version,
    )
    names = [name for node in body.node for name in node.output if name]
    try:
        return runner(around.saved, proto, names, around.settings)(feeds)
    except (InputError, ModelError):  # it is less known, and the rest is known as before
        return None


def _names_read(body: onnx.GraphProto) -> list[str]:
    """Returns the names that the nodes of a body read, each once."""
    return list(dict.fromkeys(name for node in body.node for name in names_read(node)))


def shift_int8_weights(proto: onnx.ModelProto, folder: Path) -> None:
    """Converts the int8 weights of `proto` to uint8, in place; external data lie in `folder`.

    What is external data stays so: converted weights go to a file of their own, one at a time.
    """
    stored = {tensor.name: tensor for tensor in proto.graph.initializer}
    int8 = {name for name, tensor in stored.items() if tensor.data_type == tensor.INT8}
    with (folder / _SHIFTED_FILE).open("wb") as stream:
        for node in proto.graph.node:
            weights, zero = _WEIGHTS_AND_ZERO_POINTS.get(node.op_type, (0, 0))
            if zero and len(node.input) > weights and node.input[weights] in int8:
                node.input.extend([""] * (zero + 1 - len(node.input)))
                name = f"{node.input[weights]}_{node.input[zero]}_unsaturated"
                for position in (weights, zero):
                    before = stored.get(node.input[position])
                    node.input[position] = f"{name}_{position}"
                    if node.input[position] not in stored:
                        tensor = _shift(before, node.input[position], folder, stream)
                        stored[tensor.name] = tensor
                        proto.graph.initializer.append(tensor)


def _shift(
    tensor: onnx.TensorProto | None, name: str, folder: Path, stream: BinaryIO
) -> onnx.TensorProto:
    """Returns `tensor` + 128 in uint8, called `name`; an absent zero point counts as 0.

    The values of external data are appended to `stream`.
    """
    if tensor is None or not uses_external_data(tensor):
        values = np.zeros((), np.int8) if tensor is None else numpy_helper.to_array(tensor)
        return numpy_helper.from_array(_flip_signs(values), name)
    offset = stream.tell()
    values = stored_weights.read_external(tensor, folder)
    stream.write(_flip_signs(values).data)
    stored_weights.unmap(values)
    shifted = onnx.TensorProto(name=name, data_type=onnx.TensorProto.UINT8, dims=tensor.dims)
    shifted.raw_data = b""  # onnx refuses external data of a tensor without this field
    set_external_data(shifted, _SHIFTED_FILE, offset, stream.tell() - offset)
    shifted.ClearField("raw_data")
    return shifted


def _flip_signs(values: Array) -> Array:
    return np.asarray(values).view(np.uint8) ^ np.uint8(_SIGN_BIT)


class NodeKernels:
    """The interpreter's fallback: onnxruntime's kernels for the CPU, and those of libraries."""

    def __init__(self, register: Sequence[str | Path] = ()) -> None:
        """`register` are libraries of operators; which ones they have is not known before."""
        self._settings = replace(_ONE_THREAD, register=tuple(register))

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
        runs: dict[tuple[bytes, ...], Callable[[Mapping[str, Value]], Sequence[Value]]] = {}

        def kernel(inputs: Sequence[Value], graphs: Mapping[str, Body]) -> Sequence[Value]:
            given = dict(zip(node.inputs, inputs, strict=True))
            given.pop("", None)
            types = tuple(
                type_proto(each).SerializeToString(deterministic=True) for each in given.values()
            )
            if types not in runs:
                runs[types] = self._open(node, model, given, constants)
            return runs[types](given)

        return kernel

    def _open(
        self, node: Node, model: Model, given: Mapping[str, Value], constants: Collection[str]
    ) -> Callable[[Mapping[str, Value]], Sequence[Value]]:
        """Returns a function of a session on `node`, for inputs of the types of `given`."""
        read = [name for name in given if name not in constants]
        graph = helper.make_graph(
            [node.proto],
            "node",
            [helper.make_value_info(name, type_proto(given[name])) for name in read],
            [onnx.ValueInfoProto(name=name) for name in node.outputs if name],
            [numpy_helper.from_array(given[n], n) for n in given if n in constants],
        )
        imports = [helper.make_opsetid(*each) for each in model.opsets.items()]
        proto = helper.make_model(
            graph, opset_imports=imports, ir_version=model.proto.ir_version or onnx.IR_VERSION
        )
        single = open_model(proto)
        with _unnamed(single):
            session = sessions.Factory(single, proto.SerializeToString(), self._settings).open()

        def run(given: Mapping[str, Value]) -> Sequence[Value]:
            with _unnamed(single), sessions.running(single):
                outputs = feeding.runner(single, session, {name: given[name] for name in read})()
            remaining = iter(outputs)
            return [next(remaining) if name else None for name in node.outputs]

        return run


@contextmanager
def _unnamed(model: Model) -> Iterator[None]:
    """Leaves the name of a model of one node, which the user does not know, out of errors."""
    try:
        yield
    except TracerError as error:
        text = error.what.removeprefix(f"{model.name}: ").replace(model.name, "it")
        raise type(error)(text, error.hint) from error


@cache
def _versions(domain: str, op_type: str) -> tuple[tuple[int, int], ...]:
    """Returns the first and last version of each of onnxruntime's kernels for the CPU."""
    return tuple(
        each.version_range
        for each in state.get_all_opkernel_def()
        if each.provider == _CPU_PROVIDER
        and (canonical_domain(each.domain), each.op_name) == (domain, op_type)
    )
