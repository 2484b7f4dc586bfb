"""Compare the exported model under onnxruntime with the framework, and name where they differ."""

import numpy as np
import onnx

from tracer.errors import ModelError, ThresholdError, TracerError
from tracer.exporters import runtime
from tracer.exporters.records import Arrays, Conversion, ExportOptions
from tracer.graph import provenance
from tracer.support.tolerance import (
    NARROW_STEPS,
    Precision,
    Tolerance,
    compare,
    max_abs_difference,
    rounding,
)
from tracer.support.types import Array

_ROUNDED = 1e-4
"""Error ÷ scale that the rounding of a network may make."""

_SMALLEST = 1e-8
"""Part of the tolerance that does not scale: outputs of untrained networks are small."""


def verify(conversion: Conversion, arrays: Arrays, options: ExportOptions, framework: str) -> float:
    """Returns the largest absolute difference of any output from the framework's, on `arrays`.

    Raises ThresholdError, naming the first node whose value differs, where an output is out of
    the tolerance of `options` or has another shape or type.
    """
    names = [output.name for output in conversion.proto.graph.output]
    expected = _expected(conversion, arrays, options, framework)
    actual = runtime.run(conversion.proto, arrays, folder=conversion.folder)
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
    return max(map(max_abs_difference, actual, expected), default=0.0)


def insensitive(
    conversion: Conversion, arrays: Arrays, others: Arrays, options: ExportOptions, framework: str
) -> tuple[str, ...]:
    """Returns a note for each output that two different inputs give within the tolerance.

    A check on such an output proves little: a graph that ignores its inputs would pass. Outputs
    without elements, and shapes that depend on the values, are left out.
    """
    names = [output.name for output in conversion.proto.graph.output]
    outputs = (_expected(conversion, each, options, framework) for each in (arrays, others))
    return tuple(
        f"output '{name}' hardly depends on the inputs: between two random inputs it changes by at "
        f"most {max_abs_difference(first, second):.2g}, and values reach {_scale(first):.2g}; the "
        "check proves little for it"
        for name, first, second in zip(names, *outputs, strict=True)
        if first.size and first.shape == second.shape and not difference(second, first, options)
    )


def _scale(array: Array) -> float:
    numbers = np.abs(array[np.isfinite(array)].astype(np.float64))
    return float(np.max(numbers, initial=0))


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
        reason = "; ".join([type(error).__name__, *lines[:2]]).replace(";", ":", 1)
        raise ModelError(
            f"{framework} does not run the model at batch {_batch(arrays)}, on inputs of {shapes}: "
            + reason.rstrip(".:"),
            "Give --static-batch and a batch that it runs at, or have it work on any."
            if options.dynamic_batch
            else "Check --input-shape; --debug shows where.",
        ) from error


def _batch(arrays: Arrays) -> int:
    return next((array.shape[0] for array in arrays if array.ndim), 1)


def difference(actual: Array, expected: Array, options: ExportOptions) -> str:
    """Describes how `actual` is out of the tolerance of `options`; '' where it is within."""
    absolute = _SMALLEST if options.atol is None else options.atol
    unit = rounding(expected.dtype)
    exact = Precision(max(_ROUNDED, NARROW_STEPS * unit) if unit else 0.0)
    return compare(actual, expected, Tolerance(options.rtol, absolute), exact).fault


def _first_differing(conversion: Conversion, arrays: Arrays, options: ExportOptions) -> str:
    """Returns names the first node, in graph order, whose output differs from the framework's."""
    expected = conversion.values(arrays)
    producers = [
        (name, node, index)
        for index, node in enumerate(conversion.proto.graph.node)
        for name in node.output
        if name in expected
    ]
    named = [name for name, _, _ in producers]
    actual = runtime.run(conversion.proto, arrays, named, conversion.folder)
    for (name, node, index), value in zip(producers, actual, strict=True):
        fault = difference(value, expected[name], options)
        if fault:
            return f"the first node that differs is {_label(node, index)}: {fault}"
    return f"all {len(producers)} tensors that both sides name agree"


def _label(node: onnx.NodeProto, index: int) -> str:
    module, source = provenance.module_of(node), provenance.source_of(node)
    origin = ", ".join(filter(None, [f"module '{module}'" if module else "", source or ""]))
    name = f"'{node.name or f'{node.op_type}_{index}'}' ({node.op_type})"
    return f"{name} of {origin}" if origin else name
