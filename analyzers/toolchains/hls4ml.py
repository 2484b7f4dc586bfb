"""hls4ml's configuration of layers, in the layout of `config_from_onnx_model(granularity="name")`.

Its accumulators are in fixed point: `fixed<W, I>` has W bits, I of them before the binary point. A
sum of W bits in units of 2^-f is `fixed<W, W - f>`; f is 0 where hls4ml multiplies integers.
"""

from collections.abc import Mapping
from typing import Any

from tracer.analyzers.toolchains.products import products
from tracer.graph.model import Model


def configuration(model: Model, widths: Mapping[str, int]) -> dict[str, Any]:
    """Returns the type `accum` of each layer of `model` with a width, by the name in QONNX."""
    layers = {
        product.name: {"Precision": {"accum": _fixed(widths[product.key], product.fraction_bits)}}
        for product in products(model)
        if product.key in widths
    }
    return {"LayerName": layers}


def _fixed(bits: int, fraction_bits: int) -> str:
    return f"fixed<{bits},{bits - fraction_bits}>"
