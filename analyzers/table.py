"""The node table: columns of values and bit operations, and the columns of all analyzers joined."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from tracer.graph.model import Model, Node
from tracer.graph.shape_inference import TensorTypes
from tracer.records.columns import BY_NAME, COLUMNS, marked
from tracer.records.trace import NodeValues, Run, Trace, typed_table

OF_RUN = tuple(name for name in COLUMNS if BY_NAME[name].scope == "run")
"""Columns that depend on the executor; a merged trace has them once for each."""


def node_table(
    model: Model, types: TensorTypes, parts: Sequence[pd.DataFrame], run: Run | None = None
) -> pd.DataFrame:
    """A row for each node of `model` in its order, then the runtime's own kernels.

    `parts` are the columns of the analyzers, indexed by node key. Columns nobody filled are
    missing values.
    """
    nodes = model.nodes
    columns = {
        "index": [node.index for node in nodes],
        "op_type": [node.op_type for node in nodes],
        "domain": [node.domain for node in nodes],
        "module": [node.module for node in nodes],
        "source": [node.source for node in nodes],
        "input_shapes": [_shapes(node.inputs, node, types) for node in nodes],
        "output_shapes": [_shapes(node.outputs, node, types) for node in nodes],
    }
    keys = [node.key for node in nodes]
    identity = pd.DataFrame(columns, index=pd.Index(keys, dtype="object"))
    known = set(identity.index)
    extra = list(dict.fromkeys(key for part in parts for key in part.index if key not in known))
    rows = pd.Index([*identity.index, *extra], dtype="object")
    table = pd.concat([part.reindex(rows) for part in (identity, *parts)], axis=1)
    table["node"] = table.index
    if run is not None:
        table = table.assign(**run.key)
        by_name = {kernel.name: kernel for kernel in run.kernels}
        for key in extra:  # kernels without nodes are described by the profile
            kernel = by_name.get(str(table.at[key, "kernels"]))
            if kernel is not None:
                table.at[key, "op_type"] = kernel.op_type
                table.at[key, "domain"] = kernel.domain
                table.at[key, "input_shapes"] = ", ".join(map(str, kernel.input_types))
                table.at[key, "output_shapes"] = ", ".join(map(str, kernel.output_types))
                table.at[key, "arena_bytes"] = kernel.arena_bytes
    return typed_table(table)


def own_rows(trace: Trace, run: Run) -> pd.DataFrame:
    """Returns the rows of one run of a trace; none for a run that is joined to another's rows."""
    nodes = trace.nodes
    own = pd.Series(True, nodes.index)
    for name, value in run.key.items():
        own &= nodes[name].isna() if value is None else (nodes[name] == value).fillna(False)
    return nodes if own.all() else nodes[own.astype(bool)]


def rows_of(trace: Trace, run: Run) -> pd.DataFrame:
    """Returns the rows of one run of a trace.

    In a merged trace, the columns of a run that is joined to another's rows lose their mark.
    """
    own = own_rows(trace, run)
    names = {marked(name, run.executor): name for name in OF_RUN}
    if len(own) or names.keys().isdisjoint(trace.nodes):
        return own
    joined = trace.nodes[of_batch(trace.nodes, run.batch)].drop_duplicates("node")
    return typed_table(joined.drop(columns=list(OF_RUN)).rename(columns=names).assign(**run.key))


def of_batch(nodes: pd.DataFrame, batch: int | None) -> pd.Series[bool]:
    """Returns which rows of a node table are of this batch size."""
    same = nodes["batch"].isna() if batch is None else nodes["batch"] == batch
    return same.fillna(False).astype(bool)


def _shapes(names: Sequence[str], node: Node, types: TensorTypes) -> str:
    return ", ".join([str(types.of(name, node.scope) or "?") for name in names if name])


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
