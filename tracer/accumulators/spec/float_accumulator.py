"""Float formats of few bits, and float registers that sum a dot product term after term."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Literal, assert_never, get_args

from tracer.accumulators.spec import Bias, check_word, parts
from tracer.accumulators.spec.orders import Order, Runtime, Sequential, Stage, Terms, named
from tracer.errors import UsageError

Specials = Literal["ieee", "nan", "fnuz", "none"]
"""What the highest codes are: `ieee` has infinities and NaN, `nan` one NaN of all ones (e4m3 of
OCP), `fnuz` one NaN in the place of -0, `none` numbers alone (fp4 and fp6 of OCP)."""
Subnormals = Literal["kept", "flushed", "none"]
"""What the lowest exponent has: `kept` subnormal numbers, `flushed` 0 alone, `none` further normal
numbers, which leave out subnormal ones."""

_SUFFIXES: Mapping[str, Specials] = {"": "ieee", "fn": "nan", "fnuz": "fnuz", "f": "none"}
_FORMAT_SPELLING = re.compile(r"e(\d{1,2})m(\d{1,2})(fnuz|fn|f)?(?::(-?\d{1,3}))?")
_LOWEST, _HIGHEST = -149, 127
"""Exponents of the lowest and of the highest bit of a float32."""


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A sign, `exponent_bits` and `fraction_bits`; 1 is stored with the exponent `bias`.

    `bias` None is the usual one: 2^(E-1) - 1, and 2^(E-1) for `fnuz`. Every number of a format is a
    float32. Raises UsageError for a format that is wider, or that has no normal number.
    """

    exponent_bits: int
    fraction_bits: int
    bias: int | None = None
    specials: Specials = "ieee"
    subnormals: Subnormals = "kept"

    def __post_init__(self) -> None:
        check_word("specials", self.specials, get_args(Specials))
        check_word("subnormals", self.subnormals, get_args(Subnormals))
        if not (1 <= self.exponent_bits <= 8 and 0 <= self.fraction_bits <= 23):
            raise UsageError(
                f"a float format e{self.exponent_bits}m{self.fraction_bits}",
                "It has from 1 to 8 bits of exponent and from 0 to 23 bits of fraction.",
            )
        if self.bias is None:
            usual = 2 ** (self.exponent_bits - 1) - (self.specials != "fnuz")
            object.__setattr__(self, "bias", usual)
        if self.largest_exponent < self.least_exponent:
            raise UsageError(f"{self} has no normal number", "It needs more bits of exponent.")
        if self.least_bit < _LOWEST or self.largest_exponent > _HIGHEST:
            raise UsageError(
                f"{self} has numbers outside float32",
                f"Its bits lie between 2^{_LOWEST} and 2^{_HIGHEST}; choose another bias.",
            )

    @property
    def least_exponent(self) -> int:
        """The exponent of the least normal number, and of subnormal ones."""
        assert self.bias is not None
        return (0 if self.subnormals == "none" else 1) - self.bias

    @property
    def least_bit(self) -> int:
        """The exponent of the lowest bit of the least numbers."""
        return self.least_exponent - self.fraction_bits

    @property
    def largest_exponent(self) -> int:
        """The exponent of the largest number."""
        assert self.bias is not None
        top = 2**self.exponent_bits - 1 - self.bias
        return top - 1 if self._top_is_special else top

    @property
    def largest(self) -> float:
        """The largest number."""
        last_is_nan = self.specials == "nan" and not self._top_is_special
        unit: float = 2.0 ** (self.largest_exponent - self.fraction_bits)
        return unit * (2 ** (self.fraction_bits + 1) - 1 - last_is_nan)

    @property
    def least_normal(self) -> float:
        """The least positive number whose fraction has all its bits."""
        return float(2.0**self.least_exponent)

    @property
    def beyond(self) -> float:
        """What a number beyond the largest becomes: infinity, NaN, or the largest number."""
        match self.specials:
            case "ieee":
                return float("inf")
            case "nan" | "fnuz":
                return float("nan")
            case "none":
                return self.largest
            case _:
                assert_never(self.specials)

    @property
    def has_negative_zero(self) -> bool:
        """Whether -0 has a code."""
        return self.specials != "fnuz"

    @property
    def _top_is_special(self) -> bool:
        """Whether the highest exponent has no number."""
        return self.specials == "ieee" or (self.specials == "nan" and self.fraction_bits == 0)

    def __str__(self) -> str:
        """The spelling that `float_format` reads; it leaves out `subnormals`."""
        own = self._spelling
        return next((name for name, spelling in FORMAT_NAMES.items() if spelling == own), own)

    @property
    def _spelling(self) -> str:
        suffix = next(text for text, specials in _SUFFIXES.items() if specials == self.specials)
        usual = 2 ** (self.exponent_bits - 1) - (self.specials != "fnuz")
        bias = "" if self.bias == usual else f":{self.bias}"
        return f"e{self.exponent_bits}m{self.fraction_bits}{suffix}{bias}"


FORMAT_NAMES: Mapping[str, str] = {
    "fp32": "e8m23", "tf32": "e8m10", "bf16": "e8m7", "fp16": "e5m10",
    "fp8-e4m3": "e4m3fn", "fp8-e5m2": "e5m2",
    "fp8-e4m3fnuz": "e4m3fnuz", "fp8-e5m2fnuz": "e5m2fnuz",
    "fp6-e2m3": "e2m3f", "fp6-e3m2": "e3m2f", "fp4-e2m1": "e2m1f",
}  # fmt: skip
"""Formats that have a name, and their spelling as eXmY."""

_FORMAT_HINT = (
    f"It is one of {', '.join(FORMAT_NAMES)}, or eXmY with X bits of exponent and Y of fraction, "
    "as in e6m9; e4m7:10 has the bias 10; e4m3fn has NaN but no infinity, e2m1f neither."
)


def is_float_format(spelling: str) -> bool:
    """Returns whether a text looks like a format: a name, or eXmY."""
    return spelling in FORMAT_NAMES or _FORMAT_SPELLING.fullmatch(spelling) is not None


def float_format(spelling: str) -> FloatFormat:
    """Parses `fp16`, `fp8-e4m3`, `e6m9`, `e4m7:10`, `e4m3fn` and so on. Raises UsageError."""
    match = _FORMAT_SPELLING.fullmatch(FORMAT_NAMES.get(spelling, spelling))
    if match is None:
        raise UsageError(f"'{spelling}' is not a float format", _FORMAT_HINT)
    bias = None if match[4] is None else int(match[4])
    return FloatFormat(int(match[1]), int(match[2]), bias, _SUFFIXES[match[3] or ""])


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
        check_word("rounding", self.name, get_args(FloatRoundingName))
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
    """Sums products one by one, in the order of k or another: s = Q(s + P(a b)), rounded each time.

    `product` is the format that P rounds a product to; None is `format`. If `fused`, a product is
    not rounded: s = Q(s + a b). Overflow is decided after rounding: a number beyond the largest
    becomes what the format has there, or the largest number if it `saturates`.

    With a `chunk`, sums of so many products begin with 0, and are added to the sum in turn; an
    `order` adds them as an `Accumulator` does. A start is rounded to `format`, and is the first
    term of the last sum, or with `bias` last is added at its end. A sum of 0 is +0.

    Raises UsageError for values that contradict each other.
    """

    kind: ClassVar[str] = "float"
    format: FloatFormat
    rounding: FloatRounding = field(default_factory=FloatRounding)
    saturates: bool = False
    fused: bool = False
    product: FloatFormat | None = None
    chunk: int | None = None
    order: Order = field(default_factory=Sequential)
    bias: Bias = "first"

    def __post_init__(self) -> None:
        self._check_order()
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

    def _check_order(self) -> None:
        check_word("bias", self.bias, get_args(Bias))
        if self.is_plain or isinstance(self.order, Runtime):
            return
        stages = self.order.stages(Terms(1))
        if self.order.reorders or any(each.register or each.spill for each in stages):
            raise UsageError(
                f"order {self.order} of a float accumulator",
                "Its terms are added in float registers, in an order such as tree, chunked(32) or "
                "tiles(128:fp16).",
            )
        for each in stages:
            if each.float_register is not None:
                float_format(each.float_register.format)
        if self.chunk is not None or self.rounding.name == "sr":
            other = "a chunk" if self.chunk is not None else "stochastic rounding"
            raise UsageError(f"order {self.order} with {other}", "Leave out one of the two.")

    @property
    def is_plain(self) -> bool:
        """Whether products are added in the order of k, after the start."""
        return self.order == Sequential() and self.bias == "first"

    def adder_of(self, stage: Stage) -> "FloatAccumulator":
        """Returns the accumulator that adds the groups of a stage: one after the other, from 0.

        Products are rounded to the format of the register that adds them, unless they have one.
        """
        plain, own = replace(self, order=Sequential(), bias="first"), stage.float_register
        if own is None:
            return plain
        form = replace(float_format(own.format), subnormals=self.format.subnormals)
        return replace(plain, format=form, saturates=own.saturates)

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
        options += [] if self.order == Sequential() else [f"order={self.order}"]
        options += [] if self.bias == "first" else [f"bias={self.bias}"]
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
    "order": lambda text: {"order": named(text)},
    "bias": lambda text: {"bias": text},
}
"""Options with a value."""
_OPTIONS_HINT = (
    "Options are rne, rz, floor, sr or sr=SEED, flush, no-subnormals, saturate, fused, "
    "product=FORMAT, chunk=N, order=ORDER and bias=last, as in e6m9(chunk=64,sr=7)."
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
    for option in filter(None, (part.strip() for part in parts(match[2] or "", ","))):
        for name, value in _option(spelling, option).items():
            if name in properties:
                raise UsageError(f"'{spelling}': '{option}' sets the {name} again", _OPTIONS_HINT)
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
    is_number = value.isascii() and value.isdigit() and len(value) <= len(str(_MOST_SEED))
    if name not in _VALUES or (name in ("sr", "chunk") and not is_number):
        raise UsageError(f"'{spelling}': '{option}' is not an option", _OPTIONS_HINT)
    return _VALUES[name](value)
