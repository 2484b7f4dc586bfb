"""The overflows of a run at every width, as a report draws them."""

from collections.abc import Sequence

from analyzers.overflow import by_width
from analyzers.views.report.content import Widths
from tracer.accumulators.statistics.partial_sums import PartialSums


def overflow_widths(counted: Sequence[PartialSums], rows: Sequence[int]) -> Widths | None:
    """Returns the overflows of nodes, whose rows have the positions `rows`; None without nodes."""
    if not counted:
        return None
    bits, overflow, persistent = by_width(counted)
    return Widths(
        rows=tuple(rows),
        bits=tuple(bits),
        overflow=tuple(map(tuple, overflow.tolist())),
        persistent=tuple(map(tuple, persistent.tolist())),
        outputs=tuple(int(sums.tally.outputs.sum()) for sums in counted),
    )
