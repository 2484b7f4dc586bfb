"""Infers the types of all tensors of a model from the shapes of its inputs, as onnx can.

`tracer.shapes` continues where onnx stops, at shapes that the graph computes.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias, TypeVar

import onnx

from tracer.containment import activity, memory
from tracer.errors import InputError, LimitError
from tracer.graph import tensor_type
from tracer.graph.model import Model, Scope, encoded, graphs
from tracer.graph.operators import CLASSICAL
from tracer.graph.tensor_type import TensorType, refined
from tracer.support.types import Array

_T = TypeVar("_T")

Call: TypeAlias = tuple[int, Mapping[str, TensorType]]
"""How many calls of a node had these types of tensors, by name."""

Shapes = Mapping[str, tuple[int, ...]]
"""Shape of each model input by name."""

FAILURES = (
    onnx.shape_inference.InferenceError,
    onnx.checker.ValidationError,
    RuntimeError,
    ValueError,
    IndexError,
    MemoryError,
    LimitError,
)
"""What inference raises for attributes that do not fit: errors of its own, and of C++."""

_ROOM, _ROOM_OF_A_BYTE = 256 << 20, 64
"""Bytes that inference may take for any graph, and for each of its bytes."""

_SMALL = 64
"""Weights and lists of up to so many elements keep their values: shapes, axes, pads, sizes."""


@dataclass(frozen=True)
class TensorTypes:
    """The inferred type of each tensor, by the path of its graph and its name.

    `values` are computed tensors whose values follow from shapes and stored tensors alone, as far
    as shapes, trip counts and branches depend on them. `varying` are the calls of nodes by key, of
    which a run told that their types differ.
    """

    tensors: Mapping[str, Mapping[str, TensorType]] = field(repr=False)
    weights: Mapping[str, Mapping[str, onnx.TensorProto]] = field(repr=False)
    values: Mapping[str, Mapping[str, Array]] = field(default_factory=dict, repr=False)
    varying: Mapping[str, Sequence[Call]] = field(default_factory=dict, repr=False)

    def of(self, name: str, scope: Scope) -> TensorType | None:
        """Returns the type of the tensor that `name` means in `scope`, or None if unknown."""
        if scope.parent is None:  # most tensors
            of_graph = self.tensors.get(scope.path)
            return None if of_graph is None else of_graph.get(name)
        return _resolved(self.tensors, name, scope)

    def weight(self, name: str, scope: Scope) -> onnx.TensorProto | None:
        """Returns the initializer that `name` means in `scope`, or None if there is none."""
        return _resolved(self.weights, name, scope)

    def value(self, name: str, scope: Scope) -> Array | None:
        """Returns the computed value that `name` means in `scope`, or None if it is not known."""
        return _resolved(self.values, name, scope)

    def updated(
        self,
        observed: Mapping[tuple[str, str], TensorType],
        varying: Mapping[str, Sequence[Call]] = MappingProxyType({}),
    ) -> "TensorTypes":
        """Returns these types with observed shapes, which are right where inference differs.

        `observed` is keyed by the path of the graph and the name of the tensor; `varying` as here.
        """
        tensors = {path: dict(types) for path, types in self.tensors.items()}
        for (path, name), kind in observed.items():
            inferred = tensors.setdefault(path, {}).get(name)
            if inferred is not None and inferred.dtype != "undefined":  # runtimes name them anew
                kind = TensorType(inferred.dtype, kind.shape)
            tensors[path][name] = kind
        return TensorTypes(tensors, self.weights, self.values, {**self.varying, **varying})


def _resolved(by_path: Mapping[str, Mapping[str, _T]], name: str, scope: Scope) -> _T | None:
    for outer in scope.outward():
        of_graph = by_path.get(outer.path)
        if of_graph is not None and (found := of_graph.get(name)) is not None:
            return found
    return None


def infer(model: Model, shapes: Shapes) -> TensorTypes:
    """Infers types by ONNX's shape inference with data propagation.

    Inputs missing from `shapes` keep their declared, perhaps symbolic, shape. What the file
    declares of other tensors may be out of date: it counts where inference stops. Raises InputError
    if a shape contradicts the model's declaration.
    """
    symbols, skeleton = symbol_sizes(model, shapes), _skeleton(model.proto)
    for _, graph in _with_paths(model, skeleton.graph) if symbols else ():
        for value in (*graph.input, *graph.output, *graph.value_info):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param in symbols:
                    dim.dim_value = symbols[dim.dim_param]
    for value in skeleton.graph.input:
        if value.name in shapes:
            _set_shape(value, shapes[value.name])
    declared = _take_declarations(model, skeleton)
    types = _inferred(model, skeleton)
    if _declare_again(model, skeleton, declared, types):
        types = _inferred(model, skeleton)
    return types


def _inferred(model: Model, skeleton: onnx.ModelProto) -> TensorTypes:
    """Returns what inference tells; what the skeleton declares, where inference fails."""
    content, inferred = encoded(skeleton, model.name), skeleton
    for data_prop in (True, False):
        with contextlib.suppress(*FAILURES), _inferring(model, len(content)):
            inferred = onnx.shape_inference.infer_shapes(content, data_prop=data_prop)
            break
    tensors: dict[str, Mapping[str, TensorType]] = {}
    known: dict[bytes, TensorType | None] = {}  # one object each: there are many equal protobufs
    stored: dict[TensorType, TensorType] = {}
    for path, graph in _with_paths(model, inferred.graph):
        types: dict[str, TensorType] = {}
        for value in (*graph.value_info, *graph.output, *graph.input):
            serialized = value.type.SerializeToString()
            if serialized not in known:
                known[serialized] = tensor_type.from_type_proto(value.type)
            kind = known[serialized]
            if kind is not None:
                types[value.name] = kind
        for weight in graph.initializer:
            kind = tensor_type.from_initializer(weight)
            types[weight.name] = stored.setdefault(kind, kind)
        for sparse in graph.sparse_initializer:
            dtype = tensor_type.dtype_name(sparse.values.data_type)
            types[sparse.values.name] = TensorType(dtype, tuple(sparse.dims))
        tensors.setdefault(path, types)
    weights = {scope.path: {w.name: w for w in scope.graph.initializer} for scope in model.scopes}
    return TensorTypes(tensors, weights)


@contextlib.contextmanager
def _inferring(model: Model, size: int) -> Iterator[None]:
    """Says that onnx infers shapes, within memory in proportion to the bytes of the graph.

    Its propagation of values writes out what ConstantOfShape makes, of any size.
    """
    with (
        activity.doing(model.name, f"onnx {onnx.__version__} inferred the shapes"),
        memory.at_most(_ROOM + _ROOM_OF_A_BYTE * size),
    ):
        yield


def _take_declarations(
    model: Model, skeleton: onnx.ModelProto
) -> dict[str, dict[str, onnx.TypeProto]]:
    """Removes the types of tensors whose operators onnx knows; returns them by path and name."""
    declared: dict[str, dict[str, onnx.TypeProto]] = {}
    for path, graph in _with_paths(model, skeleton.graph):
        unknown = {
            name
            for node in graph.node
            if not onnx.defs.has(node.op_type, node.domain)
            for name in node.output
        }
        kept = declared.setdefault(path, {})
        for each in (*graph.value_info, *graph.output):
            if each.name not in unknown and each.type.HasField("tensor_type"):
                kept[each.name] = deepcopy(each.type)
        for output in graph.output:
            if output.name in kept:
                output.type.tensor_type.ClearField("shape")
        others = [each for each in graph.value_info if each.name not in kept]
        del graph.value_info[:]
        graph.value_info.extend(others)
    return declared


def _declare_again(
    model: Model,
    skeleton: onnx.ModelProto,
    declared: Mapping[str, Mapping[str, onnx.TypeProto]],
    types: TensorTypes,
) -> bool:
    """Puts back what was declared of tensors that inference left open; returns whether it did."""
    changed = False
    for path, graph in _with_paths(model, skeleton.graph):
        outputs = {each.name: each for each in graph.output}
        for name, proto in declared.get(path, {}).items():
            known = types.tensors.get(path, {}).get(name)
            if known is not None and known.concrete is not None:
                continue
            better = refined(known, tensor_type.from_type_proto(proto))
            if better is None or better == known:
                continue
            value = outputs[name] if name in outputs else graph.value_info.add(name=name)
            value.type.CopyFrom(tensor_type.to_type_proto(better))
            changed = True
    return changed


class Trial:
    """Tells at which shapes of the inputs the shapes inside a model fit together."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._skeleton = _skeleton(model.proto)
        for graph in graphs(self._skeleton.graph):  # what a file declares may be out of date
            del graph.value_info[:]
        for value in self._skeleton.graph.output:
            if value.type.HasField("tensor_type"):
                value.type.tensor_type.ClearField("shape")

    def fits(self, shapes: Shapes) -> bool:
        """Returns whether onnx's inference finds no contradiction at these shapes of the inputs."""
        return self.failure(shapes) is None

    def failure(self, shapes: Shapes) -> Exception | None:
        """Returns what onnx's inference raises at these shapes of the inputs."""
        for value in self._skeleton.graph.input:
            if value.name in shapes:
                _set_shape(value, shapes[value.name])
        try:
            with _inferring(self._model, self._skeleton.ByteSize()):
                onnx.shape_inference.infer_shapes(self._skeleton, strict_mode=True, data_prop=True)
        except FAILURES as error:
            return error
        return None


def symbol_sizes(model: Model, shapes: Shapes) -> dict[str, int]:
    """Returns the size of each symbolic dimension that the input shapes determine.

    A symbol that would have two sizes is left out, as runtimes take such inputs. Raises InputError
    if rank or size differ from the declaration.
    """
    symbols: dict[str, set[int]] = {}
    for value in model.inputs:
        declared = tensor_type.from_type_proto(value.type)
        if value.name not in shapes or declared is None or declared.shape is None:
            continue
        shape = shapes[value.name]
        declaration = f"input '{value.name}' of {model.name} is {declared}"
        if len(shape) != len(declared.shape):
            raise InputError(f"{declaration}, but {list(shape)} has {len(shape)} dimensions")
        for axis, (dim, size) in enumerate(zip(declared.shape, shape, strict=True)):
            if isinstance(dim, str):
                symbols.setdefault(dim, set()).add(size)
            if isinstance(dim, int) and dim != size:
                raise InputError(
                    f"{declaration}: dimension {axis} is fixed at {dim}, not {size}",
                    "Change the input's shape, or export the model with that dimension open.",
                )
    return {symbol: min(sizes) for symbol, sizes in symbols.items() if len(sizes) == 1}


def _skeleton(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a copy without the data of large weights, whose types suffice for inference."""
    graph = proto.graph
    copy = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import)
    copy.graph.name = graph.name or "graph"
    copy.graph.node.extend(map(_light, graph.node))
    for name in ("input", "output", "value_info", "sparse_initializer"):
        getattr(copy.graph, name).extend(getattr(graph, name))
    for weight in graph.initializer:
        stored = copy.graph.initializer.add()
        if _is_small(weight):
            stored.CopyFrom(weight)
        else:
            _copy_type(weight, stored)
    return copy


def _light(node: onnx.NodeProto) -> onnx.NodeProto:
    """Returns a node without what inference does not look at: tables of forests, large constants.

    Copies of a forest's tables of millions of nodes would take most of the time and memory.
    """
    if node.domain != CLASSICAL and node.op_type != "Constant":
        return node
    large = {
        each.name
        for each in node.attribute
        if (each.HasField("t") and not _is_small(each.t))
        or max(len(each.ints), len(each.floats), len(each.strings)) > _SMALL
    }
    if not large:
        return node
    light = onnx.NodeProto(op_type=node.op_type, domain=node.domain, name=node.name)
    light.input.extend(node.input)
    light.output.extend(node.output)
    for attribute in node.attribute:
        kept = light.attribute.add()
        if attribute.name not in large:
            kept.CopyFrom(attribute)
            continue
        kept.name, kept.type = attribute.name, attribute.type
        if attribute.HasField("t"):
            _copy_type(attribute.t, kept.t)
    return light


def _is_small(tensor: onnx.TensorProto) -> bool:
    return math.prod(tensor.dims) <= _SMALL and not tensor.external_data


def _copy_type(tensor: onnx.TensorProto, to: onnx.TensorProto) -> None:
    to.name, to.data_type = tensor.name, tensor.data_type
    to.dims.extend(tensor.dims)


def _set_shape(value: onnx.ValueInfoProto, shape: tuple[int, ...]) -> None:
    dims = value.type.tensor_type.shape.dim
    del dims[:]
    for size in shape:
        dims.add().dim_value = size
    value.type.tensor_type.shape.SetInParent()  # a scalar has a shape without dimensions


def _with_paths(model: Model, graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """Yields the main graph of a copy of `model`, and its bodies, with their paths."""
    paths = [scope.path for scope in model.all_scopes]
    return zip(paths, graphs(graph), strict=False)  # looks at no node behind the last body
