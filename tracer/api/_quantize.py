"""Quantises a float model, and measures what that costs: see `tracer.quantize`."""

from dataclasses import asdict
from pathlib import Path

from tracer import metrics
from tracer.api._calls import file_of
from tracer.api.quantize import QuantizeArguments
from tracer.errors import UsageError
from tracer.exporters import writing
from tracer.exporters.subject import open_subject
from tracer.graph import stored_weights
from tracer.graph.model import Model
from tracer.inputs.datasets.dataset import Dataset
from tracer.inputs.datasets.opening import open_dataset, without_split
from tracer.interpreter.interpreter import Interpreter
from tracer.quantization import quantizer
from tracer.quantization.calibration import CalibrationSamples, choose_batch
from tracer.quantization.layers import accuracy, check_metric
from tracer.quantization.options import QuantizationOptions, WeightOptions
from tracer.records.model_info import ModelInfo
from tracer.records.transformed import Quantized
from tracer.scaling.pool import opened_pool

_MODULES = ("tracer.quantization.calibration",)
"""What workers load as they start."""


def quantize(call: QuantizeArguments) -> Quantized:
    """Scores the quantised and the float model, then writes the quantised one."""
    target = None if call.output is None else Path(call.output)
    if target is not None:
        writing.check_target(target, call.force)
    metric = None if call.metric is None else metrics.find(call.metric)
    loaded, options = open_subject(call.model), call.options or QuantizationOptions()
    calibration, test_data = _data(loaded, call, options)
    if metric is not None and test_data is not None:
        check_metric(loaded, test_data, metric)
    batch, notes = choose_batch(calibration or test_data, call.batch)
    samples = None if calibration is None else CalibrationSamples(calibration, batch)
    with opened_pool(call.cluster, note=call.note, modules=_MODULES) as pool:
        if not isinstance(options, WeightOptions):
            assert samples is not None  # `_data` refuses a request without
            graph = quantizer.quantize(loaded, samples, options, call.report, pool)
        elif pool.workers:
            raise UsageError(
                "weights alone need no calibration, which workers share out",
                "Leave out --workers and --scheduler.",
            )
        else:
            graph = quantizer.quantize_weights(loaded, options, samples, call.report)
    scores, note, hidden = None, "nothing was measured: give --test DATA", tuple[str, ...]()
    if test_data is not None:
        models = Interpreter(loaded), Interpreter(graph.model)
        session = quantizer.open_where_sums_saturate(graph.model, options)
        scores, hidden = accuracy(*models, test_data, metric, batch, call.report, session)
        total, note = test_data.samples, f"no metric fits {test_data.name}: give --metric"
        if scores is not None:
            done = f"{scores.samples:,} of {total or 0:,} samples"
            is_whole = total is None or scores.samples >= total
            note = "" if is_whole else f"out of time: the accuracy was measured on {done}"
    if target is None:
        proto = stored_weights.with_inline_weights(graph.proto, graph.folder)
    else:  # last: what fails before leaves no file
        proto = writing.write_last(graph.proto, target, graph.folder, call.force)
    ranges = None if call.calibrate is None else calibration
    told = [note for data in (calibration, test_data) if data is not None for note in data.notes]
    return Quantized(
        model=ModelInfo.of(loaded),
        settings={
            **asdict(options),
            "calibrate": None if ranges is None else ranges.name,
            "limit": call.limit, "test": None if test_data is None else test_data.name,
        },
        accuracy=scores, layers=graph.layers, outputs=graph.outputs,
        notes=tuple(dict.fromkeys((
            *graph.notes, *told, *notes, *hidden, *([note] if note else []), *writing.notes(proto),
        ))),
        proto=proto,
    )  # fmt: skip


def _data(
    model: Model, call: QuantizeArguments, options: QuantizationOptions | WeightOptions
) -> tuple[Dataset | None, Dataset | None]:
    """Returns the data of the layers' errors, and of the accuracy; None without any."""
    folder = Path(call.data_dir)
    if isinstance(options, WeightOptions):
        if call.calibrate is not None:
            raise UsageError(
                "weights alone need no calibration", "Give --test DATA, for the accuracy."
            )
        if call.test is None:
            return None, None
        test = file_of(call.test)
        own = open_dataset(test, model, limit=call.limit, folder=folder)
        return own, open_dataset(test, model, limit=call.test_limit, folder=folder)
    if call.calibrate is None:
        raise UsageError(
            "activations are quantised by their ranges on data, and none are given",
            "Give --calibrate DATA; or --weights 4, for weights alone.",
        )
    data = file_of(call.calibrate)
    ranges = open_dataset(data, model, limit=call.limit, split="train", folder=folder)
    tested = without_split(data) if call.test is None else file_of(call.test)
    return ranges, open_dataset(tested, model, limit=call.test_limit, folder=folder)
