"""Quantises a float model, and measures what that costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.api import _calls
from tracer.errors import UsageError
from tracer.quantization.options import BITS, BLOCKS, LEVELS, QuantizationOptions, WeightOptions
from tracer.support.arguments import TEXT, instance, maybe, option, part

if TYPE_CHECKING:
    from distributed import Client

    from tracer.exporters.subject import ModelSource
    from tracer.records.transformed import Quantized

_CALIBRATION, _WEIGHTS, _ACCURACY = "Calibration", "Weights alone", "Accuracy"


def _choices(values: tuple[int, ...]) -> tuple[str, ...]:
    return ("choice", *map(str, values))


@dataclass(frozen=True)
class _EitherOptions(QuantizationOptions):
    """The options of a command: those of weights alone, and of everything."""

    weight_bits: str | None = option(
        "Quantise the weights of MatMul alone, to this many bits.", None,
        group=_WEIGHTS, rule=TEXT, flag="--weight-bits --weights", reads=_choices(BITS),
        common=True,
    )  # fmt: skip
    block: str = option(
        "Weights that share a scale.", "32", group=_WEIGHTS, rule=TEXT, reads=_choices(BLOCKS)
    )
    accuracy_level: str = option(
        "Least precision of the sums: 1 float32, 2 float16, 3 bfloat16, 4 int8; 0: onnxruntime "
        "chooses.",
        "0", group=_WEIGHTS, rule=TEXT, reads=_choices(LEVELS),
    )  # fmt: skip


def _chosen_options(
    weight_bits: str | None, block: str, accuracy_level: str, **others: Any
) -> QuantizationOptions | WeightOptions:
    """Returns the options of one kind. Raises UsageError for options of both."""
    options = QuantizationOptions(**others)
    if weight_bits is None:
        if (block, accuracy_level) != ("32", "0"):
            raise UsageError("--block and --accuracy-level need --weights", "Give --weights 4.")
        return options
    own = ("symmetric", "nodes", "exclude")
    shared = {name: getattr(options, name) for name in own}
    if options != QuantizationOptions(**shared):
        raise UsageError(
            "--weights quantises weights alone: types, format, ranges and method of activations do "
            "not apply",
            "Leave them out; --symmetric, --nodes and --exclude apply.",
        )
    return WeightOptions(int(weight_bits), int(block), accuracy_level=int(accuracy_level), **shared)


@dataclass(frozen=True)
class QuantizeArguments(_calls.Contained):
    """The arguments of `quantize`."""

    GROUPS = (_CALIBRATION, _WEIGHTS)

    model: ModelSource
    calibrate: _calls.Data | None = option(
        f"Data set to calibrate with: {_calls.SOURCES}. Weights alone need none.", None,
        group=_CALIBRATION, flag="--data --calibrate", metavar="DATA", reads=(), common=True,
    )  # fmt: skip
    _: KW_ONLY
    limit: int | None = option(
        "Samples to calibrate with, and to measure the layers on.", 512, group=_CALIBRATION
    )
    data_dir: str | Path = _calls.data_dir(group=_CALIBRATION)
    batch: int | None = option(
        "Samples per inference.  [default: 32, or as many as have 2 GiB of values]", None,
        group=_CALIBRATION,
    )  # fmt: skip
    options: QuantizationOptions | WeightOptions | None = part(
        _EitherOptions, None, build=_chosen_options,
        rule=maybe(
            instance(
                "tracer.quantization.options.QuantizationOptions",
                "tracer.quantization.options.WeightOptions",
            )
        ),
    )  # fmt: skip
    test: _calls.Data | None = _calls.test("the calibration data", _ACCURACY)
    test_limit: int | None = _calls.test_limit(group=_ACCURACY)
    metric: str | None = _calls.metric(_ACCURACY, "with the float model")
    output: str | Path | None = None
    force: bool = False
    cluster: Client | str | None = None
    note: Callable[[str], None] | None = None


@_calls.contained(QuantizeArguments)
def quantize(call: QuantizeArguments) -> Quantized:
    """Quantises `model` with activation ranges of `limit` samples of the data set `calibrate`.

    A data set is a name (`digits`; files of others are in `data_dir`), an .npz file or a folder
    with test_data_sets; calibration uses the training split where there is one, unless the name
    says otherwise (`digits:test`). Writes the model to `output`, if there is one; weights of more
    than 1.5 GiB go to a file beside it. Then scores both models by `metric` on the data set `test`
    [default: the test split of `calibrate`]; see `tracer.quantization.layers`.

    With WeightOptions the weights alone are quantised, which calibrates nothing: leave `calibrate`
    out. The layers' errors are then those of the first `limit` samples of `test`.

    `cluster` shares the calibration out to other processes, as in `what_if`, where ranges are
    minima and maxima; the model is the same. What it loses is measured in this process.

    All this is done in a child process, within `seconds` and `process_bytes` of `limits`, or with
    `in_process` in this one. Raises the errors of `tracer.errors`; replaces an existing file only
    with `force`.

    >>> import tracer
    >>> model = "models/lenet/lenet.onnx"
    >>> int8 = tracer.quantize(model, "digits", limit=64, test_limit=64, output="int8.onnx")
    >>> int8.accuracy.metric, int8.accuracy.samples
    ('top1', 64)
    """
    from tracer.api import _quantize

    return _quantize.quantize(call)
