"""Compare models and recordings: alternate runs of the sides that are run now, then compare."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.api._calls import by_rules as contained
from tracer.api.compare.settings import SideSettings
from tracer.errors import UsageError
from tracer.support.arguments import RULES, amount, maybe, several
from tracer.support.progress import Progress

if TYPE_CHECKING:
    from tracer.analyzers.compare import Comparison
    from tracer.analyzers.compare.sweep import Sweeps
    from tracer.limits import Limits
    from tracer.support.tolerance import Tolerance

_DEFAULT = SideSettings()
_OWN = {"precision": amount()}
"""Unlike a profile, a comparison has a precision in any case."""
_RULES = {"threads": maybe(several(RULES["threads"])), **_OWN}


@contained(_RULES)
def compare(
    sides: Sequence[str],
    *,
    by: str = "layer",
    depth: int | None = None,
    settings: SideSettings = _DEFAULT,
    tolerance: Tolerance | None = None,
    fail_above: float | None = None,
    fail_unless_within: float | None = None,
    threads: Sequence[int] | None = None,
    test: str | Path | None = None,
    test_limit: int | None = None,
    metrics: Sequence[str] | None = None,
    folder: str | Path = "data",
    progress: Progress | None = None,
    limits: Limits | None = None,
    in_process: bool = False,
) -> Comparison:
    """Compares each of `sides` with the first one, in time and work.

    Sides are named as on the command line (see `tracer.api.compare.naming`). Those that are not
    saved traces are run now, alternating. With a `tolerance` their values are compared as well, on
    the inputs of the first ONNX model (see `tracer.api.compare.inputs`). With `threads`, each side
    is compared at each of these numbers of threads, instead of that of the settings.

    With `test`, the ONNX models are also scored on the first `test_limit` samples of this data set,
    by `metrics` (see `tracer.metrics`) [default: one that fits the labels, and agreement with the
    first side]. Files of named sets are in `folder`.

    The comparison has `verdicts` where shares of the time are given: a side fails if it is shown
    to be slower by more than `fail_above`, and if it is not shown to be as fast, within
    `fail_unless_within` either way. `passed` sums them up.

    Sides run in a child process, within `seconds` and `process_bytes` of `limits`, or with
    `in_process` in this one. Raises the errors of `tracer.errors`; InputError if the models have
    too little in common.
    """
    from tracer.api.compare import _compare
    from tracer.inputs.request import Samples

    if test is None and (test_limit or metrics):
        raise UsageError("a limit or a metric without data", "Name a data set: --data text:FILE.")
    if len(sides) * max(len(set(threads or ())), 1) < 2:
        raise UsageError("one side alone cannot be compared", "Name two or more.")
    samples = None if test is None else Samples(str(test), test_limit, Path(folder))
    comparison = _compare.compare(
        sides, by, depth, settings, tolerance, threads, samples, metrics or (), progress
    )
    return _compare.gated(comparison, fail_above, fail_unless_within)


@contained(_OWN)
def sweep(
    sides: Sequence[str],
    batches: Sequence[int],
    *,
    settings: SideSettings = _DEFAULT,
    progress: Progress | None = None,
    limits: Limits | None = None,
    in_process: bool = False,
) -> Sweeps:
    """Compares batch sizes of each of `sides`; a saved trace must have a run of each.

    Runs alternate between batch sizes and models, in a child process, within `seconds` and
    `process_bytes` of `limits`, or with `in_process` in this one. Raises UsageError for a side
    without these sizes, and the other errors of `tracer.errors`.
    """
    from tracer.api.compare import _compare

    return _compare.sweep(sides, batches, settings, progress)
