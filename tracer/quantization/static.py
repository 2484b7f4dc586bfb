"""Calls onnxruntime's static quantisation, silences its output and converts its errors.

The workers of a pool share the calibration: each has the ranges of some batches.

Weights in a file of their own stay there, one in memory at a time: `quantize_static` of onnxruntime
loads all weights, loads them again to calibrate, and its session packs them. Here the parts that it
is made of see a model without the data, and read each weight when they quantise it. Only the
session that calibrates holds all weights.
"""

import contextlib
import io
import logging
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from onnx.external_data_helper import uses_external_data
from onnxruntime import quantization as ort
from onnxruntime.quantization import calibrate, quant_utils, registry
from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer

from tracer.containment import activity
from tracer.errors import ModelError, TracerError
from tracer.graph import stored_weights
from tracer.graph.model import Model
from tracer.inputs.datasets.dataset import Description
from tracer.inputs.datasets.opening import reopened
from tracer.quantization.calibration import CalibrationReader, CalibrationSamples
from tracer.quantization.options import FORMATS, METHODS, TYPES, QuantizationOptions
from tracer.scaling.pool import Pool, Shard, Timed, run_on_shards
from tracer.support.temporary import TemporaryFolder, check_room
from tracer.support.types import Array

_WARNINGS, _FATAL_ONLY = 2, 4
"""Severities of onnxruntime's log: what it starts with, and what leaves errors to exceptions."""


@dataclass(frozen=True, slots=True)
class _RangesJob:
    """The prepared graph in a file without external data, and a description of the samples."""

    graph: bytes = field(repr=False)
    model: Model = field(repr=False)
    samples: Description
    size: int
    operators: tuple[str, ...]

    def portable(self) -> "_RangesJob":
        return self

    def open(self, threads: int | None) -> "_Ranging":
        return _Ranging(self)


class _Ranging:
    """Runs shards in a session that tells the values of all tensors."""

    def __init__(self, job: _RangesJob) -> None:
        self._job = job
        self._samples = reopened(job.samples, job.model)
        self._folder = TemporaryFolder()
        source = self._folder.path / "prepared.onnx"
        source.write_bytes(job.graph)
        onnxruntime.set_default_logger_severity(_FATAL_ONLY)
        self._calibrator = calibrate.MinMaxCalibrater(
            source, job.operators, augmented_model_path=str(self._folder.path / "augmented.onnx")
        )
        self._calibrator.augment_graph()
        self._calibrator.create_inference_session()

    def ranges(self, shard: Shard) -> Timed:
        """Returns the least and the greatest value of each tensor on the batches of a shard."""
        assert shard.count is not None
        began = time.perf_counter()
        size = self._samples.layout.batch or self._job.size
        part = self._samples.part(shard.first * size, shard.count * size)
        reader = CalibrationReader(self._job.model, CalibrationSamples(part, size), activity.silent)
        self._calibrator.calibrate_tensors_range = None
        for batch in range(len(reader)):
            reader.set_range(batch, batch + 1)
            self._calibrator.collect_data(reader)
        data = self._calibrator.compute_data().data
        ranges = {name: tuple(each.range_value) for name, each in data.items()}
        return Timed(ranges, time.perf_counter() - began)


def shared_ranges(
    graph: bytes,
    model: Model,
    batches: CalibrationSamples,
    operators: Sequence[str],
    pool: Pool,
    progress: activity.Progress,
) -> ort.TensorsData:
    """Returns the ranges of all tensors of `graph`, a model without external data."""
    dataset = batches.dataset
    job = _RangesJob(graph, model, dataset.description, batches.size, tuple(operators))
    parts = run_on_shards(pool, job, "ranges", dataset.count(batches.size) or 0, progress)
    ranges: dict[str, tuple[Any, Any]] = {}
    for part in parts:  # merged as onnxruntime merges those of batches
        for name, (low, high) in part.result.items():
            first, last = ranges.get(name, (low, high))
            ranges[name] = min(first, low), max(last, high)
    return ort.TensorsData(ort.CalibrationMethod.MinMax, ranges)


_CALIBRATORS: dict[ort.CalibrationMethod, Callable[..., Any]] = {
    ort.CalibrationMethod.MinMax: calibrate.MinMaxCalibrater,
    ort.CalibrationMethod.Entropy: calibrate.EntropyCalibrater,
    ort.CalibrationMethod.Percentile: partial(calibrate.PercentileCalibrater, symmetric=True),
}
"""Calibrators with the options that `create_calibrator` gives them."""


def quantize_in_place(
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
    proto = onnx.load(source, load_external_data=False)
    for tensor in filter(uses_external_data, stored_weights.stored_tensors(proto)):
        tensor.data_location = onnx.TensorProto.DEFAULT  # onnx sees no external data to load
    bare = source.with_name("bare.onnx")
    bare.write_bytes(proto.SerializeToString())
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
    ranges = calibrator.compute_data()
    model = quant_utils.load_model_with_shape_infer(bare)
    _point_to_data(model)
    types = (ort.QuantType[TYPES[each]] for each in (options.weight_type, options.activation_type))
    further = {"ActivationSymmetric": options.symmetric}
    chosen: tuple[Any, ...] = (*types, ranges, list(nodes), [], operators, further)
    scales = (options.per_channel, options.reduce_range)
    with _mapped(source.parent):
        if ort.QuantFormat[FORMATS[options.format]] is ort.QuantFormat.QDQ:
            quantizer = ort.QDQQuantizer(model, *scales, *chosen)
        else:
            mode = ort.QuantizationMode.QLinearOps
            quantizer = ONNXQuantizer(model, *scales, mode, True, *chosen)
        quantizer.quantize_model()
    quantizer.model.save_model_to_file(target, use_external_data_format=True)


def _point_to_data(proto: onnx.ModelProto) -> None:
    """Lets tensors point to their external data again."""
    for tensor in stored_weights.stored_tensors(proto):
        if tensor.external_data:
            tensor.data_location = onnx.TensorProto.EXTERNAL


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


def quantize_static(
    name: str,
    source: Path,
    reader: CalibrationReader,
    nodes: Sequence[str],
    options: QuantizationOptions,
    ranges: Path | None = None,
) -> onnx.ModelProto:
    """Returns the model at `source`, `name` in messages, with the nodes of these names quantised.

    `ranges` is a file with the ranges of the tensors; without one, `reader` is calibrated with.

    Where weights are external data, those of the result are as well, in the folder of `source`.
    Raises ModelError where onnxruntime cannot quantise, and the errors of the reader.
    """
    clause = f"onnxruntime {onnxruntime.__version__} quantised the model"
    doing = activity.doing(name, clause, patient=True)
    with doing, TemporaryFolder() as folder, _temporary(folder), _quiet():
        target = source.with_name(f"quantized-{source.name}")
        proto = onnx.load(source, load_external_data=False)
        try:
            if stored_weights.has_external_data(proto):
                quantize_in_place(source, target, reader, nodes, options)
            else:
                ort.quantize_static(
                    source, target, reader,
                    quant_format=ort.QuantFormat[FORMATS[options.format]],
                    per_channel=options.per_channel, reduce_range=options.reduce_range,
                    activation_type=ort.QuantType[TYPES[options.activation_type]],
                    weight_type=ort.QuantType[TYPES[options.weight_type]],
                    nodes_to_quantize=list(nodes),
                    calibrate_method=ort.CalibrationMethod[METHODS[options.method]],
                    extra_options={
                        "ActivationSymmetric": options.symmetric, "CalibStridedMinMax": 1
                    },
                    calibration_cache_path=ranges,
                )  # fmt: skip
        except (TracerError, MemoryError):
            raise
        except Exception as error:  # its quantizer raises all kinds of exceptions
            check_room()
            node = _node_at_fault(error, proto)
            where, left = (f" (at node '{node}')", f"'{node}'") if node else ("", "NODE")
            raise ModelError(
                f"{name}: onnxruntime cannot quantise it: {' '.join(str(error).split())}{where}",
                f"Leave nodes out: tracer quantize --exclude {left}; or choose other types or "
                "another format there.",
            ) from error
        _check_result(name, target)
        return onnx.load(target, load_external_data=False)


def _check_result(name: str, path: Path) -> None:
    """Raises ModelError where onnxruntime refuses what its quantizer wrote.

    Names that the quantizer makes may be names that the model has already.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises exceptions of its own
        raise ModelError(
            f"{name}: onnxruntime's quantizer made a graph that onnxruntime refuses: "
            f"{' '.join(str(error).replace(str(path), 'the graph').split())}",
            "Leave the nodes that it names out with --exclude, or try --format qoperator.",
        ) from error


def _node_at_fault(error: BaseException, proto: onnx.ModelProto) -> str | None:
    """Returns the name of the node that the quantizer worked on; None where nothing tells it.

    Its exceptions name none, but the innermost of its functions that has a node, or the name of a
    tensor that one node reads, was about it.
    """
    readers = {name: node.name for node in proto.graph.node for name in node.input}
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames[1:]):
        values = list(frame.f_locals.values())
        nodes = [value.name for value in values if isinstance(value, onnx.NodeProto)]
        nodes += [readers[value] for value in values if isinstance(value, str) and value in readers]
        if nodes:
            return str(nodes[0])
    return None


@contextlib.contextmanager
def _temporary(folder: Path) -> Iterator[None]:
    """Puts the temporary files of onnxruntime into `folder`, which goes even if it crashes."""
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides what onnxruntime prints and logs, and warnings of what it computes with.

    The log of a session shows names of the model as they are. The handler keeps logging from
    configuring itself for the whole process.
    """
    onnxruntime.set_default_logger_severity(_FATAL_ONLY)
    root = logging.getLogger()
    handler = logging.NullHandler()
    root.addHandler(handler)
    root.addFilter(_not_onnxruntimes)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NaN in the data becomes an error
            yield
    finally:
        root.removeFilter(_not_onnxruntimes)
        root.removeHandler(handler)
        onnxruntime.set_default_logger_severity(_WARNINGS)


def _not_onnxruntimes(record: logging.LogRecord) -> Any:
    return "onnxruntime" not in Path(record.pathname).parts
