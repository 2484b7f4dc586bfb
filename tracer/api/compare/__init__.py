"""Compare models and recordings: alternate runs of the sides that are run now, then compare."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracer.api._contained import contained
from tracer.api.compare.settings import SideSettings
from tracer.errors import ThresholdError, UsageError
from tracer.support.progress import Progress

if TYPE_CHECKING:
    from analyzers.compare import Comparison
    from analyzers.compare.sweep import Sweeps
    from tracer.limits import Limits
    from tracer.support.tolerance import Tolerance

_DEFAULT = SideSettings()


@contained()
def compare(
    sides: Sequence[str],
    *,
    by: str = "layer",
    depth: int | None = None,
    settings: SideSettings = _DEFAULT,
    rounds: int | None = None,
    runs: int | None = None,
    tolerance: Tolerance | None = None,
    progress: Progress | None = None,
    limits: Limits | None = None,
    in_process: bool = False,
) -> Comparison:
    """Compares each of `sides` with the first one, in time and work.

    Sides are named as on the command line (see `tracer.api.compare.naming`). Those that are not
    saved traces are run now, alternating. With a `tolerance` their values are compared as well, on
    the inputs of the first ONNX model (see `tracer.api.compare.inputs`). They run in a child
    process, within `seconds` and `process_bytes` of `limits`, or with `in_process` in this one.
    Raises the errors of `tracer.errors`; InputError if the models have too little in common.
    """
    from tracer.api.compare import _compare

    if len(sides) < 2:
        raise UsageError("one side alone cannot be compared", "Name two or more.")
    return _compare.compare(sides, by, depth, settings, rounds, runs, tolerance, progress)


@contained()
def sweep(
    sides: Sequence[str],
    batches: Sequence[int],
    *,
    settings: SideSettings = _DEFAULT,
    rounds: int | None = None,
    runs: int | None = None,
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

    return _compare.sweep(sides, batches, settings, rounds, runs, progress)


def check(comparison: Comparison, fail_above: float) -> tuple[str, bool]:
    """Returns a line on whether a side is slower than the first by more than a share, and if so.

    A side fails if its whole confidence interval lies above. Raises ThresholdError if there are
    too few runs for an interval: a gate must not pass what it cannot judge.
    """
    first, *rest = comparison.totals.to_dict("records")
    verdicts, failed = [], False
    for row in rest:
        low, high = row["ratio_low"] - 1, row["ratio_high"] - 1
        if math.isnan(low):
            raise ThresholdError(
                f"{row['side']}: too few runs, or too uneven ones, to tell whether it is slower",
                "Give --runs and --rounds, or a quieter machine.",
            )
        slower = low > fail_above
        failed = failed or slower
        verdicts.append(
            f"{'FAIL' if slower else 'pass'}: {row['side']} is {_relation(row['ratio'])} "
            f"{first['side']} (between {low:+.1%} and {high:+.1%}, allowed {fail_above:+.1%})"
        )
    return "; ".join(verdicts), failed


def _relation(ratio: float) -> str:
    """Returns text such as `1.5% slower than`, or `as fast as` where that would be 0.0%."""
    share = f"{abs(ratio - 1):.1%}"
    if share == "0.0%":
        return "as fast as"
    return f"{share} {'slower' if ratio > 1 else 'faster'} than"
