"""The exported model under onnxruntime: which versions it accepts, and how far values differ."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from tracer.errors import ModelError, ThresholdError, TracerError
from tracer.exporters.records import Arrays, Conversion, ExportOptions
from tracer.graph import provenance
from tracer.support import tolerance
from tracer.support.types import Array

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
            else "Check --input-shape; --debug shows where.",
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
