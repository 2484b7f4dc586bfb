"""The columns of nodes with float accumulators, from the statistics of a run."""

from collections.abc import Sequence

import pandas as pd

from tracer.accumulators.statistics.float_partial_sums import FloatPartialSums
from tracer.records.columns import BY_NAME

_PERCENTILES = {"rel_error_p50": 50, "rel_error_p99": 99}
COLUMNS = (
    "accumulator", "operands", "outputs", "overflow_outputs", "terms", "swamped_share",
    *_PERCENTILES,
)  # fmt: skip
"""The columns that this analyzer fills."""


def of_floats(sums: Sequence[FloatPartialSums]) -> pd.DataFrame:
    """Returns the columns of every node with float sums, indexed by node key.

    Counts cover all inferences. Errors are relative to the sum of the same products in float64.
    """
    rows = {each.node: _row(each) for each in sums}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS))
    return table.astype({name: BY_NAME[name].dtype for name in COLUMNS})


def _row(sums: FloatPartialSums) -> dict[str, object]:
    tally = sums.tally
    return {
        "accumulator": tally.accumulator,
        "operands": tally.operands,
        "outputs": tally.outputs,
        "overflow_outputs": tally.overflow_outputs,
        "terms": tally.terms,
        "swamped_share": tally.swamped_share,
        **{name: tally.error_percentile(percent) for name, percent in _PERCENTILES.items()},
    }
