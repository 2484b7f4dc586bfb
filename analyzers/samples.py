"""The samples of a run as a table: what overflowed in each."""

import pandas as pd

from tracer.accumulators.statistics.sample_sums import QUANTITIES
from tracer.errors import UsageError
from tracer.records.trace import Run

_SEEN = ("acc_min", "acc_max", "final_min", "final_max", "bits_observed", "max_abs_error")
"""Quantities that a sample without sums does not have."""


def by_sample(run: Run | None) -> pd.DataFrame:
    """Returns a row for each sample in the order of the data, numbered from 0.

    Columns: `sample`, `worst_node` (missing where nothing overflows), and the overflow columns of
    the node table over all nodes (Int64). Raises UsageError for a run without these statistics.
    """
    if run is None or run.sums_by_sample is None:
        raise UsageError(
            "there are no statistics by sample",
            "Measure them with: tracer interpret MODEL.onnx --accumulator 16 --by sample.",
        )
    samples = run.sums_by_sample
    table = pd.DataFrame(samples.arrays(), columns=list(QUANTITIES)).astype("Int64")
    table.loc[table["outputs"] == 0, list(_SEEN)] = pd.NA
    names = dict(enumerate(samples.nodes))
    table["worst_node"] = table["worst_node"].map(names.get).astype("string")
    table["sample"] = pd.Series(range(len(table)), dtype="Int64")
    return table[["sample", "worst_node", *QUANTITIES[:-1]]]
