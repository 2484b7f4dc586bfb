"""Tries what could make an ONNX model faster, and keeps what is shown to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.api import _calls
from tracer.support.arguments import TEXT, Rule, amount, maybe, option, several

if TYPE_CHECKING:
    from tracer.exporters.subject import ModelSource
    from tracer.inputs.request import InputPaths, Samples
    from tracer.records.transformed import Tuned
    from tracer.support.tolerance import Tolerance

GOALS = ("latency", "throughput", "memory")
EFFECTS = ("float16", "quantize")
"""Effects on results that may be allowed."""
_START, _SEARCH = "Input and settings to start from", "Search"
_WORDS = maybe(several(TEXT))


@dataclass(frozen=True)
class TuneArguments(_calls.Contained):
    """The arguments of `tune`."""

    model: ModelSource
    _: KW_ONLY
    batch: int | None = _calls.batch("that of the inputs, else 1", _START)
    dims: Mapping[str, int] | None = _calls.dims(group=_START)
    inputs: InputPaths | Samples = _calls.inputs(group=_START)
    seed: int = _calls.seed(group=_START)
    threads: int = _calls.threads(group=_START, common=True)
    optimization: str | None = _calls.optimization(None, group=_START)
    provider: str | None = option(
        "Execution provider of onnxruntime: cpu, cuda, tensorrt, …", None,
        group=_START, metavar="NAME", typed="cpu", shown=True, common=True,
    )  # fmt: skip
    goal: str = option(
        "What to improve: the time of a run, samples per second, or the memory of a session.",
        "latency", group=_SEARCH, reads=("choice", *GOALS),
        rule=Rule(f"one of {', '.join(GOALS)}", lambda value: value in GOALS), common=True,
    )  # fmt: skip
    only: Sequence[str] | None = option(
        "Changes to try, e.g. threads,spinning.  [default: all that may help]", None,
        group=_SEARCH, rule=_WORDS, flag="--try", typed=(), convert=_calls.or_none,
        common=True,
    )  # fmt: skip
    apply: Sequence[str] | None = option(
        "Changes to make without measuring, e.g. folding=shapes.  [default: search]", None,
        group=_SEARCH, rule=_WORDS, metavar="CHANGE=FORM,…", typed=(), convert=_calls.or_none,
        common=True,
    )  # fmt: skip
    allow: Sequence[str] = option(
        "Changes of results to allow: quantize, float16.  [default: none]", (),
        group=_SEARCH, reads=("words", *EFFECTS),
        rule=Rule(
            f"a list of {', '.join(EFFECTS)}",
            lambda value: not isinstance(value, str) and set(value) <= set(EFFECTS),
        ), common=True,
    )  # fmt: skip
    max_seconds: float = option(
        "Longest time for the command.  [default: 120 for the search]", 120.0,
        group=_SEARCH, rule=amount("seconds"), limits_command=True, common=True,
    )  # fmt: skip
    tolerance: Tolerance | None = None
    output: str | Path | None = None
    force: bool = False


@_calls.contained(TuneArguments)
def tune(call: TuneArguments) -> Tuned:
    """Tries changes to `model` and to how onnxruntime runs it, for about `max_seconds`.

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

    >>> import tracer
    >>> tuned = tracer.tune("models/lenet/lenet.onnx", only=["spinning"], max_seconds=2)
    >>> tuned.trials[0].change, tuned.plan.goal
    ('spinning', 'latency')
    """
    from tracer.api import _tune

    return _tune.tune(call)
