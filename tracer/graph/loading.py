"""From a path to a checked Model: every way a file can be wrong ends in one clear line."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError
from onnx.external_data_helper import (
    _get_all_tensors,
    load_external_data_for_tensor,
    uses_external_data,
)

from tracer.errors import ModelError
from tracer.graph import node_order, provenance
from tracer.graph.model import Model, callers, expanded_keys, node_protos

_NOT_ONNX = (
    # first bytes, and what a file that begins so is
    (b"\x1f\x8b", "gzip-compressed", "Unpack it first."),
    (b"PK\x03\x04", "a zip archive", "Unpack it first; a .pt2 or .pt file is exported first."),
    (b"ORTM", "an ORT-format model", "Give the .onnx file it was converted from."),
    (b"\x80\x02", "a pickle", "Give a file written by onnx.save or an exporter."),
    (b"ir_version", "a text protobuf", "Write it as binary: onnx.save(onnx.load(...), ...)."),
    (b"\x89HDF", "an HDF5 file", "Export the model to ONNX first."),
)

_PRINTABLE = frozenset(range(0x20, 0x7F)) | frozenset(b"\t\r\n")
"""A model begins with the tag of its IR version, 0x08, which no text does."""


Source: TypeAlias = "str | Path | onnx.ModelProto | Model"
"""What a model may be opened from."""


def open_model(source: Source) -> Model:
    """A checked Model from a path, a protobuf, or one that is checked already."""
    if isinstance(source, Model):
        return source
    if isinstance(source, str | Path):
        return load(source)
    return from_proto(source)


def load(path: str | Path) -> Model:
    """Read and check the model at `path`: an .onnx file, or a folder that holds `model.onnx`.

    External data are neither read nor copied, so a model of any size loads in the size of its
    graph. Raises ModelError for whatever is not a valid ONNX model.
    """
    file = find(Path(path))
    _refuse_foreign(file)
    proto = _parse(file)
    _check(proto, file)
    return _model(proto, file, _sha256(file))


def from_proto(proto: onnx.ModelProto) -> Model:
    """Check a model built in memory. Raises ModelError as `load` does."""
    try:
        onnx.checker.check_model(proto)
    except (onnx.checker.ValidationError, ValueError) as error:
        if not _lacks_a_type(error):
            raise _invalid("<model in memory>", proto, error) from error
        _check_untyped(proto, "<model in memory>", Path())
    digest = hashlib.sha256(proto.SerializeToString(deterministic=True)).hexdigest()
    return _model(proto, None, digest)


def find(path: Path) -> Path:
    """The .onnx file that `path` means. Raises ModelError where there is none."""
    try:
        if not path.exists():
            raise ModelError(
                f"{path}: no such file", "Give an .onnx file or a folder with model.onnx."
            )
        if not path.is_dir():
            return path
        if (path / "model.onnx").is_file():
            return path / "model.onnx"
        found = sorted(path.glob("*.onnx"))
    except OSError as error:  # a name too long, or a folder that may not be entered
        raise ModelError(f"{path}: cannot be read ({error.strerror or error})") from error
    if len(found) == 1:
        return found[0]
    what = "holds no .onnx file" if not found else f"holds {len(found)} .onnx files"
    raise ModelError(f"{path}: the folder {what}", "Name the model, or call it model.onnx.")


def _refuse_foreign(file: Path) -> None:
    """Say what a file is by its first bytes, before a parser is let near it."""
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ModelError(f"{file}: not a regular file", "Give an .onnx file.")
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
    if all(byte in _PRINTABLE for byte in head):
        raise ModelError(f"{file}: not an ONNX model but a text file", "Give the .onnx file.")
    if head[8:10] == b'{"':
        raise ModelError(f"{file}: not an ONNX model but safetensors weights", "Give the .onnx.")


def _parse(file: Path) -> onnx.ModelProto:
    try:
        proto = onnx.load(file, load_external_data=False, format="protobuf")
    except DecodeError as error:
        raise ModelError(
            f"{file}: not an ONNX model, or a truncated one (the protobuf does not parse)",
            "Export or download it again; nesting beyond 50 subgraphs is not supported either.",
        ) from error
    if not proto.HasField("graph") or not proto.ir_version:
        raise ModelError(
            f"{file}: not an ONNX model (it has no graph)", "Give a file written by onnx.save."
        )
    return proto


def _check(proto: onnx.ModelProto, file: Path) -> None:
    """The checker reads the file itself, so that models beyond protobuf's 2 GB pass."""
    try:
        onnx.checker.check_model(str(file))
    except (onnx.checker.ValidationError, ValueError) as error:
        if not _lacks_a_type(error):
            raise _invalid(str(file), proto, error) from error
        _check_untyped(proto, str(file), file.parent)


def _lacks_a_type(error: Exception) -> bool:
    return str(error).startswith(("Field 'shape' of 'type' is", "Field 'type' of 'value_info' is"))


def _check_untyped(proto: onnx.ModelProto, name: str, folder: Path) -> None:
    """Check a model that leaves a rank open, as runtimes allow and the checker alone does not.

    It is a copy that is checked, with a rank where there is none. The checker would look for
    external data beside a file, which the copy is not: they are looked for here, and the tensors
    stand in the copy without elements.
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
    try:
        for tensor in filter(uses_external_data, _get_all_tensors(copy)):
            _probe(tensor, folder)
            tensor.data_location = onnx.TensorProto.DEFAULT
            tensor.ClearField("external_data")
            tensor.dims[:] = [0]
        onnx.checker.check_model(copy)
    except (onnx.checker.ValidationError, ValueError, OSError) as error:
        raise _invalid(name, proto, error) from error


def _complete(value: onnx.ValueInfoProto) -> None:
    """Give `value` a type of one free dimension where its own leaves the shape open."""
    kind = value.type.WhichOneof("value")
    if kind is None:
        value.type.tensor_type.elem_type = 1  # whatever it is, runtimes infer it
    if kind in (None, "tensor_type") and not value.type.tensor_type.HasField("shape"):
        value.type.tensor_type.shape.dim.add()


def _probe(tensor: onnx.TensorProto, folder: Path) -> None:
    """Read the last byte of external data, by the rules onnx has for where they may lie."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    last = int(entries.get("offset", 0)) + max(int(entries.get("length", 1)), 1) - 1
    probe = onnx.TensorProto(name=tensor.name, data_type=onnx.TensorProto.UINT8, dims=[1])
    probe.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", entries.get("location", "")), ("offset", last), ("length", 1)):
        probe.external_data.add(key=key, value=str(value))
    load_external_data_for_tensor(probe, str(folder))


def _invalid(name: str, proto: onnx.ModelProto, error: Exception) -> ModelError:
    misorder = node_order.fault(proto.graph)
    if misorder:
        return ModelError(f"{name}: {misorder}", "Export the model again, or repair the graph.")
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    context = [line for line in lines[1:] if line.startswith("==> Context")]
    what = lines[0].rstrip(".") if lines else type(error).__name__
    if context:
        what += f" ({context[-1].removeprefix('==> Context: ')})"
    return ModelError(f"{name}: not a valid ONNX model: {what}", _remedy(what))


def _remedy(what: str) -> str:
    if "symbolic link" in what or "hardlink" in what or "hard link" in what:
        return "A model hub's cache stores links: download real files, or copy with cp -L."
    if "external" in what.lower() or "Data of TensorProto" in what:
        return "Put the external data file next to the model, under the name it is stored with."
    return "Export the model again, or repair the graph."


def _refuse_bytes(proto: onnx.ModelProto, name: str) -> None:
    """protobuf hands out a name that is not UTF-8 as bytes, which the checker lets pass."""
    graphs: list[onnx.GraphProto | onnx.FunctionProto] = [proto.graph, *proto.functions]
    undecodable = (text for graph in graphs for text in _names(graph) if isinstance(text, bytes))
    for text in undecodable:
        raise ModelError(f"{name}: the name {text!r} is not UTF-8", "Export the model again.")


def _names(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[str]:
    yield graph.name
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attribute in node.attribute:
            yield attribute.name
            for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _names(body)


def _model(proto: onnx.ModelProto, path: Path | None, sha256: str) -> Model:
    _refuse_bytes(proto, str(path) if path is not None else "<model in memory>")
    if not proto.functions:
        return Model(proto, path, sha256, expanded_keys(proto, ()))
    inlined = onnx.inliner.inline_local_functions(proto)
    # A function of another opset than the model's cannot be inlined and stays a call.
    left = {(f.domain, f.name, f.overload) for f in inlined.functions}
    gone = [f for f in proto.functions if (f.domain, f.name, f.overload) not in left]
    for node, calls in zip(node_protos(inlined.graph), callers(proto, gone), strict=True):
        provenance.inherit(node, calls)
    return Model(inlined, path, sha256, expanded_keys(proto, gone))


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
