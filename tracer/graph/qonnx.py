"""The names of QONNX's operators, which round floats to integers of any number of bits.

Brevitas, QKeras, FINN and hls4ml write them. Older files call the domain by other names.
"""

DOMAIN = "qonnx.custom_op.general"
"""The name of the domain that qonnx writes today."""
SYNONYMS = frozenset({DOMAIN, "onnx.brevitas", "finn.custom_op.general"})
"""All names of the domain."""

INTEGER_QUANTIZERS = frozenset({"Quant", "IntQuant", "BipolarQuant", "Trunc", "MultiThreshold"})
"""Operators that round to integers times a scale; `IntQuant` is the newer name of `Quant`."""
QUANTIZERS = INTEGER_QUANTIZERS | {"FloatQuant"}
"""All operators that round."""


def rounds(domain: str, op_type: str) -> bool:
    """Whether an operator of a domain, by any of its names, is one that rounds."""
    return domain in SYNONYMS and op_type in QUANTIZERS
