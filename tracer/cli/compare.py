"""`tracer compare`: differences between models or saved runs in time, work and values."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any

import cloup

from tracer.analyzers.options import refuse_depth
from tracer.api import compare as api
from tracer.cli import _options
from tracer.cli._command import Command
from tracer.cli._messages import progress, reading, tell
from tracer.errors import UsageError

if TYPE_CHECKING:
    from tracer.analyzers.compare import Comparison

_OF_SIDES = {  # options of rows, of values within a tolerance, and of accuracy
    "test", "test_limit", "data_dir", "metrics", "by", "depth", "fail_above", "fail_unless_within",
    "rtol", "atol",
}  # fmt: skip
_NOT_OF_BITS = _OF_SIDES | {"precision", "sessions", "numbers"}


@cloup.command(cls=Command)
@_options.subject("sides", nargs=-1, required=True, metavar="A B [C …]")
@_options.declared(api.CompareArguments)
@_options.declared(api.BitOptions, "bits", api.BitOptions)
@_options.PROCESS_LIMITS
@_options.TOLERANCE
@_options.view(".html .json .csv .md .junit.xml .png .svg", _options.TOP, _options.NOTES)
def command(
    sides: tuple[str, ...], options: dict[str, Any], bits: api.BitOptions,
    tolerance: _options.Tolerance, output: _options.Output,
) -> int:  # fmt: skip
    """Compare models or saved runs in time, work and values.

    Every side is compared with A. A side is one of: a .trace that `tracer profile` saved;
    FILE.onnx, run by onnxruntime (FILE.onnx@ort:none sets the optimisation level,
    FILE.onnx@ort:openvino the execution provider, FILE.onnx@ort==1.20.1 the release);
    FILE.onnx@openvino or @interpreter; FILE.py:NAME, any module in its framework (@torch:cuda on a
    card, @torch==2.12.1 in that release), which runs on the inputs of the first ONNX model;
    FILE.py:NAME@ort, its export. Sides that run take turns. The exit code is 1 if values differ.

    With --data, ONNX models are also scored on a data set.

    --bits names the first node whose bits differ, and proves the cause: order of additions, FMA,
    block size, fusion, threads and others. --machine compares with another machine, by the file
    that tracer fingerprint wrote there. The exit code is 0, unless --fail-unless-equal is given.

    \b
    Examples:
      tracer compare old.onnx new.onnx --fail-above 5% -o speed.junit.xml
      tracer compare net.onnx net.onnx@ort:openvino --provider-option device_type=CPU
      tracer compare net.onnx net.py:Net@torch --weights net.safetensors
      tracer compare torch.onnx chainer.onnx --by module -o layers.png
      tracer compare net.onnx --batch 1,16,64 -o batches.svg
      tracer compare net.onnx --threads 1,2,4 --by model
      tracer compare llama.onnx llama.int4.onnx --data text:book.txt
      tracer compare net.onnx@ort:none net.onnx --bits
      tracer compare net.onnx --machine cpu.json
    """
    from tracer.analyzers.compare import Comparison
    from tracer.analyzers.compare.sweep import Sweeps

    refuse_depth(options["by"], options["depth"])
    settings = options["settings"]
    batches, threads = (_several(settings, name) for name in ("batch", "threads"))
    if bits != api.BitOptions():
        _refuse_beside_bits(bits)
        return _compare_bits(sides, bits, api.SideSettings(**settings), batches, threads, output)
    if batches:
        _refuse_beside_batches(threads)
    compares_values = options["tolerance"] and options["by"] != "model"
    _refuse_unread(compares_values or bool(batches), options["test"] is not None)
    options["tolerance"] = tolerance if compares_values else None
    output.check(Sweeps if batches else Comparison)
    options |= {"settings": api.SideSettings(**settings), "threads": threads or None}
    # What the code of the user prints is no data of ours.
    with _reading(sides), progress() as report, redirect_stdout(sys.stderr):
        result: Sweeps | Comparison = (
            api.sweep(sides, batches, settings=options["settings"], progress=report)
            if batches else api.compare(sides, progress=report, **options)
        )  # fmt: skip
    if result.is_incomplete:  # the signal that broke it off is told after this
        output.keep(result, "json", "md")
        output.show(result)
        return 0
    with _reading(sides):
        output.emit(result)
    return 0 if isinstance(result, Sweeps) else _verdict(result)


def _refuse_unread(has_values: bool, has_data: bool) -> None:
    """Raises UsageError for options of values that are not compared, and of no data set."""
    if not has_values:
        why = "is for values, which this comparison leaves out"
        hint = "Leave out {flag}, or what leaves them out: --no-numbers, --by model."
        _options.refuse_typed({"rtol", "atol"}, why, hint)
    if not has_data:
        _options.refuse_typed({"data_dir"}, "is for a data set", "Name it: --data NAME.")


def _verdict(result: Comparison) -> int:
    """Tells which sides passed. Returns the exit code."""
    for verdict in result.verdicts:
        tell(verdict.line)
    return int(not result.passed)


def _several(settings: dict[str, Any], name: str) -> tuple[int, ...]:
    """Takes several values of a setting out of the settings; a single one stays."""
    values: tuple[int, ...] = tuple(settings.pop(name) or ())
    if len(values) == 1:
        settings[name] = values[0]
        return ()
    return values


def _compare_bits(
    sides: tuple[str, ...], bits: api.BitOptions, settings: api.SideSettings,
    batches: Sequence[int], threads: Sequence[int], output: _options.Output,
) -> int:  # fmt: skip
    """Shows the first difference of each side, and its cause. Returns the exit code."""
    from tracer.records.bits import BitComparison

    output.check(BitComparison)
    with progress() as report:
        result = api.compare_bits(sides, settings=settings, machine=bits.machine, progress=report,
                                  threads=threads or None, batches=batches or None)  # fmt: skip
    output.emit(result)
    return int(bits.fail_unless_equal and not result.is_equal)


def _refuse_beside_bits(bits: api.BitOptions) -> None:
    """Raises UsageError for what a comparison of bits would leave aside."""
    if not (bits.bits or bits.machine):
        raise UsageError("--fail-unless-equal is for bits", "Give --bits as well.")
    _options.refuse_typed(_NOT_OF_BITS, "is not for bits", "Leave it out, or --bits.")


def _reading(sides: Sequence[str]) -> AbstractContextManager[None]:
    """Refuses traces that hold what cannot be compared, where there is nothing but traces."""
    return reading(sides) if all(side.endswith(".trace") for side in sides) else nullcontext()


def _refuse_beside_batches(threads: Sequence[int]) -> None:
    """Raises UsageError for what cannot be told of a comparison of batch sizes."""
    if threads:
        raise UsageError(
            "several batch sizes and several numbers of threads together",
            "Give one --batch, or one --threads.",
        )
    why = "is for sides, and several batch sizes are compared with each other"
    _options.refuse_typed(_OF_SIDES, why, "Give one --batch.")
