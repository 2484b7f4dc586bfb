"""The node of a kernel that has its time, and the node that a constant or a conversion serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from tracer.graph.model import Model
from tracer.graph.operators import CONVERSIONS
from tracer.records.model_info import Topology

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
    ordered = []
    for group in groups:
        main = [max(group, key=weights.__getitem__)] if len(group) > 1 else []
        ordered.append((*main, *(key for key in group if key not in main)))
    return tuple(ordered)


_OF_RESULTS = "QuantizeLinear"


def served(topology: Topology | None) -> Mapping[str, str]:
    """Returns for each node of `SERVING` the node that it serves, by key; none if there is none.

    A QuantizeLinear serves the node whose result it converts. All others, and a QuantizeLinear of
    an input or a weight, serve the first node that reads their result.
    """
    if topology is None:
        return {}
    readers: list[list[int]] = [[] for _ in topology.nodes]
    for position, producers in enumerate(topology.producers):
        for producer in producers:
            readers[producer].append(position)
    serving = [kind in SERVING for kind in topology.op_types]
    served_by: dict[int, int] = {}
    for position in reversed(range(len(serving))):  # readers come after what they read
        for reader in readers[position] if serving[position] else ():
            target = served_by.get(reader, reader)
            if not serving[target]:
                served_by[position] = target
                break
    for position, kind in enumerate(topology.op_types):
        makers = [each for each in topology.producers[position] if not serving[each]]
        if kind == _OF_RESULTS and makers:
            served_by[position] = makers[0]
    return {topology.nodes[one]: topology.nodes[other] for one, other in served_by.items()}
