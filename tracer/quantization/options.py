"""The options of `onnxruntime.quantization`, under the names of the command line."""

from dataclasses import dataclass

from tracer.errors import UsageError
from tracer.support.arguments import option
from tracer.text import suggest

FORMATS = {"qdq": "QDQ", "qoperator": "QOperator"}
METHODS = {"minmax": "MinMax", "percentile": "Percentile", "entropy": "Entropy"}
TYPES = {"uint8": "QUInt8", "int8": "QInt8", "uint16": "QUInt16", "int16": "QInt16"}
"""Our names to onnxruntime's names of QuantFormat, CalibrationMethod and QuantType."""

BITS, BLOCKS, LEVELS = (2, 4, 8), (16, 32, 64, 128, 256), (0, 1, 2, 3, 4)
"""Bits of a weight, weights of a block, and accuracy levels of onnxruntime's MatMulNBits."""


_GROUP = "Quantisation"


@dataclass(frozen=True)
class QuantizationOptions:
    """How to quantise. Raises UsageError for an invalid value.

    `format` qdq keeps the operators of the graph between QuantizeLinear and DequantizeLinear;
    qoperator replaces them by integer operators. `per_channel` gives weights a scale for each
    output channel. `symmetric` puts the zero point of activations in the middle of their type.
    `reduce_range` keeps weights in 7 bits. `method` derives the range of an activation from the
    calibration data. `nodes` and `exclude` are patterns (key, operator or module) of the nodes to
    quantise (all if empty) and to leave out.
    """

    format: str = option(
        "qdq: float operators between QuantizeLinear and DequantizeLinear; qoperator: integer "
        "operators.",
        "qdq", group=_GROUP, reads=("choice", *FORMATS), common=True,
    )  # fmt: skip
    per_channel: bool = option(
        "Weight scales per output channel or per tensor.", True,
        group=_GROUP, flag="--per-channel/--per-tensor", common=True,
    )  # fmt: skip
    symmetric: bool = option(
        "Use the middle of the range as zero point of activations or weights.", False,
        group=_GROUP,
    )  # fmt: skip
    reduce_range: bool = option(
        "Use 7-bit weights, for processors without VNNI.", False, group=_GROUP
    )
    activation_type: str = option(
        "Type of quantised activations.", "uint8", group=_GROUP, reads=("choice", *TYPES)
    )
    weight_type: str = option(
        "Type of quantised weights.", "int8", group=_GROUP, reads=("choice", *TYPES)
    )
    nodes: tuple[str, ...] = option(
        "Quantise only these: node, operator or module, with * and ?. Repeatable.", (),
        group=_GROUP, multiple=True, metavar="PATTERN",
    )  # fmt: skip
    exclude: tuple[str, ...] = option(
        "Do not quantise these: node, operator or module, with * and ?. Repeatable.", (),
        group=_GROUP, multiple=True, metavar="PATTERN", common=True,
    )  # fmt: skip
    method: str = option(
        "How activation ranges follow from the data.", "minmax",
        group=_GROUP, reads=("choice", *METHODS), common=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        choices = (
            ("format", self.format, FORMATS),
            ("method", self.method, METHODS),
            ("activation type", self.activation_type, TYPES),
            ("weight type", self.weight_type, TYPES),
        )
        for name, value, allowed in choices:
            if value not in allowed:
                hint = f"{suggest(value, allowed)}There are {', '.join(allowed)}."
                raise UsageError(f"no {name} '{value}'", hint)
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


@dataclass(frozen=True, slots=True)
class WeightOptions:
    """How to quantise weights alone. Raises UsageError for an invalid value.

    `block` weights of a column share a scale, and a zero point unless `symmetric`. With
    `accuracy_level` 4 onnxruntime rounds activations to int8 as well and sums integers; 0 leaves
    the choice to it. `nodes` and `exclude` are patterns, as in QuantizationOptions.
    """

    bits: int = 4
    block: int = 32
    symmetric: bool = False
    accuracy_level: int = 0
    nodes: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        choices = (
            ("weights of {} bits", self.bits, BITS),
            ("blocks of {} weights", self.block, BLOCKS),
            ("accuracy level {}", self.accuracy_level, LEVELS),
        )
        for text, value, allowed in choices:
            if value not in allowed:
                raise UsageError(
                    f"{text.format(value)}: onnxruntime's MatMulNBits has none",
                    f"Give {', '.join(map(str, allowed))}.",
                )
