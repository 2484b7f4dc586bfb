"""Types of the tensors of a model once the shapes of its inputs are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import onnx

from tracer.errors import InputError
from tracer.graph import tensor_type
from tracer.graph.model import Model, Scope, graphs
from tracer.graph.tensor_type import TensorType

Shapes = Mapping[str, tuple[int, ...]]
"""Shape of each model input by name."""

_SMALL = 64
"""Elements up to which a weight's values are kept for inference: shapes, axes, pads, sizes."""


@dataclass(frozen=True)
class Types:
    """The type of every tensor that could be inferred, by the path of its graph and its name."""

    tensors: Mapping[str, Mapping[str, TensorType]] = field(repr=False)
    weights: Mapping[str, Mapping[str, onnx.TensorProto]] = field(repr=False)

    def of(self, name: str, scope: Scope) -> TensorType | None:
        """Type of the tensor `name` as `scope` sees it, or None where it is not known."""
        for outer in scope.outward():
            found = self.tensors.get(outer.path, {}).get(name)
            if found is not None:
                return found
        return None

    def weight(self, name: str, scope: Scope) -> onnx.TensorProto | None:
        """The initializer that `name` means in `scope`, or None if it is computed or fed."""
        for outer in scope.outward():
            found = self.weights.get(outer.path, {}).get(name)
            if found is not None:
                return found
        return None

    def updated(self, observed: Mapping[tuple[str, str], TensorType]) -> Types:
        """These types with those a run observed put where inference found no full shape.

        `observed` is keyed by the path of the graph and the name of the tensor.
        """
        tensors = {path: dict(found) for path, found in self.tensors.items()}
        for (path, name), kind in observed.items():
            known = tensors.setdefault(path, {}).get(name)
            if known is None or known.concrete is None:
                tensors[path][name] = kind
        return Types(tensors, self.weights)


def infer(model: Model, shapes: Shapes) -> Types:
    """Infer types by ONNX's own shape inference, with data propagation.

    Inputs missing from `shapes` keep their declared, perhaps symbolic, shape. Raises InputError
    where a shape contradicts the model's declaration.
    """
    symbols = bind(model, shapes)
    skeleton = _skeleton(model.proto)
    for graph in graphs(skeleton.graph):
        _substitute(graph, symbols)
    for value in skeleton.graph.input:
        if value.name in shapes:
            _set_shape(value, shapes[value.name])
    try:
        inferred = onnx.shape_inference.infer_shapes(skeleton, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError):  # keep what the file declares
        inferred = skeleton
    return _collect(model, inferred)


def bind(model: Model, shapes: Shapes) -> dict[str, int]:
    """Value of each symbolic dimension that the given input shapes fix.

    Raises InputError where rank or size differ from the declaration, or where one name would
    have two values.
    """
    symbols: dict[str, int] = {}
    for value in model.inputs:
        declared = tensor_type.from_type_proto(value.type)
        if value.name not in shapes or declared is None or declared.shape is None:
            continue
        given = shapes[value.name]
        wanted = f"input '{value.name}' of {model.name} is {declared}"
        if len(given) != len(declared.shape):
            raise InputError(f"{wanted}, but {list(given)} has {len(given)} dimensions")
        for axis, (dim, size) in enumerate(zip(declared.shape, given, strict=True)):
            if isinstance(dim, str) and symbols.setdefault(dim, size) != size:
                raise InputError(f"{wanted}: '{dim}' would be both {symbols[dim]} and {size}")
            if isinstance(dim, int) and dim != size:
                raise InputError(f"{wanted}: dimension {axis} is fixed at {dim}, not {size}")
    return symbols


def _skeleton(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy without the data of the large weights: inference needs their types alone."""
    graph = proto.graph
    copy = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import)
    copy.graph.name = graph.name or "graph"
    for name in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(copy.graph, name).extend(getattr(graph, name))
    for weight in graph.initializer:
        kept = copy.graph.initializer.add()
        size = tensor_type.from_initializer(weight).size or 0
        if size <= _SMALL and not weight.external_data:
            kept.CopyFrom(weight)
        else:
            kept.name, kept.data_type = weight.name, weight.data_type
            kept.dims.extend(weight.dims)
    return copy


def _substitute(graph: onnx.GraphProto, symbols: Mapping[str, int]) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        if not value.type.HasField("tensor_type"):
            continue
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in symbols:
                dim.dim_value = symbols[dim.dim_param]


def _set_shape(value: onnx.ValueInfoProto, shape: tuple[int, ...]) -> None:
    dims = value.type.tensor_type.shape.dim
    del dims[:]
    for size in shape:
        dims.add().dim_value = size
    value.type.tensor_type.shape.SetInParent()  # a scalar has a shape without dimensions


def _collect(model: Model, inferred: onnx.ModelProto) -> Types:
    """Gather by graph; `inferred` has the nodes of `model`, so its keys hold for it too."""
    tensors: dict[str, dict[str, TensorType]] = {}
    weights: dict[str, dict[str, onnx.TensorProto]] = {}
    for scope in replace(model, proto=inferred).scopes:
        graph = scope.graph
        tensors[scope.path] = found = {}
        for value in (*graph.value_info, *graph.output, *graph.input):
            known = tensor_type.from_type_proto(value.type)
            if known is not None:
                found[value.name] = known
        for weight in graph.initializer:
            found[weight.name] = tensor_type.from_initializer(weight)
        for sparse in graph.sparse_initializer:
            dtype = tensor_type.dtype_name(sparse.values.data_type)
            found[sparse.values.name] = TensorType(dtype, tuple(sparse.dims))
    for scope in model.scopes:
        weights[scope.path] = {w.name: w for w in scope.graph.initializer}
    return Types(tensors, weights)
