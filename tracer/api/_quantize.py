"""Quantises a float model, and measures what that costs: see `tracer.quantize`."""

from dataclasses import asdict
from pathlib import Path

from tracer import metrics
from tracer.api.quantize import QuantizeArguments
from tracer.containment.activity import Progress
from tracer.errors import UsageError
from tracer.exporters import writing
from tracer.exporters.subject import open_subject
from tracer.graph import stored_weights
from tracer.graph.model import Model
from tracer.inputs.datasets.dataset import Dataset
from tracer.inputs.datasets.opening import open_dataset, without_split
from tracer.interpreter.interpreter import Interpreter
from tracer.metrics import Metric
from tracer.quantization import quantizer
from tracer.quantization.calibration import CalibrationSamples
from tracer.quantization.layers import accuracy, check_metric
from tracer.quantization.options import QuantizationOptions, WeightOptions
from tracer.quantization.quantizer import quantize_weights
from tracer.records.model_info import ModelInfo
from tracer.records.transformed import Accuracy, Quantized
from tracer.scaling.pool import Pool, opened_pool

_MODULES = ("tracer.quantization.calibration",)
"""What workers load as they start."""


def quantize(call: QuantizeArguments) -> Quantized:
    """Scores the quantised and the float model, then writes the quantised one."""
    target = None if call.output is None else Path(call.output)
    if target is not None:
        writing.check_target(target, call.force)
    chosen_metric = None if call.metric is None else metrics.find(call.metric)
    loaded, options = open_subject(call.model), call.options or QuantizationOptions()
    calibration, test_data = _data(loaded, call, options)
    if chosen_metric is not None and test_data is not None:
        check_metric(loaded, test_data, chosen_metric)
    samples = None if calibration is None else CalibrationSamples(calibration, call.batch)
    with opened_pool(call.cluster, note=call.note, modules=_MODULES) as pool:
        graph = _graph(loaded, samples, options, call.progress, pool)
    wide, narrow = Interpreter(loaded), Interpreter(graph.model)
    scores, notes = _scored(wide, narrow, test_data, chosen_metric, call.batch, call.progress)
    if target is None:
        proto = stored_weights.with_inline_weights(graph.proto, graph.folder)
    else:  # last: what fails before leaves no file
        proto = writing.write_last(graph.proto, target, graph.folder)
    return Quantized(
        model=ModelInfo.of(loaded),
        settings={
            **asdict(options),
            "calibrate": None if call.calibrate is None else str(call.calibrate),
            "limit": call.limit, "test": None if test_data is None else test_data.name,
        },
        accuracy=scores,
        layers=graph.layers,
        outputs=graph.outputs,
        notes=(*graph.notes, *notes, *writing.notes(proto)),
        proto=proto,
    )  # fmt: skip


def _data(
    model: Model, call: QuantizeArguments, options: QuantizationOptions | WeightOptions
) -> tuple[Dataset | None, Dataset | None]:
    """Returns the data of the layers' errors, and of the accuracy; None without any."""
    folder = Path(call.folder)
    if isinstance(options, WeightOptions):
        if call.calibrate is not None:
            raise UsageError(
                "weights alone need no calibration", "Give --test DATA, for the accuracy."
            )
        if call.test is None:
            return None, None
        own = open_dataset(call.test, model, limit=call.limit, folder=folder)
        return own, open_dataset(call.test, model, limit=call.test_limit, folder=folder)
    if call.calibrate is None:
        raise UsageError(
            "activations are quantised by their ranges on data, and none are given",
            "Give --calibrate DATA; or --weights 4, for weights alone.",
        )
    calibration = open_dataset(
        call.calibrate, model, limit=call.limit, split="train", folder=folder
    )
    tested = call.test or without_split(call.calibrate)
    return calibration, open_dataset(tested, model, limit=call.test_limit, folder=folder)


def _graph(
    model: Model,
    samples: CalibrationSamples | None,
    options: QuantizationOptions | WeightOptions,
    progress: Progress | None,
    pool: Pool,
) -> quantizer.QuantizedGraph:
    if isinstance(options, WeightOptions):
        if pool.workers:
            raise UsageError(
                "weights alone need no calibration, which workers share out",
                "Leave out --workers and --scheduler.",
            )
        return quantize_weights(model, options, samples, progress)
    assert samples is not None  # `_data` refuses a request without
    return quantizer.quantize(model, samples, options, progress, pool)


def _scored(
    wide: Interpreter,
    narrow: Interpreter,
    data: Dataset | None,
    metric: Metric | None,
    batch: int,
    progress: Progress | None,
) -> tuple[Accuracy | None, tuple[str, ...]]:
    """Returns the accuracy of both models, and notes; None without data or a metric."""
    if data is None:
        return None, ("nothing was measured: give --test DATA",)
    scores = accuracy(wide, narrow, data, metric, batch, progress)
    if scores is None:
        return None, (f"no metric fits {data.name}: give --metric",)
    done, total = scores.samples, data.samples
    if total is None or done >= total:
        return scores, ()
    return scores, (f"out of time: the accuracy was measured on {done:,} of {total:,} samples",)
