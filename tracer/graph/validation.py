"""Checks that a file or protobuf is a valid ONNX model; each fault is one clear error."""

import stat
from pathlib import Path

import onnx
from onnx.external_data_helper import uses_external_data

from tracer.containment import activity
from tracer.errors import ModelError
from tracer.graph import external_data, node_order, qonnx, qonnx_imports
from tracer.graph.encoding import encoded
from tracer.graph.model import canonical_domain, node_protos
from tracer.graph.stored_tensors import stored_tensors

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
    *(f"No opset import for domain '{name}'" for name in sorted(qonnx.SYNONYMS)),
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
        _complete(value)
    _set_apart(copy)
    node_order.sort(copy.graph)
    qonnx_imports.add(copy, qonnx_imports.missing(copy))
    try:
        for tensor in filter(uses_external_data, stored_tensors(copy)):
            external_data.probe(tensor, folder)
            tensor.data_location = onnx.TensorProto.DEFAULT
            tensor.ClearField("external_data")
            tensor.dims[:] = [0]
        onnx.checker.check_model(encoded(copy, name))
    except _FAILURES as error:
        raise _invalid(name, copy, error) from error


def _complete(value: onnx.ValueInfoProto) -> None:
    """Sets a shape of one free dimension if `value` has no shape."""
    kind = value.type.WhichOneof("value")
    if kind is None:
        value.type.tensor_type.elem_type = 1  # any type: runtimes infer it
    if kind in (None, "tensor_type") and not value.type.tensor_type.HasField("shape"):
        value.type.tensor_type.shape.dim.add()


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
    misorder = node_order.fault(proto.graph)
    if misorder:
        return ModelError(f"{name}: {misorder}", "Export the model again, or repair the graph.")
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    context = [line for line in lines[1:] if line.startswith("==> Context")]
    problem = lines[0].rstrip(".") if lines else type(error).__name__
    if context:
        problem += f" ({context[-1].removeprefix('==> Context: ')})"
    return ModelError(f"{name}: not a valid ONNX model: {problem}", _remedy(problem))


def _remedy(problem: str) -> str:
    if "symbolic link" in problem or "hardlink" in problem or "hard link" in problem:
        return "A model hub's cache stores links: download real files, or copy with cp -L."
    if "external" in problem.lower() or "Data of TensorProto" in problem:
        return "Put the external data file next to the model, under the name it is stored with."
    return "Export the model again, or repair the graph."
