"""Checks that a file or protobuf is a valid ONNX model; each fault is one clear error.

Later stages rely on declarations that onnx's checker lets through: shapes, element types, texts
and axes. The checks take time linear in the size of the graph and read no weights.
"""

import math
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

import onnx
from onnx.external_data_helper import uses_external_data

from tracer.containment import activity
from tracer.errors import ModelError
from tracer.graph import operators, repairs, stored_weights
from tracer.graph.encoding import encoded
from tracer.graph.model import bodies, canonical_domain, node_protos
from tracer.graph.stored_weights import stored_tensors
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
IN_MEMORY = "<model in memory>"
"""The name, in messages, of a model that is not from a file."""
_FAILURES = (onnx.checker.ValidationError, ValueError, RuntimeError, OSError)
"""What the checker raises: its own error, and what C++ says of paths that cannot be."""
_OF_ONNXRUNTIME = ("LayerNormalization", "SimplifiedLayerNormalization", "GroupNormalization")
"""Operators that onnxruntime has in the domain of ONNX, at every version; the last one also where
ONNX deprecates it."""
_ACCEPTED = (
    "Field 'shape' of 'type' is",
    "Field 'type' of 'value_info' is",
    *(f"No Op registered for {op_type} with" for op_type in _OF_ONNXRUNTIME),
    *(f"No opset import for domain '{name}'" for name in sorted(operators.QONNX_DOMAINS)),
    "Op registered for GroupNormalization is deprecated",
    "Nodes in a graph must be topologically sorted",
)
"""How the checker begins where it refuses a model that runtimes accept."""
_OTHER_DOMAIN = "tracer.onnxruntime"
"""A domain that the checker does not know, and so does not look into."""
_NOT_ONNX = (
    # first bytes of a file, its format, remedy
    (b"PK\x03\x04", "a zip archive", "Unpack it first; a .pt file is exported first."),
    (b"\x80\x02", "a pickle", "Name a file written by onnx.save or an exporter."),
    (b"ir_version", "a text protobuf", "Write it as binary: onnx.save(onnx.load(...), ...)."),
    (b"\x89HDF", "an HDF5 file", "Export the model to ONNX first."),
)
_PRINTABLE = frozenset(range(0x20, 0x7F)) | frozenset(b"\t\r\n")
"""Bytes of text; a model begins with 0x08, the tag of its IR version, which is not text."""


def check_format(file: Path) -> None:
    """Raises ModelError for a file that is not ONNX by its first bytes, before it is parsed."""
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ModelError(f"{file}: not a regular file", "Name an .onnx file.")
    try:
        str(file.resolve()).encode()
    except UnicodeEncodeError as error:
        raise ModelError(
            f"{file}: onnx opens no file whose path is not UTF-8", "Rename the file or folder."
        ) from error
    if status.st_size == 0:
        raise ModelError(f"{file}: the file is empty", "Export or download the model again.")
    try:
        with file.open("rb") as stream:
            head = stream.read(16)
    except OSError as error:
        raise ModelError(f"{file}: cannot be read ({error.strerror})") from error
    for magic, kind, remedy in _NOT_ONNX:
        if head.startswith(magic):
            raise ModelError(f"{file}: not an ONNX model but {kind}", remedy)
    if head[4:8] == b"ORTM":
        raise ModelError(
            f"{file}: not an ONNX model but an .ort file, which nothing converts back",
            "Name the .onnx file that it was made of, or export that again.",
        )
    if all(byte in _PRINTABLE for byte in head):
        raise ModelError(f"{file}: not an ONNX model but a text file", "Name the .onnx file.")
    if head[8:10] == b'{"':
        raise ModelError(
            f"{file}: not an ONNX model but safetensors weights", "Name the .onnx file."
        )


def check_file(proto: onnx.ModelProto, file: Path) -> None:
    """Checks a file and `proto`, its content; onnx reads models beyond protobuf's 2 GB by path."""
    _check(str(file), proto, str(file), file.parent)


def check_proto(proto: onnx.ModelProto, name: str = IN_MEMORY) -> None:
    """Checks a model in memory, which messages call `name`. Raises ModelError."""
    _check(encoded(proto, name), proto, name, Path())


def _check(checked: str | bytes, proto: onnx.ModelProto, name: str, folder: Path) -> None:
    try:
        with activity.doing(name, f"onnx {onnx.__version__} checked the model"):
            onnx.checker.check_model(checked)
    except _FAILURES as error:
        if not str(error).startswith(_ACCEPTED):
            raise _invalid(name, proto, error) from error
        _check_as_runtimes(proto, name, folder)


def _check_as_runtimes(proto: onnx.ModelProto, name: str, folder: Path) -> None:
    """Checks a model with what runtimes accept and the checker does not: see `_ACCEPTED`.

    Checks a copy with every rank filled in, with onnxruntime's operators in their own domain, with
    QONNX's domain imported, and sorted.
    The checker looks for external data next to a file, and the copy has none: external data are
    checked here, and the copy's tensors are empty.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for value in copy.graph.input:
        if value.type.WhichOneof("value") is None:
            raise ModelError(
                f"{name}: input '{value.name}' has no type",
                "Export the model again with its types.",
            )
    for value in (*copy.graph.input, *copy.graph.output):
        kind = value.type.WhichOneof("value")
        if kind is None:
            value.type.tensor_type.elem_type = 1  # any type: runtimes infer it
        if kind in (None, "tensor_type") and not value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.dim.add()
    _set_apart(copy)
    repairs.sort_nodes(copy.graph)
    repairs.add_qonnx_imports(copy, repairs.missing_qonnx_imports(copy))
    try:
        for tensor in filter(uses_external_data, stored_tensors(copy)):
            stored_weights.probe_external(tensor, folder)
            tensor.data_location = onnx.TensorProto.DEFAULT
            tensor.ClearField("external_data")
            tensor.dims[:] = [0]
        onnx.checker.check_model(encoded(copy, name))
    except _FAILURES as error:
        raise _invalid(name, copy, error) from error


def check_declarations(proto: onnx.ModelProto, name: str) -> None:
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
    names = [text for node in nodes for text in _names_of(node)]
    if not (set(map(type, names)) <= {str} and max(map(len, names), default=0) <= _LONGEST_NAME):
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
        digits = entry.value.strip()
        if entry.key in _PLACES and not (
            digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS
        ):
            raise ModelError(
                f"{what} has external data whose {entry.key} is '{entry.value}'",
                f"It is a number of bytes from 0 on. {_REPAIR}",
            )


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


def _set_apart(proto: onnx.ModelProto) -> None:
    """Moves onnxruntime's operators out of the domain of ONNX, where the checker knows none."""
    holders: list[onnx.GraphProto | onnx.FunctionProto] = [proto.graph, *proto.functions]
    for graph in holders:
        for node in node_protos(graph):
            if node.op_type in _OF_ONNXRUNTIME and not canonical_domain(node.domain):
                node.domain = _OTHER_DOMAIN
    for opsets in (proto.opset_import, *(each.opset_import for each in proto.functions)):
        opsets.add(domain=_OTHER_DOMAIN, version=1)


def _invalid(name: str, proto: onnx.ModelProto, error: Exception) -> ModelError:
    misorder = repairs.order_fault(proto.graph)
    if misorder:
        return ModelError(f"{name}: {misorder}", _REPAIR)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    context = [line for line in lines[1:] if line.startswith("==> Context")]
    problem = lines[0].rstrip(".") if lines else type(error).__name__
    if context:
        problem += f" ({context[-1].removeprefix('==> Context: ')})"
    remedy = _REPAIR
    if "symbolic link" in problem or "hardlink" in problem or "hard link" in problem:
        remedy = "A model hub's cache stores links: download real files, or copy with cp -L."
    elif "external" in problem.lower() or "Data of TensorProto" in problem:
        remedy = "Put the external data file next to the model, under the name it is stored with."
    return ModelError(f"{name}: not a valid ONNX model: {problem}", remedy)
