"""The exported model under onnxruntime against the framework, and where they part."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from exporters import runtime
from exporters.records import Arrays, Conversion, ExportOptions
from tracer.errors import ModelError, ThresholdError, TracerError
from tracer.graph import provenance


def verify(conversion: Conversion, arrays: Arrays, options: ExportOptions, framework: str) -> float:
    """Largest absolute difference of any output from the framework's, on the inputs `arrays`.

    Raises ThresholdError, naming the first node whose value differs, where an output is off by
    more than the tolerance of `options` or has another shape or type.
    """
    names = [output.name for output in conversion.proto.graph.output]
    expected = _expected(conversion, arrays, options, framework)
    actual = runtime.run(conversion.proto, arrays)
    if len(expected) != len(actual):
        raise ModelError(f"{framework} gives {len(expected)} outputs, the export {len(actual)}")
    pairs = zip(names, actual, expected, strict=True)
    for name, found, wanted in pairs:
        fault = difference(found, wanted, options)
        if fault:
            where = _first_differing(conversion, arrays, options)
            raise ThresholdError(
                f"the exported model differs from {framework}: output '{name}' {fault}; {where}",
                "Nothing was written; --rtol and --atol set the tolerance.",
            )
    return max(map(max_abs_error, actual, expected), default=0.0)


def _expected(
    conversion: Conversion, arrays: Arrays, options: ExportOptions, framework: str
) -> list[NDArray[Any]]:
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


def difference(found: NDArray[Any], wanted: NDArray[Any], options: ExportOptions) -> str:
    """How `found` differs from `wanted` beyond the tolerance; '' where it does not.

    Numbers of half precision, whose own steps are wider than `rtol`, may be off by eight of them.
    """
    if found.shape != wanted.shape:
        return f"has shape {list(found.shape)}, not {list(wanted.shape)}"
    if found.dtype != wanted.dtype:
        return f"is {found.dtype}, not {wanted.dtype}"
    if not found.size:
        return ""
    if found.dtype.kind not in "fc":
        wrong = int(np.count_nonzero(found != wanted))
        return f"has {wrong} of {found.size} elements wrong" if wrong else ""
    finite = np.isfinite(wanted)
    if not np.array_equal(found[~finite], wanted[~finite], equal_nan=True):
        return "has NaN or infinity in other places"
    error = max_abs_error(found, wanted)
    scale = float(np.max(np.abs(wanted[finite]), initial=0))
    rtol = max(options.rtol, 8 * float(np.finfo(found.dtype).eps))  # half precision is coarser
    if error <= options.atol + rtol * scale:
        return ""
    return f"is off by up to {error:.3g} where values reach {scale:.3g}"


def max_abs_error(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Largest absolute difference of two tensors of one shape, in float64; NaN equals NaN."""
    same = (found == wanted) | ((found != found) & (wanted != wanted))
    if same.all():
        return 0.0
    with np.errstate(invalid="ignore"):
        apart = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
    return float(np.max(apart[~same]))


def _first_differing(conversion: Conversion, arrays: Arrays, options: ExportOptions) -> str:
    """The first node, in the order of the graph, whose output the framework computes otherwise."""
    known = conversion.values(arrays)
    makers = [
        (name, node, index)
        for index, node in enumerate(conversion.proto.graph.node)
        for name in node.output
        if name in known
    ]
    found = runtime.run(conversion.proto, arrays, [name for name, _, _ in makers])
    for (name, node, index), value in zip(makers, found, strict=True):
        fault = difference(value, known[name], options)
        if fault:
            return f"the first node that differs is {_label(node, index)}, which {fault}"
    return f"every one of the {len(makers)} tensors that both can name agrees"


def _label(node: onnx.NodeProto, index: int) -> str:
    module, source = provenance.module_of(node), provenance.source_of(node)
    known = [f"module '{module}'" if module else "", source or ""]
    origin = ", ".join(filter(None, known))
    name = f"'{node.name or f'{node.op_type}_{index}'}' ({node.op_type})"
    return f"{name} of {origin}" if origin else name
