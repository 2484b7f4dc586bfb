"""Opens a model from a path, a protobuf or a folder, and checks it."""

import hashlib
import zlib
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TypeAlias

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError

from tracer.containment import activity
from tracer.errors import LimitError, ModelError, UsageError
from tracer.graph import element_types, provenance, stored_weights, validation
from tracer.graph.model import Model, encoded, expanded_keys, expansion, node_protos, signature
from tracer.text import agree, ask, plural, similar

_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20
_MOST = 1 << 31
"""Bytes of the largest model without external data: protobuf holds no more."""
_FREE, _RATIO = 64 << 20, 20
"""Bytes that any file may unpack to, and beyond them times its own size. Trained weights shrink by
less than half, pruned or quantised ones to a tenth; what shrinks more was made to fill the
memory."""
MOST_NODES = 1_000_000
"""Functions that call each other twice, 30 deep, are 2 kB of file, and 10^9 nodes."""
OnnxSource: TypeAlias = "str | Path | onnx.ModelProto | Model"
"""What a model may be opened from."""
_FRAMEWORKS = frozenset({"torch", "chainer"})
_EXPORT = (
    'Export it: tracer.export(model, "net.onnx", input_shape=(1, 3, 32, 32)); or run it in its '
    'framework: tracer.profile_framework("FILE.py:NAME").'
)


def open_model(source: OnnxSource) -> Model:
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
    proto, accepted = _opened(file)
    return inlined(proto, file, sha256(file), accepted)


def read(file: Path) -> onnx.ModelProto:
    """Returns the checked model in a file as it is stored, without its external data.

    Raises ModelError as `load` does.
    """
    return _opened(file)[0]


def _opened(file: Path) -> tuple[onnx.ModelProto, bool]:
    """Returns the checked model in a file, and whether onnx's checker accepts it as it is."""
    validation.check_format(file)
    with file.open("rb") as stream:
        is_packed = stream.read(len(_GZIP)) == _GZIP
    try:
        if is_packed:
            proto = onnx.ModelProto.FromString(_unzipped(file))
        else:
            proto = onnx.load(file, load_external_data=False, format="protobuf")
    except DecodeError as error:
        raise ModelError(
            f"{file}: not an ONNX model, or a truncated one (the protobuf does not parse)",
            "Export or download it again; subgraphs are read up to 32 levels deep.",
        ) from error
    if not proto.HasField("graph") or not proto.ir_version:
        raise ModelError(
            f"{file}: not an ONNX model (it has no graph)", "Name a file written by onnx.save."
        )
    validation.check_declarations(proto, str(file))
    if not is_packed:
        return proto, validation.check_proto(proto, str(file), file)
    if stored_weights.has_external_data(proto):
        raise ModelError(f"{file}: its weights are in other files", "Unpack it next to them first.")
    return proto, validation.check_proto(proto, str(file))


def from_proto(proto: onnx.ModelProto, name: str = validation.IN_MEMORY) -> Model:
    """Checks a model in memory, which errors call `name`. Raises ModelError as `load` does."""
    validation.check_declarations(proto, name)
    accepted = validation.check_proto(proto, name)
    digest = hashlib.sha256(encoded(proto, name, sorted_maps=True)).hexdigest()
    return inlined(proto, None, digest, accepted)


def find(path: Path) -> Path:
    """Returns the .onnx file that `path` names or contains. Raises ModelError if there is none."""
    try:
        if path.is_symlink() and not path.exists():
            raise ModelError(f"{path} is a link to {path.readlink()}, which is not there")
        if not path.exists():
            siblings = path.parent.iterdir() if path.parent.is_dir() else ()
            near = similar(path.name, [each.name for each in siblings])
            asked = ask([str(path.with_name(each)) for each in near])
            if path.parts[0] in ("http:", "https:"):
                asked = "Download it first. "
            hint = f"{asked}Name an .onnx file or a folder with model.onnx."
            raise ModelError(f"{path}: no such file", hint)
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


def inlined(
    proto: onnx.ModelProto, path: Path | None, sha256: str, accepted: bool = False
) -> Model:
    """Returns a Model with local functions inlined; calls and element types are checked.

    `accepted` is what `validation.check_proto` returns.
    """
    check_calls(proto, str(path) if path is not None else validation.IN_MEMORY)
    proto, notes = validation.repaired(proto, accepted)
    flat = proto
    if not proto.functions:
        keys = expanded_keys(proto)
    else:
        name = path.name if path is not None else validation.IN_MEMORY
        with activity.doing(name, f"onnx {onnx.__version__} inlined its functions"):
            flat = onnx.inliner.inline_local_functions(proto)
        validation.check_declarations(flat, name)  # attributes of functions have values now
        # A function of another opset than the model's cannot be inlined and stays a call.
        remaining = {(f.domain, f.name, f.overload) for f in flat.functions}
        gone = [f for f in proto.functions if (f.domain, f.name, f.overload) not in remaining]
        expanded = expansion(proto, gone)
        for node, around in zip(node_protos(flat.graph), expanded.values(), strict=True):
            provenance.inherit(node, around)  # module and source line of the calls
        keys = tuple(expanded)
    model = Model(flat, path, sha256, keys, notes=notes)
    element_types.check(model)
    listed = stored_weights.overridable(model)
    if not listed:
        return model
    kept = (
        f"{plural(len(listed), 'weight')} {agree(len(listed), 'is', 'are')} "
        f"{stored_weights.LISTED_WEIGHTS}. tracer tune with --try unlisted_weights "
        "measures the model without the list"
    )
    return replace(model, notes=(*notes, kept))


def _unzipped(file: Path) -> bytes:
    """Returns the content of a compressed file. Raises ModelError if it is broken, or too large."""
    most = min(_MOST, max(_FREE, _RATIO * file.stat().st_size))
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    content = bytearray()
    try:
        with file.open("rb") as stream:
            while not unpacker.eof and (chunk := stream.read(_CHUNK)):
                content += unpacker.decompress(chunk, most + 1 - len(content))
                if len(content) > most:
                    raise ModelError(
                        f"{file}: the gzip file unpacks to far more than its own size",
                        "Unpack it first, if you know what is in it.",
                    )
    except zlib.error as error:
        raise ModelError(f"{file}: a broken gzip file ({error})", "Download it again.") from error
    if not unpacker.eof:
        raise ModelError(f"{file}: a truncated gzip file", "Download it again.")
    return bytes(content)


def check_calls(proto: onnx.ModelProto, name: str) -> None:
    """Checks all calls of functions; `name` is the model's, for messages.

    Raises ModelError for a call with more arguments than its function has, and for functions that
    call each other in a circle; LimitError for more than `MOST_NODES` nodes after inlining.
    """
    if not proto.functions:
        return
    functions = {signature(f): f for f in proto.functions}
    nodes = {of: list(node_protos(function)) for of, function in functions.items()}
    main = list(node_protos(proto.graph))
    for node in (*main, *(inner for body in nodes.values() for inner in body)):
        function = functions.get(signature(node))
        if function is not None:
            for role, passed, taken in (
                ("inputs", node.input, function.input),
                ("outputs", node.output, function.output),
            ):
                if len(passed) > len(taken):
                    raise ModelError(
                        f"{name}: node '{node.name}' calls the function {function.name} with "
                        f"{len(passed)} {role}, and it has {len(taken)}",
                        "Export the model again, or repair the graph.",
                    )
    sizes = dict.fromkeys(functions, 1)
    calls = {of: {signature(node) for node in body} & nodes.keys() for of, body in nodes.items()}
    try:
        from_inside = list(TopologicalSorter(calls).static_order())
    except CycleError as error:
        circle = " → ".join(called for _, called, _ in error.args[1])
        raise ModelError(f"{name}: functions call each other in a circle: {circle}") from error
    for of in from_inside:
        sizes[of] = sum(sizes.get(signature(node), 1) for node in nodes[of])
    count = sum(sizes.get(signature(node), 1) for node in main)
    if count > MOST_NODES:
        text = f"{count:,}" if count < 10**15 else f"10^{len(str(count)) - 1}"
        raise LimitError(
            f"{name} has {text} nodes after its functions are inlined",
            f"At most {MOST_NODES:,} are supported.",
        )


def sha256(file: Path) -> str:
    """Returns the hash of a file's content, in hexadecimal digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
