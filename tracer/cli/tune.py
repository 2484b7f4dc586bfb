"""`tracer tune`: what makes a model faster on this machine, measured, and the code for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import cloup

from tracer.api import tune as api
from tracer.cli import _options
from tracer.cli._command import Command
from tracer.cli._messages import progress, tell, tell_written
from tracer.support.arguments import option


@cloup.command(cls=Command)
@_options.SUBJECT
@_options.declared(api.TuneArguments)
@_options.tolerance("0.001", "one rounding of the type", 1e-3)
@cloup.option_group("Limits", _options.MEMORY)
@_options.single("plan", option(
    "File for the plan that was chosen, for tracer profile --plan.", None,
    flag="--save", common=True,
))  # fmt: skip
@_options.view(
    ".onnx .plan.json .json .csv .parquet .md", _options.TOP, _options.NOTES,
    more="One is the changed model, by a name that ends in .onnx. ",
)  # fmt: skip
def command(
    model: _options.ModelSource,
    options: dict[str, Any],
    tolerance: _options.Tolerance,
    plan: Path | None,
    output: _options.Output,
) -> None:
    """Try what could make a model faster here, and keep what does.

    A profile of the model decides what may help: numbers of threads, optimisation levels, layouts,
    fused operators, 8-bit and 4-bit arithmetic, and more ('tracer docs tuning'). Each change is
    measured in turns with the unchanged model, and so is the best combination. The output ends with
    the lines of Python that open such a session.

    Results may differ by roundings alone, within --rtol, unless --allow names more.

    \b
    Examples:
      tracer tune model.onnx
      tracer tune model.onnx --try threads,spinning --max-seconds 30
      tracer tune model.onnx --inputs x.npz --allow quantize --save plan.json -o tuned.onnx
      tracer tune model.onnx --goal throughput
      tracer tune model.onnx --apply folding=shapes --dim batch=1 -o tuned.onnx
      tracer profile model.onnx --plan plan.json
    """
    from tracer.records.transformed import Tuned

    told = "the changed model goes to one .onnx file"
    target, others = output.split(Tuned, "onnx", told, "Name it: -o FILE.onnx.")
    if plan is not None:
        others = replace(others, files=(*others.files, f"plan.json:{plan}"))
    others.check(Tuned)
    with progress() as report:
        result = api.tune(
            model,
            tolerance=tolerance,
            output=target,
            force=output.force,
            progress=report,
            **options,
        )
    if target is not None:
        if result.proto is None:
            tell(f"{target} is not written: no change of the model was kept")
        else:
            tell_written(target, f" ({target.stat().st_size:,} bytes)")
    others.emit(result)
