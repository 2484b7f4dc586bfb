"""Columns of the node table for values: statistics, and differences from a reference."""

from collections.abc import Sequence

import pandas as pd

from tracer.records.trace import NodeValues

_STATISTICS = {
    "value_min": "minimum", "value_max": "maximum", "value_mean": "mean",
    "nan_values": "nan", "inf_values": "inf",
}  # fmt: skip
DIFFERENCES = {
    "difference_max": "max_share", "difference_rms": "rms_share", "difference_cosine": "cosine",
    "difference_max_abs": "max_abs",
}  # fmt: skip
"""Columns of the node table, and the fields of `Difference` that they hold."""


def value_columns(values: Sequence[NodeValues]) -> pd.DataFrame:
    """Returns the value columns (float64), indexed by node key; missing where not measured."""
    rows = {
        node.node: {
            **{name: getattr(node.statistics, field, None) for name, field in _STATISTICS.items()},
            **{name: getattr(node.difference, field, None) for name, field in DIFFERENCES.items()},
            "difference_own": getattr(node.own, "max_share", None),
        }
        for node in values
    }
    columns = [*_STATISTICS, "difference_own", *DIFFERENCES]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).astype("float64")


def origins(values: Sequence[NodeValues]) -> Sequence[NodeValues]:
    """Returns the nodes that differ beyond the tolerance on the reference's own values.

    They are in the order in which they ran. The other nodes that differ pass on the rounding of
    the nodes before them.
    """
    return [node for node in values if node.own is not None and node.own.fault]
