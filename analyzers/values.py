"""Columns of the node table for values: statistics, and differences from a reference."""

from collections.abc import Sequence

import pandas as pd

from tracer.records.trace import NodeValues

_STATISTICS = {
    "value_min": "minimum", "value_max": "maximum", "value_mean": "mean",
    "nan_values": "nan", "inf_values": "inf",
}  # fmt: skip
_DIFFERENCES = {
    "difference_max_abs": "max_abs", "difference_max_rel": "max_rel",
    "difference_max_ulp": "max_ulp",
}  # fmt: skip


def value_columns(values: Sequence[NodeValues]) -> pd.DataFrame:
    """Returns the value columns (float64), indexed by node key; missing where not measured."""
    rows = {
        node.node: {
            **{name: getattr(node.statistics, field, None) for name, field in _STATISTICS.items()},
            **{name: getattr(node.difference, field, None) for name, field in _DIFFERENCES.items()},
        }
        for node in values
    }
    columns = [*_STATISTICS, *_DIFFERENCES]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).astype("float64")


def first_out_of_tolerance(values: Sequence[NodeValues]) -> NodeValues | None:
    """Returns the first node, in the order the nodes ran, that differs beyond the tolerance."""
    return next((node for node in values if node.difference and node.difference.fault), None)
