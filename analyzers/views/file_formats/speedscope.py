"""`.speedscope.json`: stacks of modules with their times, for speedscope (https://speedscope.app).

The format is that of speedscope's file-format-schema.json: a "sampled" profile for each run.
"""

from typing import Any

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.exchange import Frame, Stacks
from tracer.analyzers.views.file_formats import Format
from tracer.analyzers.views.file_formats.json import compact
from tracer.errors import UsageError
from tracer.text import escaped, printable

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def render(stacks: Stacks, options: ViewOptions) -> bytes:
    """One JSON object in ASCII; weights are µs. Raises UsageError where no stack has a time."""
    numbers: dict[Frame, int] = {}
    profiles = []
    for profile in stacks.profiles:
        timed = [sample for sample in profile.samples if sample.time_us > 0]
        if not timed:
            continue
        weights = [sample.time_us for sample in timed]
        shown = {
            "type": "sampled",
            "name": printable(profile.name),
            "unit": "microseconds",
            "startValue": 0,
            "endValue": sum(weights),
            "samples": [[numbers.setdefault(f, len(numbers)) for f in s.stack] for s in timed],
            "weights": weights,
        }
        profiles.append(shown)
    if not profiles:
        raise UsageError(
            "a flame graph needs times, and this trace has none",
            "tracer profile MODEL.onnx -o run.trace makes one, unless every node is computed "
            "when the runtime loads the model.",
        )
    frames: list[dict[str, Any]] = []
    for frame in numbers:
        file = {"file": escaped(frame.file)} if frame.file else {}
        line = {"line": frame.line} if frame.line else {}
        frames.append({"name": printable(frame.name), **file, **line})
    return compact(
        {
            "$schema": _SCHEMA,
            "exporter": "tracer",
            "name": printable(stacks.title),
            "activeProfileIndex": 0,
            "shared": {"frames": frames},
            "profiles": profiles,
        }
    )


FORMATS = (Format("speedscope.json", "stacks", render),)
