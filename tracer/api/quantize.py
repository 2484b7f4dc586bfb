"""Quantises a float model, and measures what that costs."""

from dataclasses import asdict
from pathlib import Path

from exporters import writing
from tracer import metrics
from tracer.containment.calls import contained
from tracer.graph import loading
from tracer.graph.loading import ModelSource, open_model
from tracer.inputs.datasets.opening import open_dataset, without_split
from tracer.quantization import quantizer
from tracer.quantization.accuracy import accuracy
from tracer.quantization.calibration import CalibrationSamples
from tracer.quantization.options import QuantizationOptions
from tracer.records.quantized import Quantized
from tracer.records.trace import ModelInfo
from tracer.support.arguments import check_arguments, instance, maybe
from tracer.support.progress import Progress

_RULES = {"options": maybe(instance("tracer.quantization.options.QuantizationOptions"))}


def quantize(
    model: ModelSource,
    calibrate: str | Path,
    *,
    output: str | Path | None = None,
    force: bool = False,
    options: QuantizationOptions | None = None,
    limit: int | None = 512,
    test: str | Path | None = None,
    test_limit: int | None = None,
    metric: str | None = None,
    batch: int = 32,
    folder: str | Path = "data",
    progress: Progress | None = None,
    in_process: bool = False,
) -> Quantized:
    """Quantises `model` with activation ranges of `limit` samples of the data set `calibrate`.

    A data set is a name (`digits`; files of other names are in `folder`), an .npz file or a folder
    with test_data_sets; calibration uses the training split where there is one, unless the name
    says otherwise (`digits:test`). Writes the model to `output`, if there is one. Then scores both
    models by `metric` on the data set `test` [default: the test split of `calibrate`]; see
    `tracer.quantization.accuracy`. All this is done in a child process, or with `in_process` in
    this one. Raises the errors of `tracer.errors`; replaces an existing file only with `force`.
    """
    arguments = locals()
    check_arguments(arguments, _RULES)
    if not in_process:
        return contained(quantize, {**arguments, "in_process": True})
    target = None if output is None else Path(output)
    if target is not None:
        writing.check_target(target, force)
    chosen_metric = None if metric is None else metrics.find(metric)
    loaded, options = open_model(model), options or QuantizationOptions()
    split = "test" if Path(calibrate).is_dir() else "train"
    calibration = open_dataset(calibrate, loaded, limit=limit, split=split, folder=Path(folder))
    tested = test or without_split(calibrate)
    test_data = open_dataset(tested, loaded, limit=test_limit, folder=Path(folder))
    samples = CalibrationSamples(calibration, batch)
    graph = quantizer.quantize(loaded, samples, options, progress)
    if target is not None:
        writing.write(graph.proto, target)
    quantized = loading.from_proto(graph.proto)
    scores = accuracy(loaded, quantized, test_data, chosen_metric, batch, progress)
    missing = () if scores else (f"no metric fits {test_data.name}: give --metric",)
    return Quantized(
        model=ModelInfo.of(loaded),
        settings={
            **asdict(options), "calibrate": calibration.name, "limit": limit,
            "test": test_data.name,
        },
        accuracy=scores,
        layers=graph.layers,
        notes=(*graph.notes, *missing),
        proto=graph.proto,
    )  # fmt: skip
