"""Quantises a float model, and measures what that costs: see `tracer.quantize`."""

from dataclasses import asdict
from pathlib import Path

from exporters import writing
from exporters.subject import Subject, open_subject
from tracer import metrics
from tracer.graph import data_file
from tracer.inputs.datasets.opening import open_dataset, without_split
from tracer.interpreter.interpreter import Interpreter
from tracer.quantization import quantizer
from tracer.quantization.accuracy import accuracy, check
from tracer.quantization.calibration import CalibrationSamples
from tracer.quantization.options import QuantizationOptions
from tracer.records.quantized import Quantized
from tracer.records.trace import ModelInfo
from tracer.support.progress import Progress


def quantize(
    model: Subject,
    calibrate: str | Path,
    output: str | Path | None,
    force: bool,
    options: QuantizationOptions | None,
    limit: int | None,
    test: str | Path | None,
    test_limit: int | None,
    metric: str | None,
    batch: int,
    folder: Path,
    progress: Progress | None,
) -> Quantized:
    """Writes the quantised model, then scores it and the float model."""
    target = None if output is None else Path(output)
    if target is not None:
        writing.check_target(target, force)
    chosen_metric = None if metric is None else metrics.find(metric)
    loaded, options = open_subject(model), options or QuantizationOptions()
    split = "test" if Path(calibrate).is_dir() else "train"
    calibration = open_dataset(calibrate, loaded, limit=limit, split=split, folder=folder)
    tested = test or without_split(calibrate)
    test_data = open_dataset(tested, loaded, limit=test_limit, folder=folder)
    if chosen_metric is not None:
        check(loaded, test_data, chosen_metric)
    samples = CalibrationSamples(calibration, batch)
    graph = quantizer.quantize(loaded, samples, options, progress)
    # They open their weights here: `target` may replace the model, and its data with it.
    wide, narrow = Interpreter(loaded), Interpreter(graph.model)
    if target is None:
        proto = data_file.whole(graph.proto, graph.folder)
    else:
        proto = writing.write(graph.proto, target, graph.folder)
    scores = accuracy(wide, narrow, test_data, chosen_metric, batch, progress)
    missing = () if scores else (f"no metric fits {test_data.name}: give --metric",)
    early = () if scores is None else _early_note(scores.samples, test_data.samples)
    return Quantized(
        model=ModelInfo.of(loaded),
        settings={
            **asdict(options), "calibrate": calibration.name, "limit": limit,
            "test": test_data.name,
        },
        accuracy=scores,
        layers=graph.layers,
        outputs=graph.outputs,
        notes=(*graph.notes, *missing, *early, *writing.notes(proto)),
        proto=proto,
    )  # fmt: skip


def _early_note(done: int, total: int | None) -> tuple[str, ...]:
    """Returns a note where not all samples were scored."""
    if total is None or done >= total:
        return ()
    return (f"out of time: the accuracy was measured on {done:,} of {total:,} samples",)
