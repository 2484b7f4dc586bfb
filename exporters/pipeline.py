"""The steps of an export: check target, convert, validate, compare with the framework, write."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnx

from tracer.errors import ModelError, UsageError
from tracer.exporters import runtime
from tracer.exporters.records import (
    BATCH,
    Conversion,
    Exported,
    Exporter,
    ExportOptions,
    InputSpec,
    draw,
)
from tracer.exporters.registry import exporter_of
from tracer.exporters.verify import insensitive, verify
from tracer.exporters.writing import check_target, notes, write_last
from tracer.graph import footprint, stored_weights
from tracer.graph.encoding import encoded
from tracer.support.imports import not_installed
from tracer.support.temporary import TemporaryFolder

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
    check_target(path, options.force)
    try:
        exporter = exporter_of(model, options.framework)
        conversion, exported = convert(exporter, model, inputs, options, path)
    except SystemExit as error:
        raise ModelError(
            f"{type(model).__name__} ends the program (sys.exit) when it is run",
            "Take that out of its code.",
        ) from error
    written = write_last(conversion.proto, path, conversion.folder)
    return replace(exported, notes=(*exported.notes, *notes(written)))


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
    _check_request(inputs, options)
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
    runtime.fit_ir_version(proto)
    _check(conversion)
    dynamic = _is_dynamic(proto)
    batches = _batches(conversion, dynamic)
    return conversion, Exported(
        path=path,
        framework=exporter.name,
        nodes=len(proto.graph.node),
        opset=opset_of(proto),
        ir_version=proto.ir_version,
        dynamic_batch=dynamic,
        batches=batches,
        max_abs_error=_compare(conversion, batches, options, exporter.name),
        notes=_notes(conversion, options, exporter.name),
    )


def _light(conversion: Conversion) -> Conversion:
    """Returns the conversion with the weights of a large model in a file, not in the protobuf."""
    proto = conversion.proto
    if conversion.files is not None or not footprint.is_much(stored_weights.weight_bytes(proto)):
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


def _check_request(inputs: Sequence[InputSpec], options: ExportOptions) -> None:
    newest = runtime.newest_opset()
    if options.opset is not None and options.opset > newest:
        raise UsageError(
            f"opset {options.opset} is newer than the installed onnxruntime runs",
            f"The newest is {newest}.",
        )
    for spec in inputs:
        spec.check()


def _is_dynamic(proto: onnx.ModelProto) -> bool:
    return any(
        dim.dim_param == BATCH for i in proto.graph.input for dim in i.type.tensor_type.shape.dim
    )


def _batches(conversion: Conversion, dynamic: bool) -> tuple[int, ...]:
    """Returns the batch of the inputs and, if it is dynamic, a second batch."""
    sizes = [spec.shape[0] for spec in conversion.inputs if spec.shape]
    batch = sizes[0] if sizes else 1
    return (batch, batch + 2) if dynamic else (batch,)


def _compare(
    conversion: Conversion, batches: Sequence[int], options: ExportOptions, framework: str
) -> float:
    errors = []
    for batch in batches:
        specs = conversion.inputs
        if len(batches) > 1:
            specs = tuple(spec.with_batch(batch) for spec in specs)
        arrays = draw(specs, (options.seed, _COMPARED))
        errors.append(verify(conversion, arrays, options, framework))
    return max(errors)


def _notes(conversion: Conversion, options: ExportOptions, framework: str) -> tuple[str, ...]:
    """Returns a note for each output that does not tell inputs apart."""
    if not conversion.inputs:
        return ()
    one, other = (draw(conversion.inputs, (options.seed, _COMPARED + n)) for n in (0, 1))
    return insensitive(conversion, one, other, options, framework)
