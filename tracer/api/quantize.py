"""The Python door to quantisation: a float model in, an integer one and what it costs out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import onnx

from exporters import writing
from tracer import metrics
from tracer.graph import loading
from tracer.graph.loading import ModelSource, open_model
from tracer.inputs.datasets import open_dataset
from tracer.quantization.accuracy import Accuracy, accuracy
from tracer.quantization.calibration import Samples
from tracer.quantization.layers import LayerError
from tracer.quantization.options import Options
from tracer.quantization.quantizer import quantize as quantized
from tracer.records.trace import ModelInfo
from tracer.support.progress import Progress


@dataclass(frozen=True, slots=True)
class Quantization:
    """The quantised model, how good it is, what each layer lost, and how it was made.

    `model` is the float one. `accuracy` is None where no metric fits the data. `layers` are in
    the order of the graph.
    """

    model: ModelInfo
    settings: Mapping[str, Any]
    accuracy: Accuracy | None
    layers: tuple[LayerError, ...]
    notes: tuple[str, ...]
    proto: onnx.ModelProto = field(repr=False)


def quantize(
    model: ModelSource,
    calibrate: str | Path,
    *,
    output: str | Path | None = None,
    force: bool = False,
    options: Options | None = None,
    limit: int | None = 512,
    test: str | Path | None = None,
    test_limit: int | None = None,
    metric: str | None = None,
    batch: int = 32,
    folder: str | Path = "data",
    progress: Progress | None = None,
) -> Quantization:
    """Quantise `model` with the ranges seen on `limit` samples of the data set `calibrate`.

    A data set is a name (`digits`; files of others lie in `folder`), an .npz file or a folder with
    test_data_sets; one with a training split is calibrated on that. The result is written to
    `output` if that is given; then both models run on the data set `test`, the test split of
    `calibrate` unless given, and are judged by `metric` (see `tracer.quantization.accuracy`).
    Raises the errors of `tracer.errors`; a file that exists is kept unless `force`.
    """
    target = None if output is None else Path(output)
    if target is not None:
        writing.check_target(target, force)
    wanted = None if metric is None else metrics.find(metric)
    loaded, options = open_model(model), options or Options()
    split = "test" if Path(calibrate).is_dir() else "train"
    given = open_dataset(calibrate, loaded, limit=limit, split=split, folder=Path(folder))
    judged = open_dataset(test or calibrate, loaded, limit=test_limit, folder=Path(folder))
    samples = Samples(given, batch)
    made = quantized(loaded, samples, options, progress)
    if target is not None:
        writing.write(made.proto, target)
    narrow = loading.from_proto(made.proto)
    found = accuracy(loaded, narrow, judged, wanted, batch, progress)
    settings = {**asdict(options), "calibrate": given.name, "limit": limit, "test": judged.name}
    notes = made.notes if found else (*made.notes, f"no metric fits {judged.name}: give --metric")
    return Quantization(ModelInfo.of(loaded), settings, found, made.layers, notes, made.proto)
