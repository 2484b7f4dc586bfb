"""The main node of a kernel of several nodes: the node whose row has the kernel's time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from tracer.graph.model import Model, Node
from tracer.graph.quantized import CONVERSIONS


def main_first(
    model: Model, groups: Sequence[tuple[str, ...]], macs: pd.Series[int]
) -> tuple[tuple[str, ...], ...]:
    """Returns `groups`, the nodes of each kernel, with the main node of each first.

    It is the node with the most `macs` (by node key). Without any, it is the first node that is no
    conversion of a quantised graph. The other nodes keep their order.
    """
    nodes = {node.key: node for node in model.nodes}
    work = {str(key): int(count) for key, count in macs.fillna(0).items()}
    return tuple(_headed(group, nodes, work) for group in groups)


def _headed(
    group: tuple[str, ...], nodes: Mapping[str, Node], macs: Mapping[str, int]
) -> tuple[str, ...]:
    if not group:
        return group
    main = min(group, key=lambda key: (-macs.get(key, 0), nodes[key].op_type in CONVERSIONS))
    return main, *(key for key in group if key != main)
