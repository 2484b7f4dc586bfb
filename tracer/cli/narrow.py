"""`tracer narrow`: a network whose sums fit narrow accumulators, for any input."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import cloup

from tracer.analyzers.options import DEFAULT_ENERGY_MODEL
from tracer.cli import _code, _data, _limits, _options, _types
from tracer.cli._messages import tell_written
from tracer.cli._types import Amount, Count
from tracer.errors import UsageError

if TYPE_CHECKING:
    from tracer.cli._output import Output
    from tracer.exporters.subject import Subject
    from tracer.narrowing.requirement import Guarantee

_TOOLCHAINS = ("finn.json", "hls4ml.yml", "qonnx.onnx")


@cloup.command()
@_code.SUBJECT
@cloup.option_group(
    "Accumulators",
    cloup.option("--bits", required=True, metavar="WIDTHS",
                 help="Width that all sums must fit: 16. 'conv1=18,*=16' sets it by node, operator "
                      "or module. 12:20 tries each width, and keeps the narrowest within the "
                      "budget."),
    cloup.option("--guarantee", type=click.Choice(["any-input", "this-data"]),
                 default="any-input", show_default=True,
                 help="Inputs whose sums must fit: any, or those of the data and sums a quarter "
                      "larger. Overflows on the test data are reported."),
    cloup.option("--tile", type=Count.of("tile"), metavar="N",
                 help="Terms that are summed in a register of --bits, as hardware of two levels "
                      "does; a register of 32 bits adds the sums.  [default: all terms]"),
    cloup.option("--weight-bits", type=Count(2, 8), metavar="N",
                 help="Bits, 2 to 8, that weights are rounded to before anything else.  [default: "
                      "those of the model]"),
    cloup.option("--budget", type=Amount("points"), default=1.0, show_default=True,
                 help="Accuracy that may be lost, in percentage points or the metric's unit."),
)  # fmt: skip
@cloup.option_group(
    "Input",
    _data.data(required=True),
    cloup.option("--limit", type=Count.of("limit"), default=512, show_default=True,
                 help="Samples of the training split to fit layers on."),
    _data.FOLDER,
    cloup.option("--batch", type=Count.of("batch"), default=32, show_default=True,
                 help="Samples per inference."),
)  # fmt: skip
@cloup.option_group(
    "Accuracy and energy",
    cloup.option("--test", metavar="DATA",
                 help="Data set for measuring accuracy.  [default: the test split of --data]"),
    _data.TEST_LIMIT,
    cloup.option("--metric", metavar="NAME",
                 help="Accuracy metric: top1, top5, mse, perplexity; noise, channel-noise, "
                      "agreement (with wide accumulators); or FILE.py:NAME.  [default: chosen by "
                      "the data]"),
    cloup.option("--energy", type=_types.EnergyModelName(), default=DEFAULT_ENERGY_MODEL,
                 show_default=True, help="Energy model; see docs/energy.md."),
)  # fmt: skip
@cloup.option_group(
    "Toolchains",
    cloup.option("--export", "exports", multiple=True, metavar="FILE",
                 help="Write the widths for a toolchain: FILE.finn.json for FINN, FILE.hls4ml.yml "
                      "for hls4ml; or the model for both, FILE.qonnx.onnx. Repeatable."),
)  # fmt: skip
@_limits.OF_PROCESS
@_options.view(
    ".onnx .json .csv .parquet .md .png .svg", _options.TOP, _options.NOTES,
    more="One is the .onnx of the narrowed model. ",
)  # fmt: skip
def command(
    model: Subject,
    bits: str,
    guarantee: Guarantee,
    tile: int | None,
    weight_bits: int | None,
    budget: float,
    data: str,
    output: Output,
    limit: int,
    data_dir: Path,
    batch: int,
    test: str | None,
    test_limit: int | None,
    metric: str | None,
    energy: str,
    exports: tuple[str, ...],
) -> None:
    """Make a model fit narrow accumulators, for any input.

    Weights are rounded so that no input makes a sum exceed its width, and a node may read its
    activations in fewer bits. The error is made up for in the other weights and in the bias, on the
    training split of DATA. Where that loses more than the budget, layers become several nodes. The
    result is an ordinary ONNX model in qdq form. A float model is quantised first.

    Accuracy is measured on the test split: of the narrowed model, and of the model that was given
    in accumulators of the same width, which saturate.

    \b
    Examples:
      tracer narrow int8.onnx --bits 16 --data digits -o acc16.onnx
      tracer narrow model.onnx --bits 8:20:2 --data digits -o narrow.onnx -o curve.png
      tracer narrow int8.onnx --bits 'conv1=18,*=16' --data digits -o acc.onnx -o nodes.csv
      tracer narrow int8.onnx --bits 16 --data digits -o acc16.onnx --export acc16.finn.json
      tracer narrow int8.onnx --bits 12 --tile 64 --data digits -o tiles.onnx
      tracer narrow int8.onnx --bits 10 --weight-bits 4 --data digits -o acc10.onnx
    """
    from tracer.api.narrow import narrow
    from tracer.cli import _progress
    from tracer.records.transformed import Narrowed, certificate_beside

    _check_exports(exports, tile)
    paths, others = replace(output, files=(*output.files, *exports)).split(Narrowed, "onnx")
    if len(paths) > 1 or None in paths:
        raise UsageError("the narrowed model goes to one .onnx file", "Name it: -o FILE.onnx.")
    others.check(Narrowed)
    target = paths[0] if paths else None
    with _progress.progress() as report:
        result = narrow(
            model,
            bits,
            data,
            output=target,
            force=output.force,
            limit=limit,
            test=test,
            test_limit=test_limit,
            metric=metric,
            budget=budget,
            guarantee=guarantee,
            tile=tile,
            weight_bits=weight_bits,
            batch=batch,
            energy=energy,
            folder=data_dir,
            progress=_progress.estimating(report),
        )
    if target is not None:
        tell_written(target, f" ({target.stat().st_size:,} bytes)")
        if result.certificate is not None:
            tell_written(certificate_beside(target))
    others.emit(result)


def _check_exports(names: tuple[str, ...], tile: int | None) -> None:
    """Raises UsageError for a file of --export that no toolchain reads, before the work."""
    for name in names:
        form = next((e for e in _TOOLCHAINS if name.endswith(e) or name.startswith(f"{e}:")), None)
        if form is None:
            raise UsageError(
                f"--export {name}: the extension names no toolchain",
                f"The extensions are {', '.join(_TOOLCHAINS)}; -o writes other files.",
            )
        if tile is not None and form != "qonnx.onnx":
            raise UsageError(
                f"--export {name}: FINN and hls4ml have one width for a sum, not one for tiles",
                "Narrow without --tile, or write the model in QONNX.",
            )
