"""The main node of a kernel of several nodes: the node whose row has the kernel's time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from tracer.graph.model import Model
from tracer.graph.operators import CONVERSIONS

SERVING = CONVERSIONS | {"Constant"}
"""Operators of nodes that only serve others: no kernel is called after one, if it has others."""


def main_first(
    model: Model, groups: Sequence[tuple[str, ...]], work: pd.DataFrame
) -> tuple[tuple[str, ...], ...]:
    """Returns `groups`, the nodes of each kernel, with the main node of each first.

    It is the node with the most MACs in `work` (columns `macs`, `flops` and `bytes_written` by node
    key). Without any, it is the node with the most flops that is neither a constant nor a
    conversion of a quantised graph, then the one that writes most. The other nodes keep their
    order.
    """
    nodes = {node.key: node for node in model.nodes}
    amounts = work[["macs", "flops", "bytes_written"]].fillna(0).astype("int64")
    weights = {
        str(key): (macs, nodes[str(key)].op_type not in SERVING, flops, written)
        for key, macs, flops, written in amounts.itertuples()
    }
    return tuple(_headed(group, weights) for group in groups)


def _headed(group: tuple[str, ...], weights: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    if len(group) < 2:
        return group
    main = max(group, key=lambda key: weights[key])
    return main, *(key for key in group if key != main)
