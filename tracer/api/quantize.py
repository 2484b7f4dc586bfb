"""Quantises a float model, and measures what that costs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.api._calls import by_rules as contained
from tracer.support.arguments import instance, maybe
from tracer.support.progress import Progress

if TYPE_CHECKING:
    from distributed import Client

    from tracer.exporters.subject import Subject
    from tracer.limits import Limits
    from tracer.quantization.options import QuantizationOptions, WeightOptions
    from tracer.records.transformed import Quantized

_RULES = {
    "options": maybe(
        instance(
            "tracer.quantization.options.QuantizationOptions",
            "tracer.quantization.options.WeightOptions",
        )
    )
}


@contained(_RULES)
def quantize(
    model: Subject,
    calibrate: str | Path | None = None,
    *,
    output: str | Path | None = None,
    force: bool = False,
    options: QuantizationOptions | WeightOptions | None = None,
    limit: int | None = 512,
    test: str | Path | None = None,
    test_limit: int | None = None,
    metric: str | None = None,
    batch: int = 32,
    folder: str | Path = "data",
    progress: Progress | None = None,
    limits: Limits | None = None,
    cluster: Client | str | None = None,
    note: Callable[[str], None] | None = None,
    in_process: bool = False,
) -> Quantized:
    """Quantises `model` with activation ranges of `limit` samples of the data set `calibrate`.

    A data set is a name (`digits`; files of other names are in `folder`), an .npz file or a folder
    with test_data_sets; calibration uses the training split where there is one, unless the name
    says otherwise (`digits:test`). Writes the model to `output`, if there is one; weights of more
    than 1.5 GiB go to a file beside it. Then scores both models by `metric` on the data set `test`
    [default: the test split of `calibrate`]; see `tracer.quantization.accuracy`.

    With WeightOptions the weights alone are quantised, which calibrates nothing: leave `calibrate`
    out. The layers' errors are then those of the first `limit` samples of `test`.

    `cluster` shares the calibration out to other processes, as in `what_if`, where ranges are
    minima and maxima; the model is the same. What it loses is measured in this process.

    All this is done in a child process, within `seconds` and `process_bytes` of `limits`, or with
    `in_process` in this one. Raises the errors of `tracer.errors`; replaces an existing file only
    with `force`.
    """
    from tracer.api import _quantize

    return _quantize.quantize(
        model, calibrate, output, force, options, limit, test, test_limit, metric, batch,
        Path(folder), progress, cluster, note,
    )  # fmt: skip
