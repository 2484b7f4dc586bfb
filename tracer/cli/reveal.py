"""`tracer reveal`: how a function, or a kernel of onnxruntime, computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cloup

from tracer.api import _calls, replay
from tracer.api import reveal as api
from tracer.cli import _options
from tracer.cli._command import Command
from tracer.cli._messages import progress
from tracer.errors import UsageError
from tracer.support.arguments import TEXT, maybe, option

_KERNEL = "Kernel of onnxruntime"


@dataclass
class _Kernel:
    node: str | None = option(
        "Reveal the kernels that run this node of MODEL.", None, group=_KERNEL, rule=maybe(TEXT),
        metavar="NODE", common=True,
    )  # fmt: skip
    optimization: str = _calls.optimization("all", group=_KERNEL)
    threads: int = _calls.threads(group=_KERNEL)
    batch: int | None = _calls.batch("the model's own", _KERNEL)
    dims: Mapping[str, int] | None = _calls.dims(group=_KERNEL)


@cloup.command(cls=Command)
@cloup.argument("function", metavar="FILE.py:FUNCTION|MODEL")
@_options.declared(api.RevealArguments)
@_options.declared(_Kernel, "kernel")
@_options.PROCESS_LIMITS
@_options.view(".json .csv .md")
def command(
    function: str, options: dict[str, Any], kernel: dict[str, Any], output: _options.Output
) -> None:
    """Tell how a function, or a kernel of onnxruntime, computes.

    FUNCTION takes two vectors of numbers, and a bias if it has one, and returns one number. Probes
    tell the order of its additions, its registers, their overflow and rounding, and the place of
    the bias. The rule is verified on 10,000 random pairs of vectors, and printed as 'tracer
    interpret --accumulator' takes it, if it does. A rule that does not fit is not known.

    With --node, the kernels of onnxruntime that run a node of MODEL are revealed: the rule in
    words, and the order of additions as a tree if the sum is small.

    \b
    Examples:
      tracer reveal kernels.py:dot
      tracer reveal kernels.py:dot --terms 16 --operands uint8/int8
      tracer reveal kernels.py:dot --operands bf16 --json
      tracer reveal model.onnx --node conv2 --optimization none --threads 1
    """
    if kernel["node"] is not None:
        from tracer.records.bits import Replayed

        output.check(Replayed)
        with progress() as report:
            output.emit(replay.replay(function, progress=report, **kernel))
        return
    if function.endswith(".onnx"):
        raise UsageError(f"{function} is a model", "Name one of its nodes: --node NODE.")
    from tracer.records.bits import Revealed

    output.check(Revealed)
    with progress() as report:
        result = api.reveal(function, progress=report, **options)
    output.emit(result)
