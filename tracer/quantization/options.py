"""How a model is quantised: what `onnxruntime.quantization` offers, by names of our own."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.errors import UsageError

FORMATS = {"qdq": "QDQ", "qoperator": "QOperator"}
METHODS = {"minmax": "MinMax", "percentile": "Percentile", "entropy": "Entropy"}
TYPES = {"uint8": "QUInt8", "int8": "QInt8", "uint16": "QUInt16", "int16": "QInt16"}
"""Our names, and those of onnxruntime's QuantFormat, CalibrationMethod and QuantType."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to quantise.

    `format` qdq keeps the operators of the graph between pairs of QuantizeLinear and
    DequantizeLinear, qoperator replaces them by integer ones. `per_channel` gives weights a scale
    for each output channel, `symmetric` puts the zero point of activations in the middle of their
    type, `reduce_range` keeps weights in 7 bits. `method` says how the range of an activation
    follows from calibration. `nodes` and `exclude` are patterns of nodes (key, operator or
    module): those to quantise, all of them if there is none, and those to leave as they are.
    Raises UsageError for values that are none.
    """

    format: str = "qdq"
    per_channel: bool = True
    symmetric: bool = False
    reduce_range: bool = False
    method: str = "minmax"
    activation_type: str = "uint8"
    weight_type: str = "int8"
    nodes: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        choices = (
            ("format", self.format, FORMATS),
            ("method", self.method, METHODS),
            ("activation type", self.activation_type, TYPES),
            ("weight type", self.weight_type, TYPES),
        )
        for what, given, allowed in choices:
            if given not in allowed:
                raise UsageError(f"no {what} '{given}'", f"There are {', '.join(allowed)}.")
        wide = {self.activation_type, self.weight_type} - {"uint8", "int8"}
        if self.format == "qoperator" and wide:
            raise UsageError(
                f"{wide.pop()} in the qoperator format: its integer operators take 8 bits",
                "Use --format qdq, or 8-bit types.",
            )
        if (self.activation_type, self.weight_type) == ("int8", "uint8"):
            raise UsageError(
                "int8 activations with uint8 weights: no runtime multiplies them",
                "Use int8 weights.",
            )
        if self.reduce_range and self.weight_type not in ("int8", "uint8"):
            raise UsageError(
                f"a reduced range of {self.weight_type} weights", "It is for 8-bit weights."
            )
