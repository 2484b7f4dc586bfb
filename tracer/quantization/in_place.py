"""Runs onnxruntime's quantizer on weights that stay in their file, one in memory at a time.

`quantize_static` loads all weights, loads them again to calibrate, and its session packs them.
Here the parts that it is made of see a model without the data, and read each weight when they
quantise it. Only the session that calibrates holds all weights.
"""

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx
from onnx.external_data_helper import uses_external_data
from onnxruntime import quantization as ort
from onnxruntime.quantization import quant_utils, registry
from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer

from tracer.graph import external_data
from tracer.quantization.calibration import CalibrationReader
from tracer.quantization.options import FORMATS, METHODS, TYPES, QuantizationOptions
from tracer.support.types import Array


def quantize(
    source: Path,
    target: Path,
    reader: CalibrationReader,
    nodes: Sequence[str],
    options: QuantizationOptions,
) -> None:
    """Writes the model at `source` to `target`, as onnxruntime's `quantize_static` does.

    The weights of both are external data in their folder, which they share.
    """
    operators = sorted({*registry.QLinearOpsRegistry, *registry.QDQRegistry})
    with _data_left_in(source.parent):
        ranges = _ranges(source, reader, operators, options)
        model = quant_utils.load_model_with_shape_infer(source)
        quantizer = _quantizer(model, ranges, nodes, operators, options)
        quantizer.quantize_model()
    quantizer.model.save_model_to_file(target, use_external_data_format=True)


def _ranges(
    source: Path, reader: CalibrationReader, operators: Sequence[str], options: QuantizationOptions
) -> ort.TensorsData:
    """Returns the ranges of the activations, batch by batch."""
    calibrator = ort.create_calibrator(
        source,
        operators,
        augmented_model_path=str(source.with_name("augmented.onnx")),  # beside the weights
        calibrate_method=ort.CalibrationMethod[METHODS[options.method]],
    )
    for batch in range(len(reader)):
        reader.set_range(batch, batch + 1)
        calibrator.collect_data(reader)
    return calibrator.compute_data()


def _quantizer(
    model: onnx.ModelProto,
    ranges: ort.TensorsData,
    nodes: Sequence[str],
    operators: Sequence[str],
    options: QuantizationOptions,
) -> Any:
    weights = ort.QuantType[TYPES[options.weight_type]]
    activations = ort.QuantType[TYPES[options.activation_type]]
    scales = (options.per_channel, options.reduce_range)
    further = {"ActivationSymmetric": options.symmetric}
    chosen: tuple[Any, ...] = (ranges, list(nodes), [], operators, further)
    if ort.QuantFormat[FORMATS[options.format]] is ort.QuantFormat.QDQ:
        return ort.QDQQuantizer(model, *scales, weights, activations, *chosen)
    mode = ort.QuantizationMode.QLinearOps
    return ONNXQuantizer(model, *scales, mode, True, weights, activations, *chosen)


@contextlib.contextmanager
def _data_left_in(folder: Path) -> Iterator[None]:
    """Has onnx load models without their external data, and map a tensor in `folder` when read."""
    to_array = onnx.numpy_helper.to_array

    def mapped(tensor: onnx.TensorProto, base_dir: str = "") -> Array:
        if uses_external_data(tensor):
            return external_data.read(tensor, folder)
        return to_array(tensor, base_dir)

    skeleton = partial(onnx.load, load_external_data=False)
    with _replaced(onnx, "load", skeleton), _replaced(onnx.numpy_helper, "to_array", mapped):
        yield


@contextlib.contextmanager
def _replaced(module: ModuleType, name: str, function: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, function)
    try:
        yield
    finally:
        setattr(module, name, before)
