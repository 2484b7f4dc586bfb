"""`tracer profile`: run a model under onnxruntime or its framework and time every node."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from tracer.api import profile as api
from tracer.cli import _accumulating, _options
from tracer.cli._command import Command, ask_synonyms
from tracer.cli._messages import progress, tell
from tracer.errors import UsageError
from tracer.support.arguments import FLAG, option

if TYPE_CHECKING:
    from tracer.records.environment import Peaks

_COMMON = {*api.COMMON, *api.PHASES}
_ONNX_ONLY = {
    *_options.names(api.ProfileArguments), *_accumulating.NAMES,
}.difference(_COMMON)  # fmt: skip
_FRAMEWORK_ONLY = {*_options.names(api.FrameworkOptions)}
"""Parameters that apply to an .onnx file, or to FILE.py:NAME, only."""


def _check(model: Path, options: dict[str, Any]) -> None:
    """Leaves out what is onnxruntime's where another executor is named, unless it was typed.

    Raises UsageError for options of an .onnx file where code is named, and vice versa.
    """
    from tracer.exporters.subject import runs_in_framework

    context = click.get_current_context()
    typed = {
        name
        for name in context.params
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    }
    if options["executor"] != api.ProfileArguments.executor:
        options.update(dict.fromkeys({"optimization", "provider"} - typed))
    is_code = runs_in_framework(str(model))
    wrong = typed.intersection(_ONNX_ONLY if is_code else _FRAMEWORK_ONLY)
    if wrong:
        params = context.command.params
        typed_names = sorted(param.opts[0] for param in params if param.name in wrong)
        others = _FRAMEWORK_ONLY if is_code else _ONNX_ONLY
        fitting = {param.opts[0] for param in params if param.name in others}
        near = "".join(ask_synonyms(each, fitting) for each in typed_names)
        only = "an .onnx file" if is_code else "FILE.py:NAME"
        hint = f"{near}For {only} alone."
        raise UsageError(f"{', '.join(typed_names)}: not for {model}", hint)


def _torch_has_card() -> bool:
    """Returns whether torch is there and can measure the peaks of a card."""
    if find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def _peaks_of_card(threads: int) -> Peaks:
    """Returns the peaks of the card, after the runs: importing torch takes seconds."""
    from tracer.host import card

    return card.peaks(threads, announce=tell)


@cloup.command(cls=Command)
@_options.MODEL
@_options.declared(api.ProfileArguments)
@_options.single("roofline", option(
    "Compare with the peak rates of this machine, measured once (3 s).", True,
    group="Roofline", rule=FLAG, flag="--roofline/--no-roofline",
))  # fmt: skip
@_options.PROCESS_LIMITS
@_accumulating.options
@_options.declared(api.FrameworkOptions, "framework", api.FrameworkOptions)
@_options.TRACE_VIEW
def command(
    model: Path,
    options: dict[str, Any],
    roofline: bool,
    framework: api.FrameworkOptions,
    accumulating: _accumulating.AccumulatorOptions | None,
    output: _options.Output,
) -> None:
    """Measure where the time of a model goes, node by node.

    MODEL is an .onnx or .onnx.gz file, a folder with one, - for standard input, FILE.pt2, or
    FILE.py:NAME. NAME is a class, a factory or an instance of PyTorch or Chainer, which runs in its
    framework; FILE.py is executed. Node times are corrected for
    profiler overhead. The wall time comes from runs without a profiler.

    --accumulator also counts which sums of an .onnx file overflow in narrow accumulators, over all
    inputs or all samples of --data. The first of them, --batch at a time, are timed. A row then has
    time, work, overflow and energy of a node.

    \b
    Examples:
      tracer profile model.onnx
      tracer profile model.onnx --batch 1,16,64 --by op
      tracer profile model.onnx --runs 10000 -o run.trace -o layers.png
      tracer profile llama.onnx --prefill 128 --decode 32 --past 0,512,2048
      tracer profile int8.onnx --accumulator 18 --data digits -o int8.csv
      tracer profile model.onnx --plan plan.json
      tracer profile net.py:Net --input-shape 1,3,32,32 --backward --by module
    """
    from tracer.records.environment import is_cpu, short_name
    from tracer.records.trace import Trace

    output.check(Trace)
    _check(model, options)
    _options.refuse_unread()
    provider = options["provider"] or "cpu"
    on_card = "cuda" in (framework.device, short_name(provider))
    if roofline and on_card and _torch_has_card():
        options["peaks"] = _peaks_of_card
    elif roofline and is_cpu(provider):  # peaks of the processor
        from tracer import host

        options["peaks"] = partial(host.peaks, announce=tell)  # tells of a first measurement
    witness = None
    if accumulating is not None:
        witness = _accumulating.Witness(accumulating)
        options |= {"accumulator": accumulating.policy, "receivers": [witness]}
    # What the code of the user prints is no data of ours.
    with progress() as report, redirect_stdout(sys.stderr):
        keep = None if witness else lambda kept: output.keep(kept, "trace")
        trace = api.profile_target(model, options, framework, report, keep)
    if trace.is_incomplete:  # the signal that broke it off is told after this
        output.keep(trace, "trace")
        output.show(trace)
        return
    output.emit(trace)
    if witness is not None:
        witness.finish(trace)
