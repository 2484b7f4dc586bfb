"""FINN's configuration of nodes, as its builder reads it from `specialize_layers_config_file`.

FINN makes an MVAU of each product with stored weights, and a VVAU of each depthwise convolution. It
numbers them in the order of the graph, after `convert_to_hw` and before it chooses HLS or RTL.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tracer.analyzers.toolchains.products import products
from tracer.graph.model import Model


def configuration(model: Model, widths: Mapping[str, int]) -> dict[str, Any]:
    """Returns `accDataType` for each node of `model` with a width, by the name that FINN gives it.

    FINN's accumulators are in two's complement, as `widths`, and hold the sum without its bias,
    which becomes part of the thresholds.
    """
    nodes, counts = dict[str, Any](), Counter[str]()
    for product in products(model):
        if not product.has_weights:
            continue
        unit = "VVAU" if product.is_depthwise else "MVAU"
        if product.key in widths:
            nodes[f"{unit}_{counts[unit]}"] = {"accDataType": f"INT{widths[product.key]}"}
        counts[unit] += 1
    return {"Defaults": {}, **nodes}
