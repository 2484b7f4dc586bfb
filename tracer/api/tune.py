"""Tries what could make an ONNX model faster, and keeps what is shown to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.api._calls import by_rules as contained
from tracer.support.arguments import TEXT, Rule, amount, maybe, several
from tracer.support.progress import Progress

if TYPE_CHECKING:
    from tracer.exporters.subject import Subject
    from tracer.inputs.request import InputPaths, Samples
    from tracer.limits import Limits
    from tracer.records.transformed import Tuned
    from tracer.support.tolerance import Tolerance

GOALS = ("latency", "throughput", "memory")
EFFECTS = ("float16", "quantize")
"""Effects on results that may be allowed."""

_RULES = {
    "goal": Rule(f"one of {', '.join(GOALS)}", lambda value: value in GOALS),
    "seconds": amount("seconds"),
    "allow": Rule(
        f"a list of {', '.join(EFFECTS)}",
        lambda value: not isinstance(value, str) and set(value) <= set(EFFECTS),
    ),
    "only": maybe(several(TEXT)),
    "apply": maybe(several(TEXT)),
}


@contained(_RULES)
def tune(
    model: Subject,
    *,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    feeds: InputPaths | Samples = None,
    seed: int = 0,
    threads: int = 0,
    optimization: str | None = None,
    provider: str | None = None,
    goal: str = "latency",
    seconds: float = 120.0,
    allow: Sequence[str] = (),
    tolerance: Tolerance | None = None,
    only: Sequence[str] | None = None,
    apply: Sequence[str] | None = None,
    output: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
    limits: Limits | None = None,
    in_process: bool = False,
) -> Tuned:
    """Tries changes to `model` and to how onnxruntime runs it, for about `seconds`.

    `batch` to `provider` are the inputs and settings to start from, as in `tracer.profile`. A
    profile decides which changes may help; `only` names changes to try instead of all. Each is
    measured in turns with the unchanged model, and the best are combined (see
    `tracer.tuning.search`). The `goal` is the time of a run, the time of a sample in batches of any
    size, or the memory of a session.

    A change whose outputs differ by more than `tolerance` [default: 0.001 of the largest value] is
    not kept, unless its effect is in `allow`: `quantize`, `float16`. The changed model goes
    to the file `output`, if there is one and the model changes; `force` replaces a file. With
    `apply`, as in `["folding=shapes"]`, these changes are made and nothing is measured.

    All this is done in a child process, within `limits`, or with `in_process` in this one. Raises
    the errors of `tracer.errors`.
    """
    from tracer.api import _tune
    from tracer.support.progress import silent
    from tracer.support.tolerance import Tolerance
    from tracer.tuning.candidates import DEFAULT_RTOL, Request

    settings = {"threads": threads or None, "optimization": optimization, "provider": provider}
    start = _tune.Start(model, batch, dims, feeds, seed, settings)
    within = tolerance or Tolerance(relative=DEFAULT_RTOL)
    request = Request(goal, seconds, frozenset(allow), within, tuple(only or ()))
    return _tune.tune(start, request, apply or (), output, force, progress or silent)
