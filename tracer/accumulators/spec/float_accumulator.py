"""A float register that a dot product is summed in, term after term."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Literal, get_args

from tracer.accumulators.spec.float_format import FloatFormat, float_format, is_float_format
from tracer.errors import UsageError

FloatRoundingName = Literal["rne", "rz", "floor", "sr"]
_MOST_SEED = 999_999_999
_SPELLING = re.compile(r"([a-z0-9:-]+)(?:\((.*)\))?")


@dataclass(frozen=True, slots=True)
class FloatRounding:
    """A rule of rounding; `seed` is for `sr` alone.

    `rne` rounds to nearest and ties to even, `rz` towards 0, `floor` down. `sr` rounds away from 0
    with the probability of the dropped part, of which it sees 24 bits. A draw depends on the seed,
    the index of the output and the number of the step alone.
    """

    name: FloatRoundingName = "rne"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.name not in get_args(FloatRoundingName):
            names = ", ".join(get_args(FloatRoundingName))
            raise UsageError(f"rounding {self.name!r}", f"It is one of {names}.")
        if not 0 <= self.seed <= _MOST_SEED:
            raise UsageError(f"seed {self.seed}", f"It is from 0 to {_MOST_SEED}.")

    def __str__(self) -> str:
        """The spelling in an accumulator's options."""
        return f"sr={self.seed}" if self.name == "sr" else self.name


def draws(part: object) -> bool:
    """Whether an accumulator of any kind, or a part of it, rounds floats by random numbers."""
    if isinstance(part, FloatRounding):
        return part.name == "sr"
    if isinstance(part, tuple):
        return any(map(draws, part))
    return is_dataclass(part) and any(draws(getattr(part, each.name)) for each in fields(part))


@dataclass(frozen=True, slots=True)
class FloatAccumulator:
    """Sums products one by one, in the order of k: s = Q(s + P(a b)), rounded each time.

    `product` is the format that P rounds a product to; None is `format`. If `fused`, a product is
    not rounded: s = Q(s + a b). Overflow is decided after rounding: a number beyond the largest
    becomes what the format has there, or the largest number if it `saturates`.

    With a `chunk`, sums of so many products begin with 0, and are added to the sum in turn. A
    start is rounded to `format`, and is the first term of the sum. A sum of 0 is +0.

    Raises UsageError for values that contradict each other.
    """

    kind: ClassVar[str] = "float"
    format: FloatFormat
    rounding: FloatRounding = field(default_factory=FloatRounding)
    saturates: bool = False
    fused: bool = False
    product: FloatFormat | None = None
    chunk: int | None = None

    def __post_init__(self) -> None:
        if self.fused and self.product is not None:
            raise UsageError(
                f"a fused product in {self.product}", "A fused product is not rounded: omit one."
            )
        if self.product is not None and self.product.subnormals != self.format.subnormals:
            raise UsageError(
                f"products in {self.product} with other subnormal numbers than {self.format}",
                "Both are kept, flushed or left out alike.",
            )
        if self.chunk is not None and self.chunk < 1:
            raise UsageError(f"a chunk of {self.chunk} products", "It has 1 or more.")

    @property
    def product_format(self) -> FloatFormat | None:
        """The format of a product before it is added; None keeps it exact."""
        return None if self.fused else self.product or self.format

    def __str__(self) -> str:
        """The spelling that `float_accumulator` reads."""
        options = [] if self.rounding == FloatRounding() else [str(self.rounding)]
        if self.format.subnormals != "kept":
            options.append(_SUBNORMALS[self.format.subnormals])
        options += ["saturate"] * self.saturates + ["fused"] * self.fused
        options += [] if self.product is None else [f"product={self.product}"]
        options += [] if self.chunk is None else [f"chunk={self.chunk}"]
        return f"{self.format}({','.join(options)})" if options else str(self.format)


_SUBNORMALS = {"flushed": "flush", "none": "no-subnormals"}
_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "rne": {"rounding": FloatRounding("rne")}, "rz": {"rounding": FloatRounding("rz")},
    "floor": {"rounding": FloatRounding("floor")}, "sr": {"rounding": FloatRounding("sr")},
    "flush": {"subnormals": "flushed"}, "no-subnormals": {"subnormals": "none"},
    "saturate": {"saturates": True}, "fused": {"fused": True},
}  # fmt: skip
"""Options without a value, and the properties that they set."""
_VALUES: Mapping[str, Callable[[str], Mapping[str, Any]]] = {
    "sr": lambda text: {"rounding": FloatRounding("sr", int(text))},
    "chunk": lambda text: {"chunk": int(text)},
    "product": lambda text: {"product": float_format(text)},
}
"""Options with a value."""
_HINT = (
    "Options are rne, rz, floor, sr or sr=SEED, flush, no-subnormals, saturate, fused, "
    "product=FORMAT and chunk=N, as in e6m9(chunk=64,sr=7)."
)


def is_float_accumulator(spelling: str) -> bool:
    """Returns whether a text begins as a float accumulator does."""
    match = _SPELLING.fullmatch(spelling.strip())
    return match is not None and is_float_format(match[1])


def float_accumulator(spelling: str) -> FloatAccumulator:
    """Parses `fp16`, `bf16(fused)`, `e6m9(chunk=64,sr=7)` and so on. Raises UsageError."""
    match = _SPELLING.fullmatch(spelling.strip())
    if match is None:
        raise UsageError(
            f"'{spelling}' is not a float accumulator", "It is as in fp16 or fp16(rz)."
        )
    properties: dict[str, Any] = {}
    for option in filter(None, (part.strip() for part in (match[2] or "").split(","))):
        for name, value in _option(spelling, option).items():
            if name in properties:
                raise UsageError(f"'{spelling}': '{option}' sets the {name} again", _HINT)
            properties[name] = value
    subnormals = properties.pop("subnormals", "kept")
    product = properties.get("product")
    if product is not None:
        properties["product"] = replace(product, subnormals=subnormals)
    return FloatAccumulator(replace(float_format(match[1]), subnormals=subnormals), **properties)


def _option(spelling: str, option: str) -> Mapping[str, Any]:
    """Returns the properties that an option sets."""
    name, _, value = option.partition("=")
    if not value and option in _FLAGS:
        return _FLAGS[option]
    if name not in _VALUES or (name != "product" and not _is_number(value)):
        raise UsageError(f"'{spelling}': '{option}' is not an option", _HINT)
    return _VALUES[name](value)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(_MOST_SEED))
