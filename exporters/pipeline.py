"""The steps of an export: check target, convert, validate, compare with the framework, write.

The export of a model that is named by its code is kept in the user's cache folder. It is used again
for as long as the files that the code imports and opens, and the versions of the packages, are the
same. onnxruntime tells which versions of the model it accepts, and how far values differ.
"""

import contextlib
import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from tracer.errors import ModelError, ThresholdError, TracerError, UsageError
from tracer.exporters import writing
from tracer.exporters.records import (
    BATCH,
    Arrays,
    Conversion,
    Exported,
    Exporter,
    ExportOptions,
    InputSpec,
    draw,
    exporter_of,
    inputs_of,
)
from tracer.exporters.subject import Code, load_source
from tracer.graph import loading, provenance, stored_weights
from tracer.graph.model import Model, encoded
from tracer.support import tolerance
from tracer.support.files import cached_file, read_cached, store_in_cache, told_of
from tracer.support.imports import files_read, not_installed
from tracer.support.temporary import TemporaryFolder
from tracer.support.types import Array

_kept_folders: list[object] = []
"""Folders of external data that models of this process are read from."""
_PACKAGES = ("tracer-onnx", "torch", "onnxscript", "onnx", "onnxruntime", "chainer", "numpy")
"""Packages whose versions an exported model depends on."""
_COMPARED = 2**16
"""Number of the random draw for the comparison, and the next is another input of the check; no
exporter traces on these draws."""


def export(
    model: object,
    path: str | Path,
    inputs: Sequence[InputSpec] = (),
    options: ExportOptions = ExportOptions(),  # noqa: B008 - frozen, so one for all is right
) -> Exported:
    """Writes a live model to `path`; see `tracer.api.export` for arguments and errors."""
    path = Path(path)
    writing.check_target(path, options.force)
    try:
        exporter = exporter_of(model, options.framework)
        conversion, exported = convert(exporter, model, inputs, options, path)
    except SystemExit as error:
        raise ModelError(
            f"{type(model).__name__} ends the program (sys.exit) when it is run",
            "Take that out of its code.",
        ) from error
    written = writing.write_last(conversion.proto, path, conversion.folder, options.force)
    return replace(exported, notes=(*exported.notes, *writing.notes(written)))


def convert(
    exporter: Exporter,
    model: object,
    inputs: Sequence[InputSpec],
    options: ExportOptions,
    path: Path,
) -> tuple[Conversion, Exported]:
    """Returns the finished model and its record; onnx has checked it and its values match.

    The weights of a large model are external data.
    """
    newest = newest_opset()
    if options.opset is not None and options.opset > newest:
        raise UsageError(
            f"opset {options.opset} is newer than the installed onnxruntime runs",
            f"The newest is {newest}.",
        )
    for spec in inputs:
        spec.check()
    try:
        conversion = _light(exporter.convert(model, inputs, options))
    except ModuleNotFoundError as error:
        raise not_installed(f"exporting from {exporter.name}", error) from error
    proto = conversion.proto
    if options.opset not in (None, opset_of(proto)):
        raise ModelError(
            f"{exporter.name} wrote opset {opset_of(proto)} instead of {options.opset}",
            "This model cannot be converted to an opset that old: leave --opset out.",
        )
    fit_ir_version(proto)
    _check(conversion)
    dynamic = any(
        dim.dim_param == BATCH for i in proto.graph.input for dim in i.type.tensor_type.shape.dim
    )
    batch = next((spec.shape[0] for spec in conversion.inputs if spec.shape), 1)
    batches = (batch, batch + 2) if dynamic else (batch,)
    errors, notes = [], tuple[str, ...]()
    for size in batches:
        specs = conversion.inputs
        if len(batches) > 1:
            specs = tuple(spec.with_batch(size) for spec in specs)
        arrays = draw(specs, (options.seed, _COMPARED))
        errors.append(verify(conversion, arrays, options, exporter.name))
    if conversion.inputs:
        one, other = (draw(conversion.inputs, (options.seed, _COMPARED + n)) for n in (0, 1))
        notes = insensitive(conversion, one, other, options, exporter.name)
    return conversion, Exported(
        path=path,
        framework=exporter.name,
        nodes=len(proto.graph.node),
        opset=opset_of(proto),
        ir_version=proto.ir_version,
        dynamic_batch=dynamic,
        batches=batches,
        max_abs_error=max(errors),
        notes=notes,
    )


def cached_export(code: Code) -> Model:
    """Returns the model that `code` names, with inputs of its shapes or the model's `input_shape`.

    Raises UsageError if there is neither, and the errors of `load_source` and `pipeline.convert`.
    """
    installed = []
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed.append(f"{package} {metadata.version(package)}")
    name = code.name
    record = cached_file("exported", (code, str(Path.cwd()), (*installed, sys.version)))
    kept = _read_cached(record, name)
    if kept is not None:
        return kept
    with files_read() as files:
        conversion, notes = _converted(code)
    if code.weights is not None:  # native code may have read them
        files.add(Path(code.weights).resolve())
    digest = hashlib.sha256(encoded(conversion.proto, name))
    if conversion.folder is not None:
        for file in sorted(stored_weights.locations(conversion.proto)):
            digest.update(loading.sha256(conversion.folder / file).encode())
    model = record.with_name(f"exported-{digest.hexdigest()[:16]}.onnx")
    own = conversion.folder and conversion.folder.resolve()
    read = [path for path in files if own not in path.parents]
    digests = {str(path): loading.sha256(path) for path in read}
    content = {"model": model.name, "files": digests, "notes": notes}
    if _store(conversion, model) and store_in_cache(record, json.dumps(content).encode()):
        return _named(loading.load(model), name, notes)
    if conversion.folder is None:
        return _named(loading.from_proto(conversion.proto), name, notes)
    _kept_folders.append(conversion.files)
    model = conversion.folder / "model.onnx"
    model.write_bytes(encoded(conversion.proto, str(model)))
    return _named(loading.load(model), name, notes)


def _named(model: Model, name: str, notes: Sequence[str]) -> Model:
    return replace(model, subject=name, notes=(*model.notes, *notes))


def _store(conversion: Conversion, path: Path) -> bool:
    """Writes the model to the cache; returns whether it succeeded."""
    if conversion.folder is None:
        return store_in_cache(path, encoded(conversion.proto, str(path)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writing.write(conversion.proto, path, conversion.folder)
        told_of(path)
    except (OSError, TracerError):
        return False
    return True


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
            return convert(exporter, model, inputs, options, path)[0], ()
        except ModelError as error:
            fixed = replace(options, dynamic_batch=False)
            try:
                conversion = convert(exporter, model, inputs, fixed, path)[0]
            except TracerError:
                raise error from None
            return conversion, (f"the batch is that of the inputs: {error.what}",)


def _read_cached(record: Path, name: str) -> Model | None:
    """Returns the model that was exported before; None if a file has changed since, or is gone."""
    try:
        content = json.loads(read_cached(record) or b"{}")
        files = dict(content["files"])
        if all(loading.sha256(Path(path)) == digest for path, digest in files.items()):
            return _named(
                loading.load(record.with_name(str(content["model"]))), name, content["notes"]
            )
    except (ValueError, KeyError, TypeError, OSError, TracerError):  # then it is exported again
        return None
    return None


def _light(conversion: Conversion) -> Conversion:
    """Returns the conversion with the weights of a large model in a file, not in the protobuf."""
    proto = conversion.proto
    if conversion.files is not None or not stored_weights.is_much(
        stored_weights.weight_bytes(proto)
    ):
        return conversion
    files = TemporaryFolder()
    return replace(
        conversion, proto=stored_weights.with_weights_apart(proto, files.path), files=files
    )


def _check(conversion: Conversion) -> None:
    checked: onnx.ModelProto | Path = conversion.proto
    if conversion.folder is not None:
        checked = conversion.folder / "checked.onnx"
        checked.write_bytes(encoded(conversion.proto, "the exported model"))
    try:
        onnx.checker.check_model(checked)
    except onnx.checker.ValidationError as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"the exported model is not valid ONNX: {reason}") from error


def opset_of(proto: onnx.ModelProto) -> int:
    """Returns the version of the standard operator set that `proto` imports."""
    return next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))


_ROUNDED = 1e-4
"""Error ÷ scale that the rounding of a network may make."""
_SMALLEST = 1e-8
"""Part of the tolerance that does not scale: outputs of untrained networks are small."""
_METADATA_IR = 10
_OLDEST = (10, 13)  # IR version and opset that every onnxruntime for Python >= 3.11 accepts


@cache
def newest_ir() -> int:
    """Returns the newest IR version that onnx writes and onnxruntime reads, by trying."""
    return _newest(onnx.IR_VERSION, _OLDEST[0], lambda ir: _accepts(ir, _OLDEST[1]))


@cache
def newest_opset() -> int:
    """Returns the newest opset that onnx defines and onnxruntime runs, by trying."""
    newest = onnx.defs.onnx_opset_version()
    return _newest(newest, _OLDEST[1], lambda opset: _accepts(newest_ir(), opset))


def fit_ir_version(proto: onnx.ModelProto) -> None:
    """Sets the oldest IR version that its opsets and metadata on nodes allow; in place."""
    needed = onnx.helper.find_min_ir_version_for(proto.opset_import, ignore_unknown=True)
    proto.ir_version = min(max(_METADATA_IR, needed), newest_ir())


def run(
    proto: onnx.ModelProto,
    arrays: Arrays,
    names: Sequence[str] = (),
    folder: Path | None = None,
) -> list[NDArray[Any]]:
    """Returns the values of the tensors `names` [default: the graph's outputs].

    The graph runs without onnxruntime's optimisations, on external data as they are in `folder`.
    Raises ModelError if onnxruntime refuses the model.
    """
    names = list(names) or [output.name for output in proto.graph.output]
    inputs = [value.name for value in proto.graph.input]
    feeds = dict(zip(inputs, arrays, strict=True))
    present = {output.name for output in proto.graph.output}
    hidden = [onnx.ValueInfoProto(name=name) for name in names if name not in present]
    exposed = proto
    if hidden:
        exposed = onnx.ModelProto()
        exposed.CopyFrom(proto)
        exposed.graph.output.extend(hidden)
    try:
        return list(_session(exposed, folder).run(names, feeds))
    except Exception as error:  # onnxruntime's errors have no common base class
        reason = str(error).splitlines()[0]
        raise ModelError(f"onnxruntime does not run the exported model: {reason}") from error


def verify(conversion: Conversion, arrays: Arrays, options: ExportOptions, framework: str) -> float:
    """Returns the largest absolute difference of any output from the framework's, on `arrays`.

    Raises ThresholdError, naming the first node whose value differs, where an output is out of
    the tolerance of `options` or has another shape or type.
    """
    names = [output.name for output in conversion.proto.graph.output]
    expected = _expected(conversion, arrays, options, framework)
    actual = run(conversion.proto, arrays, folder=conversion.folder)
    if len(expected) != len(actual):
        raise ModelError(f"{framework} gives {len(expected)} outputs, the export {len(actual)}")
    for name, ours, theirs in zip(names, actual, expected, strict=True):
        fault = difference(ours, theirs, options)
        if fault:
            where = _first_differing(conversion, arrays, options)
            raise ThresholdError(
                f"the exported model differs from {framework}: output '{name}': {fault}; {where}",
                "Nothing was written; --rtol and --atol set the tolerance.",
            )
    return max(map(tolerance.max_abs_difference, actual, expected), default=0.0)


def insensitive(
    conversion: Conversion, arrays: Arrays, others: Arrays, options: ExportOptions, framework: str
) -> tuple[str, ...]:
    """Returns a note for each output that two different inputs give within the tolerance.

    A check on such an output proves little: a graph that ignores its inputs would pass. Outputs
    without elements, and shapes that depend on the values, are left out.
    """
    names = [output.name for output in conversion.proto.graph.output]
    outputs = (_expected(conversion, each, options, framework) for each in (arrays, others))
    notes = []
    for name, first, second in zip(names, *outputs, strict=True):
        if first.size and first.shape == second.shape and not difference(second, first, options):
            numbers = np.abs(first[np.isfinite(first)].astype(np.float64))
            changed = tolerance.max_abs_difference(first, second)
            notes.append(
                f"output '{name}' hardly depends on the inputs: between two random inputs it "
                f"changes by at most {changed:.2g}, and values reach "
                f"{float(np.max(numbers, initial=0)):.2g}; the check proves little for it"
            )
    return tuple(notes)


def difference(actual: Array, expected: Array, options: ExportOptions) -> str:
    """Describes how `actual` is out of the tolerance of `options`; '' where it is within."""
    absolute = _SMALLEST if options.atol is None else options.atol
    unit = tolerance.rounding(expected.dtype)
    exact = tolerance.Precision(max(_ROUNDED, tolerance.NARROW_STEPS * unit) if unit else 0.0)
    return tolerance.compare(
        actual, expected, tolerance.Tolerance(options.rtol, absolute), exact
    ).fault


def _expected(
    conversion: Conversion, arrays: Arrays, options: ExportOptions, framework: str
) -> list[Array]:
    try:
        return conversion.run(arrays)
    except TracerError:
        raise
    except Exception as error:  # whatever the model's own code raises
        shapes = " and ".join(str(list(array.shape)) for array in arrays)
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        batch = next((array.shape[0] for array in arrays if array.ndim), 1)
        reason = "; ".join([type(error).__name__, *lines[:2]]).replace(";", ":", 1)
        raise ModelError(
            f"{framework} does not run the model at batch {batch}, on inputs of {shapes}: "
            + reason.rstrip(".:"),
            "Give --static-batch and a batch that it runs at, or have it work on any."
            if options.dynamic_batch
            else "Check --input-shape and --input-dtype; --debug shows where.",
        ) from error


def _first_differing(conversion: Conversion, arrays: Arrays, options: ExportOptions) -> str:
    """Names the first node, in graph order, whose output differs from the framework's."""
    expected = conversion.values(arrays)
    producers = [
        (name, node, index)
        for index, node in enumerate(conversion.proto.graph.node)
        for name in node.output
        if name in expected
    ]
    named = [name for name, _, _ in producers]
    actual = run(conversion.proto, arrays, named, conversion.folder)
    for (name, node, index), value in zip(producers, actual, strict=True):
        fault = difference(value, expected[name], options)
        if fault:
            module, source = provenance.module_of(node), provenance.source_of(node)
            parts = [f"module '{module}'" if module else "", source or ""]
            origin = ", ".join(filter(None, parts))
            label = f"'{node.name or f'{node.op_type}_{index}'}' ({node.op_type})"
            label += f" of {origin}" if origin else ""
            return f"the first node that differs is {label}: {fault}"
    return f"all {len(producers)} tensors that both sides name agree"


def _newest(newest: int, oldest: int, accepted: Callable[[int], bool]) -> int:
    return next((v for v in range(newest, oldest, -1) if accepted(v)), oldest)


def _accepts(ir_version: int, opset: int) -> bool:
    text = f'<ir_version: {ir_version}, opset_import: ["": {opset}]> g (float[1] x) => (float[1] y)'
    try:
        _session(onnx.parser.parse_model(text + " { y = Relu (x) }"))
    except Exception:  # each refusal has its own class
        return False
    return True


def _session(proto: onnx.ModelProto, folder: Path | None = None) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # messages come as exceptions
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if folder is not None:
        entry = "session.model_external_initializers_file_folder_path"
        options.add_session_config_entry(entry, str(folder))
        # packed weights would be a copy of them
        options.add_session_config_entry("session.disable_prepacking", "1")
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
