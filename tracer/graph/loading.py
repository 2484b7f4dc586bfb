"""Opens a model from a path, a protobuf or a folder, and checks it."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError

from tracer.containment import activity
from tracer.errors import ModelError, UsageError
from tracer.graph import (
    calls,
    declarations,
    element_types,
    external_data,
    node_order,
    packed,
    provenance,
    qonnx_imports,
    validation,
)
from tracer.graph.encoding import encoded
from tracer.graph.model import Model, expanded_keys, expansion, node_protos

ModelSource: TypeAlias = "str | Path | onnx.ModelProto | Model"
"""What a model may be opened from."""


_FRAMEWORKS = frozenset({"torch", "chainer"})
_EXPORT = (
    'Export it: tracer.export(model, "net.onnx", input_shape=(1, 3, 32, 32)); or run it in its '
    'framework: tracer.profile_framework("FILE.py:NAME").'
)


def open_model(source: ModelSource) -> Model:
    """Returns a checked Model from a path, a protobuf, or a Model.

    Raises UsageError for anything else, and the errors of `load` and `from_proto`.
    """
    if isinstance(source, Model):
        return source
    if isinstance(source, str | Path):
        return load(source)
    if isinstance(source, onnx.ModelProto):
        return from_proto(source)
    kind = type(source)
    origins = {base.__module__.partition(".")[0] for base in kind.__mro__}
    raise UsageError(
        f"model is an object of type {kind.__module__}.{kind.__qualname__}, not an ONNX model",
        _EXPORT if origins & _FRAMEWORKS else "Give a path, an onnx.ModelProto or a tracer Model.",
    )


def load(path: str | Path) -> Model:
    """Reads and checks the model at `path`: an .onnx file, perhaps gzipped, or a folder with one.

    In a folder it is `model.onnx`, or the only one. External data are neither read nor copied, so a
    model of any size loads in the size of its graph. Raises ModelError for anything that is not a
    valid ONNX model.
    """
    file = find(Path(path))
    return inlined(read(file), file, sha256(file))


def read(file: Path) -> onnx.ModelProto:
    """Returns the checked model in a file as it is stored, without its external data.

    Raises ModelError as `load` does.
    """
    validation.check_format(file)
    if packed.is_packed(file):
        return _unpacked(file)
    proto = _parse(file)
    declarations.check(proto, str(file))
    validation.check_file(proto, file)
    return proto


def _unpacked(file: Path) -> onnx.ModelProto:
    """Returns the checked model in a compressed file."""
    with _refusing_other_files(file):
        proto = onnx.ModelProto.FromString(packed.unpacked(file))
    _check_is_model(proto, file)
    declarations.check(proto, str(file))
    if external_data.has_external_data(proto):
        raise ModelError(f"{file}: its weights are in other files", "Unpack it next to them first.")
    validation.check_proto(proto, str(file))
    return proto


def from_proto(proto: onnx.ModelProto, name: str = validation.IN_MEMORY) -> Model:
    """Checks a model in memory, which errors call `name`. Raises ModelError as `load` does."""
    declarations.check(proto, name)
    validation.check_proto(proto, name)
    digest = hashlib.sha256(encoded(proto, name, sorted_maps=True)).hexdigest()
    return inlined(proto, None, digest)


def find(path: Path) -> Path:
    """Returns the .onnx file that `path` names or contains. Raises ModelError if there is none."""
    try:
        if not path.exists():
            raise ModelError(
                f"{path}: no such file", "Name an .onnx file or a folder with model.onnx."
            )
        if not path.is_dir():
            return path
        if (path / "model.onnx").is_file():
            return path / "model.onnx"
        models = sorted(path.glob("*.onnx")) or sorted(path.glob("*.onnx.gz"))
    except OSError as error:  # a name too long, or a folder without permission
        raise ModelError(f"{path}: cannot be read ({error.strerror or error})") from error
    if len(models) == 1:
        return models[0]
    problem = f"holds {len(models)} .onnx files" if models else "holds no .onnx file"
    raise ModelError(f"{path}: the folder {problem}", "Name the model, or call it model.onnx.")


def _parse(file: Path) -> onnx.ModelProto:
    with _refusing_other_files(file):
        proto = onnx.load(file, load_external_data=False, format="protobuf")
    _check_is_model(proto, file)
    return proto


@contextmanager
def _refusing_other_files(file: Path) -> Iterator[None]:
    try:
        yield
    except DecodeError as error:
        raise ModelError(
            f"{file}: not an ONNX model, or a truncated one (the protobuf does not parse)",
            "Export or download it again; subgraphs are read up to 32 levels deep.",
        ) from error


def _check_is_model(proto: onnx.ModelProto, file: Path) -> None:
    if not proto.HasField("graph") or not proto.ir_version:
        raise ModelError(
            f"{file}: not an ONNX model (it has no graph)", "Name a file written by onnx.save."
        )


def inlined(proto: onnx.ModelProto, path: Path | None, sha256: str) -> Model:
    """Returns a Model with local functions inlined; calls and element types are checked."""
    model = _inlined(proto, path, sha256)
    element_types.check(model)
    return model


def _inlined(proto: onnx.ModelProto, path: Path | None, sha256: str) -> Model:
    name = str(path) if path is not None else validation.IN_MEMORY
    calls.check(proto, name)
    proto, noted = _repaired(_opened(proto))
    if not proto.functions:
        return Model(proto, path, sha256, expanded_keys(proto), notes=noted)
    name = path.name if path is not None else validation.IN_MEMORY
    with activity.doing(name, f"onnx {onnx.__version__} inlined its functions"):
        flat = onnx.inliner.inline_local_functions(proto)
    declarations.check(flat, name)  # attributes of functions have values now
    # A function of another opset than the model's cannot be inlined and stays a call.
    remaining = {(f.domain, f.name, f.overload) for f in flat.functions}
    gone = [f for f in proto.functions if (f.domain, f.name, f.overload) not in remaining]
    expanded = tuple(expansion(proto, gone))
    for node, (_, around) in zip(node_protos(flat.graph), expanded, strict=True):
        provenance.inherit(node, around)
    return Model(flat, path, sha256, tuple(key for key, _ in expanded), notes=noted)


def _repaired(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """Returns `proto`, or a copy that is sorted and imports QONNX's domain, and notes."""
    missing, is_sorted = qonnx_imports.missing(proto), node_order.is_sorted(proto.graph)
    if is_sorted and not missing:
        return proto, ()
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    qonnx_imports.add(copy, missing)
    if not is_sorted:
        node_order.sort(copy.graph)
    notes = [qonnx_imports.note(missing)] * bool(missing) + [node_order.NOTE] * (not is_sorted)
    return copy, tuple(notes)


def _opened(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Returns `proto`, or a copy whose inputs have no name and no size where 0 is declared.

    Some exporters write 0 for an unknown size; runtimes would take no other size than 0.
    """
    weights = {weight.name for weight in proto.graph.initializer}
    inputs = [
        (place, axis)
        for place, value in enumerate(proto.graph.input)
        if value.name not in weights
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if dim.HasField("dim_value") and dim.dim_value == 0
    ]
    if not inputs:
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for place, axis in inputs:
        copy.graph.input[place].type.tensor_type.shape.dim[axis].Clear()
    return copy


def sha256(file: Path) -> str:
    """Returns the hash of a file's content, in hexadecimal digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
