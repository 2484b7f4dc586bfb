"""Checks what onnx's checker lets through: shapes, element types, texts and axes.

Later stages rely on it, and meet no size that a machine cannot hold. The time is linear in the
size of the graph; the data of weights are not read.
"""

import math
from collections.abc import Iterable, Sequence

import onnx

from tracer.errors import ModelError
from tracer.graph.model import bodies, canonical_domain, node_protos
from tracer.graph.tensor_type import UNKNOWN_SIZE

_MOST_AXES = 64
"""Dimensions that a tensor of numpy may have."""
_MOST_ELEMENTS = 2**63 - 1
"""Sizes are 64-bit integers, in ONNX as in numpy."""
_LONGEST_NAME = 10_000
"""Characters. Paths of modules have hundreds; a megabyte would fill every table and message."""
_ELEMENTS = frozenset(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}

_AXES = frozenset({
    "axis", "axes", "batch_axis", "time_axis", "perm", "scan_input_axes", "scan_output_axes",
})  # fmt: skip
"""Attributes that number dimensions. onnx's shape inference believes what it reads there, and ends
the process where they are far outside; of `num_outputs` it makes a list."""

_PLACES, _DIGITS = ("offset", "length"), 18
"""What says where external data are in their file, and the most digits of it."""

_REPAIR = "Export the model again, or repair the graph."


def check(proto: onnx.ModelProto, name: str) -> None:
    """Raises ModelError, which begins with `name`, for the first declaration that cannot be."""
    try:
        _check_names("the model", (entry.domain for entry in proto.opset_import))
        _check_metadata("the model", (*proto.metadata_props, *proto.graph.metadata_props))
        _check_graph(proto.graph)
        _check_references(proto.graph)
        for function in proto.functions:
            names = (function.name, function.domain, *function.input, *function.output)
            _check_names("a function", names)
            _check_nodes(function.node)
    except ModelError as error:
        raise ModelError(f"{name}: {error.what}", error.hint) from None


def _check_graph(graph: onnx.GraphProto) -> None:
    _check_names("a graph", (graph.name,))
    for value in (*graph.input, *graph.output, *graph.value_info):
        _check_value(value)
    for value in graph.input:
        if value.type.HasField("tensor_type"):  # the type of others may be left open
            _check_element(f"input '{value.name}'", value.type.tensor_type.elem_type)
    for tensor in graph.initializer:
        _check_tensor(f"weight '{tensor.name!s:.40}'", tensor)
    for sparse in graph.sparse_initializer:
        what = f"sparse weight '{sparse.values.name!s:.40}'"
        _check_tensor(what, sparse.values)
        _check_tensor(what, sparse.indices)
        _check_shape(what, sparse.dims)
    _check_nodes(graph.node)


def _check_references(graph: onnx.GraphProto) -> None:
    """Refuses attributes that take the value of a function's attribute where no function is."""
    for node in node_protos(graph):
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                raise ModelError(
                    f"attribute '{attribute.name}' of node '{node.name}' ({node.op_type}) refers "
                    f"to the attribute '{attribute.ref_attr_name}' of a function",
                    f"Only nodes of functions may. {_REPAIR}",
                )


def _check_nodes(nodes: Sequence[onnx.NodeProto]) -> None:
    if not _are_sound([text for node in nodes for text in _names_of(node)]):
        for index, node in enumerate(nodes):
            _check_names(f"node {index} of its graph", _names_of(node))
    for index, node in enumerate(nodes):
        attributes, metadata = node.attribute, node.metadata_props
        if not attributes and not metadata:
            continue
        what = f"node '{node.name or f'{node.op_type}_{index}'}' ({node.op_type})"
        _check_metadata(what, metadata)
        for attribute in attributes:
            _check_attribute(what, node, attribute)
        for _, body in bodies(node):
            _check_graph(body)


def _names_of(node: onnx.NodeProto) -> tuple[str, ...]:
    return node.name, node.op_type, node.domain, *node.input, *node.output


def _check_attribute(where: str, node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
    _check_names(where, (attribute.name, attribute.ref_attr_name))
    what = f"attribute '{attribute.name}' of {where}"
    for tensor in (*([attribute.t] if attribute.HasField("t") else ()), *attribute.tensors):
        _check_tensor(what, tensor)
    allowed = _allowed(node, attribute)
    for number in (attribute.i, *attribute.ints) if allowed else ():
        if not allowed[0] <= number <= allowed[1]:
            raise ModelError(f"{what} is {number}", f"It may be {allowed[0]} to {allowed[1]}.")


def _allowed(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> Sequence[int]:
    """Returns the least and the greatest value of an attribute; nothing where both are free."""
    if canonical_domain(node.domain) or attribute.ref_attr_name:
        return ()
    match attribute.name:
        case "batch_dims":
            return 0, _MOST_AXES
        case "num_outputs":
            return 1, len(node.output)
        case name if name in _AXES:
            return -_MOST_AXES, _MOST_AXES
    return ()


def _check_value(value: onnx.ValueInfoProto) -> None:
    _check_names("a tensor", (value.name,))
    kind = value.type.WhichOneof("value")
    if kind not in ("tensor_type", "sparse_tensor_type"):
        return
    tensor = value.type.tensor_type if kind == "tensor_type" else value.type.sparse_tensor_type
    what = f"tensor '{value.name}'"
    if tensor.elem_type:
        _check_element(what, tensor.elem_type)
    dims = tensor.shape.dim
    _check_names(f"a dimension of {what}", (dim.dim_param for dim in dims))
    sizes = (dim.dim_value if dim.HasField("dim_value") else UNKNOWN_SIZE for dim in dims)
    _check_shape(what, [1 if size == UNKNOWN_SIZE else size for size in sizes])


def _check_tensor(what: str, tensor: onnx.TensorProto) -> None:
    _check_names(what, (tensor.name,))
    _check_element(what, tensor.data_type)
    _check_shape(what, tensor.dims)
    for entry in tensor.external_data:
        _check_names(f"the external data of {what}", (entry.key, entry.value))
        if entry.key in _PLACES and not _is_place(entry.value):
            raise ModelError(
                f"{what} has external data whose {entry.key} is '{entry.value}'",
                f"It is a number of bytes from 0 on. {_REPAIR}",
            )


def _is_place(text: str) -> bool:
    """Whether a text is a number of bytes, as onnx reads it, that a file may have."""
    digits = text.strip()
    return digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS


def _check_element(what: str, number: int) -> None:
    if number not in _ELEMENTS:
        raise ModelError(
            f"{what} is of element type {number}, which ONNX does not have",
            f"Element types are {min(_ELEMENTS)} (float32) to {max(_ELEMENTS)}.",
        )


def _check_shape(what: str, sizes: Sequence[int]) -> None:
    if len(sizes) > _MOST_AXES:
        raise ModelError(f"{what} has {len(sizes)} dimensions", f"At most {_MOST_AXES} may be.")
    least = min(sizes, default=0)
    if least < 0:
        raise ModelError(
            f"{what} has a dimension of {least}", f"Leave out unknown sizes. {_REPAIR}"
        )
    # zeros left out: numpy refuses an array without elements, too, if its other sizes are too large
    if math.prod(filter(None, sizes)) > _MOST_ELEMENTS:
        raise ModelError(
            f"{what} has a shape of 2^63 elements or more, {list(sizes)}",
            f"Sizes are 64-bit integers, and so is their product. {_REPAIR}",
        )


def _are_sound(names: Sequence[str]) -> bool:
    """Whether `_check_names` accepts all names: told for a whole graph faster than one by one."""
    return set(map(type, names)) <= {str} and max(map(len, names), default=0) <= _LONGEST_NAME


def _check_names(where: str, names: Iterable[str]) -> None:
    for name in names:
        if isinstance(name, bytes):
            raise _undecodable(where, name)
        if len(name) > _LONGEST_NAME:
            raise ModelError(
                f"{where} has a name of {len(name):,} characters, '{name[:20]}…'",
                f"Names have at most {_LONGEST_NAME:,} characters.",
            )


def _check_metadata(where: str, entries: Iterable[onnx.StringStringEntryProto]) -> None:
    """Checks texts of any length, as a stack trace is."""
    for entry in entries:
        for text in (entry.key, entry.value):
            if isinstance(text, bytes):
                raise _undecodable(f"the metadata of {where}", text)


def _undecodable(where: str, text: bytes) -> ModelError:
    """Protobuf returns bytes for a text that does not decode."""
    return ModelError(f"{where} has the text {text[:40]!r}, which is not UTF-8", _REPAIR)
