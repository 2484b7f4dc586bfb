"""Exports a model that is named by its code, unless the same was exported before.

The exported model is kept in the user's cache folder. It is used again for as long as the files
that the code imports and opens, and the versions of the packages, are the same.
"""

import contextlib
import hashlib
import json
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from exporters import pipeline
from exporters.records import Conversion, ExportOptions, inputs_of
from exporters.registry import exporter_of
from exporters.source import load_source
from exporters.subject import Code
from exporters.writing import write
from tracer.errors import TracerError, UsageError
from tracer.graph import data_file, loading
from tracer.graph.encoding import encoded
from tracer.graph.model import Model
from tracer.support import cache
from tracer.support.files import told_of
from tracer.support.files_read import files_read

_kept_folders: list[object] = []
"""Folders of external data that models of this process are read from."""

_PACKAGES = ("tracer-onnx", "torch", "onnxscript", "onnx", "onnxruntime", "chainer", "numpy")
"""Packages whose versions an exported model depends on."""


def exported(code: Code) -> Model:
    """Returns the model that `code` names, with inputs of its shapes or the model's `input_shape`.

    Raises UsageError if there is neither, and the errors of `load_source` and `pipeline.convert`.
    """
    name, record = code.name, cache.file("exported", (code, str(Path.cwd()), _versions()))
    kept = _kept(record)
    if kept is not None:
        return replace(kept, subject=name)
    with files_read() as files:
        conversion = _converted(code)
    if code.weights is not None:  # native code may have read them
        files.add(Path(code.weights).resolve())
    model = record.with_name(f"exported-{_content(conversion, name)[:16]}.onnx")
    own = conversion.folder and conversion.folder.resolve()
    read = [path for path in files if own not in path.parents]
    content = {"model": model.name, "files": {str(path): _digest(path) for path in read}}
    if _store(conversion, model) and cache.store(record, json.dumps(content).encode()):
        return replace(loading.load(model), subject=name)
    return replace(_uncached(conversion), subject=name)


def _content(conversion: Conversion, name: str) -> str:
    """Returns the SHA-256 of a model and its external data, in hexadecimal."""
    digest = hashlib.sha256(encoded(conversion.proto, name))
    if conversion.folder is not None:
        for file in sorted(data_file.locations(conversion.proto)):
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


def _converted(code: Code) -> Conversion:
    """Runs the code, and returns the ONNX model; what the code prints goes to stderr."""
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
        return pipeline.convert(exporter_of(model), model, inputs, options, Path(code.name))[0]


def _kept(record: Path) -> Model | None:
    """Returns the model that was exported before; None if a file has changed since, or is gone."""
    try:
        content = json.loads(cache.read(record) or b"{}")
        files = dict(content["files"])
        if all(_digest(Path(path)) == digest for path, digest in files.items()):
            return loading.load(record.with_name(str(content["model"])))
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
