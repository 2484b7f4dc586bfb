"""onnxruntime's static quantisation, quiet, and with its errors as ours."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnxruntime import quantization as ort

from tracer.errors import ModelError, TracerError
from tracer.quantization.calibration import Reader
from tracer.quantization.options import FORMATS, METHODS, TYPES, Options

_PER_CHANNEL_OPSET = 13


def quantize_static(
    name: str, proto: onnx.ModelProto, reader: Reader, nodes: Sequence[str], options: Options
) -> onnx.ModelProto:
    """`proto`, called `name` in messages, with the nodes of these names quantised.

    Raises ModelError for what onnxruntime cannot quantise, and what reading the data raises.
    """
    _check_opset(name, proto, options)
    with tempfile.TemporaryDirectory(prefix="tracer-quantize-") as folder, _quiet():
        given, made = Path(folder) / "prepared.onnx", Path(folder) / "quantized.onnx"
        onnx.save(proto, given)  # a model in memory would have its weights moved out of it
        try:
            ort.quantize_static(
                given,
                made,
                reader,
                quant_format=ort.QuantFormat[FORMATS[options.format]],
                per_channel=options.per_channel,
                reduce_range=options.reduce_range,
                activation_type=ort.QuantType[TYPES[options.activation_type]],
                weight_type=ort.QuantType[TYPES[options.weight_type]],
                nodes_to_quantize=list(nodes),
                calibrate_method=ort.CalibrationMethod[METHODS[options.method]],
                extra_options={"ActivationSymmetric": options.symmetric, "CalibStridedMinMax": 1},
            )
        except TracerError:
            raise
        except Exception as error:  # of whatever class: its quantizer raises what Python has
            raise ModelError(
                f"{name}: onnxruntime cannot quantise it: {' '.join(str(error).split())}",
                "Leave nodes out with --exclude, or choose other types or another format.",
            ) from error
        return onnx.load(made)


def _check_opset(name: str, proto: onnx.ModelProto, options: Options) -> None:
    opset = next(entry.version for entry in proto.opset_import if not entry.domain)
    if options.format == "qdq" and options.per_channel and opset < _PER_CHANNEL_OPSET:
        raise ModelError(
            f"{name}: opset {opset} has no DequantizeLinear with a scale for each channel "
            f"(that came with {_PER_CHANNEL_OPSET})",
            "Use --per-tensor, or export the model with a newer opset.",
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what onnxruntime prints, and what it logs on the root logger, from the user.

    A handler is there because logging would otherwise configure itself for the whole process.
    """
    root = logging.getLogger()
    handler = logging.NullHandler()
    root.addHandler(handler)
    root.addFilter(_not_onnxruntimes)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        root.removeFilter(_not_onnxruntimes)
        root.removeHandler(handler)


def _not_onnxruntimes(record: logging.LogRecord) -> Any:
    return "onnxruntime" not in Path(record.pathname).parts
