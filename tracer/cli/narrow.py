"""`tracer narrow`: a network whose sums fit narrow accumulators, for any input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cloup

from tracer.api import narrow as api
from tracer.cli import _options
from tracer.cli._command import Command
from tracer.cli._messages import estimating, progress, tell_written
from tracer.errors import UsageError
from tracer.support.arguments import TEXT, option

_TOOLCHAINS = ("finn.json", "hls4ml.yml", "qonnx.onnx")


@cloup.command(cls=Command)
@_options.SUBJECT
@_options.declared(api.NarrowArguments)
@_options.single("exports", option(
    "Write the widths for a toolchain: FILE.finn.json for FINN, FILE.hls4ml.yml for hls4ml; or the "
    "model for both, FILE.qonnx.onnx. Repeatable.",
    (), group="Toolchains", rule=TEXT, flag="--export", multiple=True, metavar="FILE", common=True,
))  # fmt: skip
@_options.PROCESS_LIMITS
@_options.view(
    ".onnx .json .csv .parquet .md .png .svg", _options.TOP, _options.NOTES,
    more="One is the narrowed model, by a name that ends in .onnx. ",
)  # fmt: skip
def command(
    model: _options.ModelSource,
    options: dict[str, Any],
    exports: tuple[str, ...],
    output: _options.Output,
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
      tracer narrow int8.onnx --for x86-maddubs --data digits -o avx2.onnx
      tracer narrow int8.onnx --bits 10 --weight-bits 4 --data digits -o acc10.onnx
      tracer narrow int8.onnx --exact --data digits -o exact.onnx
    """
    from tracer.records.transformed import Narrowed, certificate_beside

    for name in exports:  # before the work
        form = next((e for e in _TOOLCHAINS if name.endswith(e) or name.startswith(f"{e}:")), None)
        if form is None:
            raise UsageError(
                f"--export {name}: the extension names no toolchain",
                f"The extensions are {', '.join(_TOOLCHAINS)}; -o writes other files.",
            )
        if options["tile"] is not None and form != "qonnx.onnx":
            raise UsageError(
                f"--export {name}: FINN and hls4ml have one width for a sum, not one for tiles",
                "Narrow without --tile, or write the model in QONNX.",
            )
    told = "the narrowed model goes to one .onnx file"
    files = replace(output, files=(*output.files, *exports))
    target, others = files.split(Narrowed, "onnx", told, "Name it: -o FILE.onnx.")
    others.check(Narrowed)
    with progress() as report:
        result = api.narrow(
            model, output=target, force=output.force, progress=estimating(report), **options
        )
    if target is not None:
        tell_written(target, f" ({target.stat().st_size:,} bytes)")
        if result.certificate is not None:
            tell_written(certificate_beside(target))
    others.emit(result)
