"""Runs onnxruntime's quantizer on weights that stay in their file, one in memory at a time.

`quantize_static` loads all weights, loads them again to calibrate, and its session packs them.
Here the parts that it is made of see a model without the data, and read each weight when they
quantise it. Only the session that calibrates holds all weights.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from onnx.external_data_helper import uses_external_data
from onnxruntime import quantization as ort
from onnxruntime.quantization import calibrate, quant_utils, registry
from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer

from tracer.graph import stored_weights
from tracer.graph.stored_weights import stored_tensors
from tracer.quantization.calibration import CalibrationReader
from tracer.quantization.options import FORMATS, METHODS, TYPES, QuantizationOptions
from tracer.support.types import Array

_CALIBRATORS: dict[ort.CalibrationMethod, Callable[..., Any]] = {
    ort.CalibrationMethod.MinMax: calibrate.MinMaxCalibrater,
    ort.CalibrationMethod.Entropy: calibrate.EntropyCalibrater,
    ort.CalibrationMethod.Percentile: partial(calibrate.PercentileCalibrater, symmetric=True),
}
"""Calibrators with the options that `create_calibrator` gives them."""


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
    bare = _without_data(source)
    ranges = _ranges(bare, reader, operators, options)
    model = quant_utils.load_model_with_shape_infer(bare)
    _point_to_data(model)
    with _mapped(source.parent):
        quantizer = _quantizer(model, ranges, nodes, operators, options)
        quantizer.quantize_model()
    quantizer.model.save_model_to_file(target, use_external_data_format=True)


def _without_data(source: Path) -> Path:
    """Writes a copy of a model beside it, in which onnx sees no external data to load."""
    proto = onnx.load(source, load_external_data=False)
    for tensor in filter(uses_external_data, stored_tensors(proto)):
        tensor.data_location = onnx.TensorProto.DEFAULT
    bare = source.with_name("bare.onnx")
    bare.write_bytes(proto.SerializeToString())
    return bare


def _point_to_data(proto: onnx.ModelProto) -> None:
    """Lets tensors point to their external data again."""
    for tensor in stored_tensors(proto):
        if tensor.external_data:
            tensor.data_location = onnx.TensorProto.EXTERNAL


def _ranges(
    bare: Path, reader: CalibrationReader, operators: Sequence[str], options: QuantizationOptions
) -> ort.TensorsData:
    """Returns the ranges of the activations, batch by batch."""
    calibrator = _CALIBRATORS[ort.CalibrationMethod[METHODS[options.method]]](
        bare,
        operators,
        augmented_model_path=str(bare.with_name("augmented.onnx")),  # beside the weights
    )
    _point_to_data(calibrator.model)
    calibrator.augment_graph()
    calibrator.create_inference_session()
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
def _mapped(folder: Path) -> Iterator[None]:
    """Has onnx map a tensor of external data in `folder` when it is read.

    onnxruntime's quantizers take no folder of external data and no function that reads a weight:
    their functions call `onnx.numpy_helper.to_array(weight)`, which this replaces meanwhile.
    """
    to_array = onnx.numpy_helper.to_array

    def mapped(tensor: onnx.TensorProto, base_dir: str = "") -> Array:
        if uses_external_data(tensor):
            return stored_weights.read_external(tensor, folder)
        return to_array(tensor, base_dir)

    onnx.numpy_helper.to_array = mapped
    try:
        yield
    finally:
        onnx.numpy_helper.to_array = to_array
