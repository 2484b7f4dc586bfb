"""`tracer tune`: what makes a model faster on this machine, measured, and the code for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from tracer.api.tune import EFFECTS, GOALS
from tracer.cli import _code, _limits, _options
from tracer.cli._messages import tell, tell_written
from tracer.cli._types import Amount, PathName, Words
from tracer.errors import UsageError

if TYPE_CHECKING:
    from tracer.cli._output import Output
    from tracer.exporters.subject import Subject


@cloup.command()
@_code.SUBJECT
@_options.bundle(
    "start", dict,
    cloup.option_group(
        "Input and settings to start from",
        _options.batch("Batch size.  [default: that of the inputs, else 1]"),
        _options.DIMS,
        _options.INPUTS,
        _options.SEED,
        _options.THREADS,
        _options.OPTIMIZATION,
        cloup.option("--provider", metavar="NAME", default="cpu", show_default=True,
                     help="Execution provider of onnxruntime: cpu, cuda, tensorrt, …"),
    ),
)  # fmt: skip
@cloup.option_group(
    "Search",
    cloup.option("--goal", type=click.Choice(GOALS), default="latency", show_default=True,
                 help="What to improve: the time of a run, samples per second, or the memory of a "
                      "session."),
    cloup.option("--try", "only", type=Words(), default=(),
                 help="Changes to try, e.g. threads,spinning.  [default: all that may help]"),
    cloup.option("--apply", type=Words(), default=(), metavar="CHANGE=FORM,…",
                 help="Changes to make without measuring, e.g. folding=shapes.  [default: search]"),
    cloup.option("--allow", type=Words(EFFECTS), default=(),
                 help="Changes of results to allow: quantize, float16.  [default: none]"),
    cloup.option("--max-seconds", "seconds", type=Amount("seconds"), default=120.0,
                 callback=_limits.limit_seconds,
                 help="Longest time for the command.  [default: 120 for the search]"),
)  # fmt: skip
@_options.tolerance("0.001", "one rounding of the type")
@cloup.option_group("Limits", _limits.MEMORY)
@cloup.option(
    "--save",
    "plan",
    type=PathName(),
    help="File for the plan that was chosen, for tracer profile --plan.",
)
@_options.view(
    ".onnx .plan.json .json .csv .parquet .md", _options.TOP, _options.NOTES,
    more="One is the .onnx of the changed model. ",
)  # fmt: skip
def command(
    model: Subject,
    start: dict[str, Any],
    goal: str,
    only: Sequence[str],
    apply: Sequence[str],
    allow: Sequence[str],
    seconds: float,
    rtol: float | None,
    atol: float | None,
    plan: Path | None,
    output: Output,
) -> None:
    """Try what could make a model faster here, and keep what does.

    A profile of the model decides what may help: numbers of threads, optimisation levels, layouts,
    fused operators, 8-bit and 4-bit arithmetic, and more (docs/tuning.md). Each change is measured
    in turns with the unchanged model, and so is the best combination. The output ends with the
    lines of Python that open such a session.

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
    from tracer.api.tune import tune
    from tracer.cli import _progress
    from tracer.records.transformed import Tuned
    from tracer.support.tolerance import Tolerance
    from tracer.tuning.candidates import DEFAULT_RTOL

    paths, others = output.split(Tuned, "onnx")
    if len(paths) > 1 or None in paths:
        raise UsageError("the changed model goes to one .onnx file", "Name it: -o FILE.onnx.")
    planned = others.with_file(None if plan is None else f"plan.json:{plan}")
    planned.check(Tuned)
    target = paths[0] if paths else None
    dims, feeds = dict(start.pop("dims")), start.pop("inputs")
    with _progress.progress() as report:
        result = tune(
            model,
            dims=dims,
            feeds=feeds,
            **start,
            goal=goal,
            seconds=seconds,
            allow=allow,
            tolerance=Tolerance(DEFAULT_RTOL if rtol is None else rtol, atol),
            only=only or None,
            apply=apply or None,
            output=target,
            force=output.force,
            progress=report,
        )
    if target is not None:
        if result.proto is None:
            tell(f"{target} is not written: no change of the model was kept")
        else:
            tell_written(target, f" ({target.stat().st_size:,} bytes)")
    planned.emit(result)
