"""Shares the calibration out to the workers of a pool: each has the ranges of some batches."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import onnxruntime
from onnxruntime import quantization as ort
from onnxruntime.quantization import calibrate

from tracer.containment.activity import Progress, silent
from tracer.errors import UsageError
from tracer.graph.model import Model
from tracer.inputs.datasets.dataset import Description
from tracer.inputs.datasets.opening import reopened
from tracer.quantization.calibration import CalibrationReader, CalibrationSamples
from tracer.quantization.options import METHODS, QuantizationOptions
from tracer.scaling.pool import Pool, Shard, run_on_shards
from tracer.support.temporary import TemporaryFolder

_Ranges = Mapping[str, tuple[Any, Any]]
"""The least and the greatest value of each tensor, as onnxruntime's calibration has them."""
_FATAL_ONLY = 4
"""Severity of onnxruntime's log that leaves errors to exceptions."""
_FOLDING = "MinMax"
"""The method whose ranges of parts make the range of the whole."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The ranges of a shard, and the seconds that they took."""

    ranges: _Ranges
    seconds: float


@dataclass(frozen=True, slots=True)
class _RangesJob:
    """The prepared graph in a file without external data, and a description of the samples."""

    graph: bytes = field(repr=False)
    model: Model = field(repr=False)
    samples: Description
    size: int
    operators: tuple[str, ...]

    def portable(self) -> _RangesJob:
        return self

    def open(self, threads: int | None) -> _Ranging:
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

    def ranges(self, shard: Shard) -> _Part:
        """Returns the ranges of the tensors on the batches of a shard."""
        assert shard.count is not None
        began = time.perf_counter()
        size = self._samples.layout.batch or self._job.size
        part = self._samples.part(shard.first * size, shard.count * size)
        reader = CalibrationReader(self._job.model, CalibrationSamples(part, size), silent)
        self._calibrator.calibrate_tensors_range = None
        for batch in range(len(reader)):
            reader.set_range(batch, batch + 1)
            self._calibrator.collect_data(reader)
        data = self._calibrator.compute_data().data
        ranges = {name: tuple(each.range_value) for name, each in data.items()}
        return _Part(ranges, time.perf_counter() - began)


def may_be_shared(batches: object) -> bool:
    """Whether workers can read the batches: samples of a data set of a known size."""
    return isinstance(batches, CalibrationSamples) and bool(batches.dataset.count(batches.size))


def check_shareable(options: QuantizationOptions) -> None:
    """Raises UsageError for a method whose ranges do not follow from those of parts."""
    if METHODS[options.method] != _FOLDING:
        raise UsageError(
            f"ranges by {options.method} follow from all samples in order",
            "Choose --method minmax, or leave out --workers and --scheduler.",
        )


def shared_ranges(
    graph: bytes,
    model: Model,
    batches: CalibrationSamples,
    operators: Sequence[str],
    pool: Pool,
    progress: Progress,
) -> ort.TensorsData:
    """Returns the ranges of all tensors of `graph`, a model without external data."""
    dataset = batches.dataset
    job = _RangesJob(graph, model, dataset.description, batches.size, tuple(operators))
    parts = run_on_shards(pool, job, "ranges", dataset.count(batches.size) or 0, progress)
    ranges = reduce(_folded, (part.ranges for part in parts))
    return ort.TensorsData(ort.CalibrationMethod.MinMax, dict(ranges))


def _folded(first: _Ranges, second: _Ranges) -> _Ranges:
    """The ranges of two parts together, as onnxruntime merges those of two batches."""
    return {
        name: (min(low, second[name][0]), max(high, second[name][1]))
        for name, (low, high) in first.items()
    }
