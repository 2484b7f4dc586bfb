"""`tracer fingerprint`: what this machine computes, for a comparison on another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloup

from tracer.api import replay as api
from tracer.cli import _options
from tracer.cli._command import Command
from tracer.cli._messages import progress
from tracer.cli._types import ModelName


@cloup.command(cls=Command)
@_options.subject("models", nargs=-1, type=ModelName(), metavar="[MODEL …]")
@_options.declared(api.FingerprintArguments)
@_options.PROCESS_LIMITS
@_options.view(".json .csv .md")
def command(models: tuple[Path, ...], options: dict[str, Any], output: _options.Output) -> None:
    """Store how this machine computes, to replay it elsewhere.

    Run it on the other machine, with the models that differ there; without any, with those that
    come with tracer. The file has the graph that onnxruntime runs, the rule of each kernel, and
    the SHA-256 of the outputs on random inputs. It has no weights.

    On this machine, tracer compare MODEL --machine FILE replays it, and names the first node whose
    bits differ, and why.

    \b
    Examples:
      tracer fingerprint -o cpu.json
      tracer fingerprint net.onnx --threads 1 --batch 8 -o cpu.json
    """
    from tracer.records.bits import Fingerprint

    output.check(Fingerprint)
    with progress() as report:
        result = api.fingerprint(models, progress=report, **options)
    output.emit(result)
