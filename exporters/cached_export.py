"""Exports a model that is named by its code, unless the same was exported before.

The exported model is kept in the user's cache folder. It is used again for as long as the files
that the code imports and opens, and the versions of the packages, are the same.
"""

import contextlib
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from tracer.errors import ModelError, TracerError, UsageError
from tracer.exporters import pipeline
from tracer.exporters.records import Conversion, ExportOptions, inputs_of
from tracer.exporters.registry import exporter_of
from tracer.exporters.source import load_source
from tracer.exporters.subject import Code
from tracer.exporters.writing import write
from tracer.graph import loading, stored_weights
from tracer.graph.encoding import encoded
from tracer.graph.model import Model
from tracer.support import cache
from tracer.support.files import told_of
from tracer.support.imports import files_read

_kept_folders: list[object] = []
"""Folders of external data that models of this process are read from."""

_PACKAGES = ("tracer-onnx", "torch", "onnxscript", "onnx", "onnxruntime", "chainer", "numpy")
"""Packages whose versions an exported model depends on."""


def exported(code: Code) -> Model:
    """Returns the model that `code` names, with inputs of its shapes or the model's `input_shape`.

    Raises UsageError if there is neither, and the errors of `load_source` and `pipeline.convert`.
    """
    name, record = code.name, cache.file("exported", (code, str(Path.cwd()), _versions()))
    kept = _kept(record, name)
    if kept is not None:
        return kept
    with files_read() as files:
        conversion, notes = _converted(code)
    if code.weights is not None:  # native code may have read them
        files.add(Path(code.weights).resolve())
    model = record.with_name(f"exported-{_content(conversion, name)[:16]}.onnx")
    own = conversion.folder and conversion.folder.resolve()
    read = [path for path in files if own not in path.parents]
    digests = {str(path): _digest(path) for path in read}
    content = {"model": model.name, "files": digests, "notes": notes}
    if _store(conversion, model) and cache.store(record, json.dumps(content).encode()):
        return _named(loading.load(model), name, notes)
    return _named(_uncached(conversion), name, notes)


def _named(model: Model, name: str, notes: Sequence[str]) -> Model:
    return replace(model, subject=name, notes=(*model.notes, *notes))


def _content(conversion: Conversion, name: str) -> str:
    """Returns the SHA-256 of a model and its external data, in hexadecimal."""
    digest = hashlib.sha256(encoded(conversion.proto, name))
    if conversion.folder is not None:
        for file in sorted(stored_weights.locations(conversion.proto)):
            digest.update(_digest(conversion.folder / file).encode())
    return digest.hexdigest()


def _store(conversion: Conversion, path: Path) -> bool:
    """Writes the model to the cache; returns whether it succeeded."""
    if conversion.folder is None:
        return cache.store(path, encoded(conversion.proto, str(path)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(conversion.proto, path, conversion.folder)
        told_of(path)
    except (OSError, TracerError):
        return False
    return True


def _uncached(conversion: Conversion) -> Model:
    """Returns the model; its external data stay where they are until the program ends."""
    if conversion.folder is None:
        return loading.from_proto(conversion.proto)
    _kept_folders.append(conversion.files)
    path = conversion.folder / "model.onnx"
    path.write_bytes(encoded(conversion.proto, str(path)))
    return loading.load(path)


def _converted(code: Code) -> tuple[Conversion, Sequence[str]]:
    """Runs the code, and returns the ONNX model, with a note if its batch cannot be left open.

    What the code prints goes to stderr.
    """
    options = ExportOptions()
    with contextlib.redirect_stdout(sys.stderr):
        model = load_source(
            code.name, code.arguments, weights=code.weights, trust=code.trust, seed=options.seed
        )
        inputs = inputs_of(model, code.input_shape, code.input_dtype)
        if not inputs and not hasattr(model, "graph_signature"):
            raise UsageError(
                f"the shape of the input of {code.name} is not known",
                "Give it with the batch first: --input-shape 1,3,32,32.",
            )
        exporter, path = exporter_of(model), Path(code.name)
        try:
            return pipeline.convert(exporter, model, inputs, options, path)[0], ()
        except ModelError as error:
            fixed = replace(options, dynamic_batch=False)
            try:
                conversion = pipeline.convert(exporter, model, inputs, fixed, path)[0]
            except TracerError:
                raise error from None
            return conversion, (f"the batch is that of the inputs: {error.what}",)


def _kept(record: Path, name: str) -> Model | None:
    """Returns the model that was exported before; None if a file has changed since, or is gone."""
    try:
        content = json.loads(cache.read(record) or b"{}")
        files = dict(content["files"])
        if all(_digest(Path(path)) == digest for path, digest in files.items()):
            return _named(
                loading.load(record.with_name(str(content["model"]))), name, content["notes"]
            )
    except (ValueError, KeyError, TypeError, OSError, TracerError):  # then it is exported again
        return None
    return None


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _versions() -> tuple[str, ...]:
    installed = []
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed.append(f"{package} {metadata.version(package)}")
    return (*installed, sys.version)
