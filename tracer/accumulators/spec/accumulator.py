"""Accumulators of integers: their width, what happens beyond it, how products are rounded.

`AnyAccumulator` is what a policy assigns to a node: an accumulator of one of several kinds. Each
class has `kind`, a word for tables, and its spelling as `str`, which `spec.kinds` parses. A class
that is added to it fails type checking wherever code does not say what it does with it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, TypeAlias, assert_never, get_args

import numpy as np

from tracer.accumulators.spec import (
    MOST_SHIFT,
    NARROWEST,
    WIDEST,
    Bias,
    Convention,
    Overflow,
    RoundingName,
    Shift,
    ZeroPoints,
    effect_of,
    signed_range,
)
from tracer.accumulators.spec.block_fma import BlockFma
from tracer.accumulators.spec.float_accumulator import FloatAccumulator
from tracer.accumulators.spec.orders import Order, Runtime, Sequential, Terms, named, shifts
from tracer.errors import UsageError
from tracer.support.types import Array
from tracer.text import brief, plural, suggest

CHANNEL_WIDTHS = r"[0-9]{1,4}(?:/[0-9]{1,4})*"
_ROUNDINGS = get_args(RoundingName)
_ROUNDING_SPELLING = re.compile(r"([a-z-]+)(?:\((\d{1,9})\))?")
POSITION_STEP, _SEED_STEP = 0x9E3779B97F4A7C15, 0xD1342543DE82EF95
"""Odd numbers that spread positions and seeds over 64 bits."""
_MIXERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
"""Shifts and factors of the finaliser of splitmix64 (Steele, Lea and Flood, 2014)."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """A rule of rounding; `seed` is for `stochastic` alone.

    `half-even`, `half-away` and `half-up` round to nearest, and ties to even, away from 0 or up.
    `floor` rounds down, `truncate` towards 0. `stochastic` rounds up with the probability of the
    dropped part: a draw depends on the seed, the position of the product in its sum and the product
    alone.
    """

    name: RoundingName = "half-even"
    seed: int = 0

    def __str__(self) -> str:
        """The spelling that `rounding` reads."""
        return f"{self.name}({self.seed})" if self.name == "stochastic" else self.name

    def salts(self, positions: Array) -> Array:
        """Returns what the draws at `positions` depend on besides the product, int64."""
        spread = (positions.astype(np.uint64) + np.uint64(1)) * np.uint64(POSITION_STEP)
        return (spread + np.uint64(self.seed * _SEED_STEP % (1 << 64))).view(np.int64)


def rounding(spelling: str) -> Rounding:
    """Parses `half-even`, `stochastic(7)` and so on. Raises UsageError."""
    match = _ROUNDING_SPELLING.fullmatch(spelling.strip())
    if match is None or match[1] not in _ROUNDINGS or (match[2] and match[1] != "stochastic"):
        raise UsageError(
            f"'{spelling}' is not a rounding",
            f"{suggest(spelling, _ROUNDINGS)}It is one of {', '.join(_ROUNDINGS)}; a seed is set "
            "as in stochastic(7).",
        )
    return Rounding(match[1], int(match[2] or 0))  # type: ignore[arg-type]  # checked above


def rounded(
    values: Array, shift: int, rule: Rounding, positions: Array | int | None = None
) -> Array:
    """Returns `values` / 2^`shift` rounded to integers; `shift` is 1 or more.

    Integers (..., K), where K are the positions of products, if there are no other `positions`;
    int64 for `stochastic`, else also Python integers.
    """
    floor = values >> shift
    rest, half = values - (floor << shift), 1 << (shift - 1)
    match rule.name:
        case "floor":
            return floor
        case "truncate":
            up = (values < 0) & (rest > 0)
        case "half-even":
            up = (rest > half) | ((rest == half) & (floor % 2 == 1))
        case "half-away":
            up = (rest > half) | ((rest == half) & (values > 0))
        case "half-up":
            up = rest >= half
        case "stochastic":
            places = np.arange(values.shape[-1]) if positions is None else np.atleast_1d(positions)
            words = mixed((values + rule.salts(places)).astype(np.uint64))
            up = (words >> np.uint64(64 - shift)).astype(np.int64) < rest
        case _:
            assert_never(rule.name)
    return np.asarray(floor + np.asarray(up, np.int64))


def rounding_of(shift: Shift) -> Rounding:
    """Returns the rounding of a shift."""
    return Rounding(shift.rounding, shift.seed)


def shifted(values: Array, shift: Shift | None, taken: Array | int = 0) -> Array:
    """Returns sums, integers, as they go to the next register; themselves without a shift.

    `taken`, which broadcasts to them, is the number of products that each dot product has so far.
    """
    return values if shift is None else rounded(values, shift.bits, rounding_of(shift), taken)


def mixed(words: Array) -> Array:
    """Returns random bits, uint64, that depend on each of some words, uint64."""
    for bits, factor in _MIXERS:
        words = (words ^ (words >> np.uint64(bits))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))


_CHOICES: Mapping[str, tuple[str, ...]] = {
    "overflow": get_args(Overflow), "bias": get_args(Bias), "convention": get_args(Convention),
    "zero_points": get_args(ZeroPoints),
}  # fmt: skip
"""The words that a property may have."""


@dataclass(frozen=True, slots=True)
class Accumulator:
    """An accumulator of `bits`, and the order in which it adds its terms.

    `overflow` is applied after every addition that leaves the range: `saturate` clips to the
    nearer end; `symmetric` does too, in a range without the lowest number; `wrap` reduces modulo
    the size of the range; `zero` sets the sum to 0; `error` ends the run.

    `product_bits` is the width of a product before it is added, with the same overflow; None keeps
    products exact. `product_shift` low bits of a product are rounded away first, by
    `product_rounding`; the sum keeps its unit, so that these bits are 0 in what is added. `bias` is
    the first term of the last sum, or is added at its end.

    With `twos-complement`, B bits hold [-2^(B-1), 2^(B-1) - 1]. The `magnitude` convention does
    not count the sign: B bits hold [-2^B, 2^B - 1]. Those that are `unsigned` hold [0, 2^B - 1].

    `zero_points` are subtracted from the quantised operands `before` they are multiplied. With
    `after`, operands are multiplied as stored, as most byte libraries do, and the contribution of
    the zero points is subtracted from the sum.

    `widths` has the bits of each output channel, of which `bits` is the largest; without it, all
    channels have `bits`.

    `order` and `product_rounding` may be given as text that `orders.named` and `rounding` read.
    Raises UsageError for a width, a word or an order that is not allowed, and for a symmetric range
    that is unsigned.

    >>> import tracer
    >>> tracer.Accumulator(16).range
    (-32768, 32767)
    """

    bits: int
    overflow: Overflow = "saturate"
    order: Order = field(default_factory=Sequential)
    product_bits: int | None = None
    bias: Bias = "first"
    convention: Convention = "twos-complement"
    zero_points: ZeroPoints = "before"
    product_shift: int = 0
    product_rounding: Rounding = field(default_factory=Rounding)
    widths: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        order: object = self.order
        if isinstance(order, str):
            object.__setattr__(self, "order", named(order))
        elif not isinstance(order, Order):
            raise UsageError(f"order {order!r}", "It is a text such as 'chunked(32)', or an Order.")
        if not isinstance(self.order, Runtime) and any(
            stage.float_register for stage in self.order.stages(Terms(1))
        ):
            raise UsageError(
                f"order {self.order} of an accumulator of integers",
                "Its levels have widths, as in tiles(128:16).",
            )
        rule: object = self.product_rounding
        if isinstance(rule, str):
            object.__setattr__(self, "product_rounding", rounding(rule))
        elif not isinstance(rule, Rounding):
            raise UsageError(f"product_rounding {rule!r}", f"It is one of {', '.join(_ROUNDINGS)}.")
        shift = whole_number("the number of low bits that a product loses", self.product_shift)
        if not 0 <= shift <= MOST_SHIFT:
            raise UsageError(
                f"a product loses {shift} low bits", f"It loses from 0 to {MOST_SHIFT}."
            )
        object.__setattr__(self, "product_shift", shift)
        for name, choices in _CHOICES.items():
            choice = getattr(self, name)
            if choice not in choices:
                hint = f"{suggest(str(choice), choices)}It is one of {', '.join(choices)}."
                raise UsageError(f"{name} {choice!r}", hint)
        if self.is_unsigned and self.is_symmetric:
            raise UsageError(
                "overflow 'symmetric' of an unsigned accumulator", "It is 'saturate', at 0."
            )
        object.__setattr__(self, "bits", self._width("an accumulator", self.bits))
        if self.product_bits is not None:
            object.__setattr__(self, "product_bits", self._width("a product", self.product_bits))
        self._check_widths(self.widths)

    def _check_widths(self, widths: object) -> None:
        """Sets the widths of channels, which are text in files. Raises UsageError."""
        if isinstance(widths, str):
            object.__setattr__(self, "widths", channel_widths(widths))
        for bits in self.widths:
            self._width("a channel", bits)
        if self.widths and self.bits != max(self.widths):
            raise UsageError(
                f"{self.bits} bits, and channels that have widths of their own, up to "
                f"{max(self.widths)}",
                "Give the node one width.",
            )

    def _width(self, what: str, bits: int) -> int:
        """Returns a width as an int of Python, which files can store. Raises UsageError."""
        width = whole_number(f"the width of {what}", bits)
        if not NARROWEST <= width <= self.widest:
            raise UsageError(
                f"{what} of {plural(width, 'bit')}",
                f"Widths from {NARROWEST} to {self.widest} are possible with '{self.convention}'.",
            )
        return width

    def __str__(self) -> str:
        """The spelling: the width, u16 if unsigned, and the properties that are not the default.

        Widths of channels are 16/18.
        """
        bits = "/".join(map(str, self.widths)) or f"{self.bits}"
        usual = Accumulator(self.bits, widths=self.widths)
        if self.is_unsigned:
            usual, bits = replace(usual, convention=self.convention), f"u{bits}"
        changed = [
            f"{each.name}={getattr(self, each.name)}"
            for each in fields(self)
            if getattr(self, each.name) != getattr(usual, each.name)
        ]
        return f"{bits}({','.join(changed)})" if changed else bits

    def to_plain(self) -> dict[str, Any]:
        """Returns the properties by name for files: numbers, None, order and rounding as text.

        Rounding is left out where products are not rounded.
        """
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values |= {"order": str(self.order), "product_rounding": str(self.product_rounding)}
        if not self.product_shift:  # the keys of older files and evaluations stay valid
            del values["product_shift"], values["product_rounding"]
        del values["widths"]
        return values | ({"widths": "/".join(map(str, self.widths))} if self.widths else {})

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> "Accumulator":
        """Returns the accumulator that `to_plain` gave. Raises UsageError or TypeError."""
        return cls(**values)

    @property
    def kind(self) -> str:
        """The kind in words: whether the order has registers of its own."""
        stages = self.order.stages(Terms(1))
        plain = all(each.register is None and each.spill is None for each in stages)
        return "integer" if plain else "two levels"

    @property
    def uncounted_bits(self) -> int:
        """The bit of two's complement that `bits` leaves out: the sign, or that it is never set."""
        match self.convention:
            case "twos-complement":
                return 0
            case "magnitude" | "unsigned":
                return 1
            case _:
                assert_never(self.convention)

    @property
    def is_symmetric(self) -> bool:
        """Whether the range leaves out the lowest number of two's complement."""
        return effect_of(self.overflow).is_symmetric

    @property
    def is_unsigned(self) -> bool:
        """Whether the range has no number below 0."""
        return self.convention == "unsigned"

    @property
    def is_bias_first(self) -> bool:
        """Whether the bias is the first term of the last sum, and not added at its end."""
        return self.bias == "first"

    @property
    def is_zero_point_in_sum(self) -> bool:
        """Whether operands enter as stored, and zero points are subtracted from the sum."""
        return self.zero_points == "after"

    @property
    def widest(self) -> int:
        """The largest possible width."""
        return WIDEST - self.uncounted_bits

    @property
    def narrowest(self) -> int:
        """The least width of a channel."""
        return min(self.widths, default=self.bits)

    @property
    def range(self) -> tuple[int, int]:
        """The lowest and the highest number that the accumulator holds."""
        return self.range_of(self.bits)

    def of_channels(self, bits: int) -> "Accumulator":
        """Returns the accumulator of the channels that have `bits`."""
        return replace(self, bits=bits, widths=())

    def range_of(self, bits: int) -> tuple[int, int]:
        """Returns the range of the same accumulator with another width."""
        low, high = signed_range(bits + self.uncounted_bits, self.is_symmetric)
        return (0 if self.is_unsigned else low), high

    def has_inner_widths(self, terms: Terms) -> bool:
        """Whether products are rounded, or they or the sums of a stage have their own width."""
        if self.product_bits is not None or self.product_shift:
            return True
        stages = self.order.stages(terms)
        return any(stage.register is not None or stage.spill is not None for stage in stages)

    def shift(self, terms: Terms) -> int:
        """The bits by which the unit of the accumulator is coarser than that of the products."""
        return sum(each.bits for each in shifts(self.order, terms))

    def bias_rounding(self, terms: Terms) -> Rounding:
        """How a bias is rounded to the unit of the accumulator: as by the last shift."""
        passed = shifts(self.order, terms)
        return rounding_of(passed[-1]) if passed else Rounding()

    def in_unit(self, bias: Array, terms: Terms) -> Array:
        """Returns a bias, integers, rounded to the unit of the accumulator."""
        shift = self.shift(terms)
        return rounded(bias, shift, self.bias_rounding(terms), 0) if shift else bias

    def needed(self, values: Array) -> Array:
        """Returns the bits, int64, of the range that holds each of `values`, with all signs.

        They are `bits` and `uncounted_bits`; WIDEST + 1 for numbers that no range holds.
        """
        bits = needed(values, self.is_symmetric)
        return np.where(values < 0, WIDEST + 1, bits) if self.is_unsigned else bits

    def counted(self, needed: Array) -> Array:
        """Returns the widths for what `needed` returns, int64.

        From NARROWEST to WIDEST + 1, which stands for values that no width holds.
        """
        widths = np.maximum(needed - self.uncounted_bits, NARROWEST)
        return np.where(needed > WIDEST, WIDEST + 1, widths)

    def bits_for(self, low: Array, high: Array) -> Array:
        """Returns the least widths, as `counted`, that hold both `low` and `high`, int64."""
        return self.counted(np.maximum(self.needed(low), self.needed(high)))


def channel_widths(text: str) -> tuple[int, ...]:
    """Parses widths of channels, such as 16/18/18, or one. Raises UsageError."""
    if re.fullmatch(CHANNEL_WIDTHS, text) is None:
        raise UsageError(f"'{brief(text)}' are no widths of channels", "They are as 16/18/18.")
    return tuple(map(int, text.split("/")))


@dataclass(frozen=True, slots=True)
class ByOperands:
    """The accumulators of one device by the format of the operands, as `fp8-e4m3`."""

    kind: ClassVar[str] = "by operands"
    name: str
    accumulators: "Mapping[str, AnyAccumulator]" = field(hash=False, repr=False)

    def of(self, operand_format: str) -> "AnyAccumulator":
        """Returns the accumulator for operands of a format. Raises UsageError for another one."""
        if operand_format not in self.accumulators:
            raise UsageError(
                f"'{self.name}' does not multiply operands of {operand_format}",
                f"It multiplies {', '.join(self.accumulators)}.",
            )
        return self.accumulators[operand_format]

    def __str__(self) -> str:
        """The name of the preset."""
        return self.name


AnyAccumulator: TypeAlias = Accumulator | FloatAccumulator | BlockFma | ByOperands


def integer(accumulator: AnyAccumulator, taker: str) -> Accumulator:
    """Returns an accumulator of integers.

    Raises UsageError for another kind; `taker` is what takes integers alone, as 'energy models'.
    """
    if not isinstance(accumulator, Accumulator):
        raise UsageError(
            f"'{accumulator}' does not add integers, and {taker} take integer accumulators alone",
            "Set a width such as 18, or two-level(16,256,32).",
        )
    return accumulator


def whole_number(what: str, value: object) -> int:
    """Returns `value` as an int of Python. Raises UsageError for another type."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise UsageError(f"{what} is {value!r}", "It is a whole number.")
    return int(value)


def needed(values: Array, symmetric: bool = False) -> Array:
    """Returns the bits of two's complement, int64, that hold each of `values`, int64."""
    # n for n >= 0, else -n (symmetric) or -n - 1
    sizes = (np.abs(values) if symmetric else values ^ (values >> 63)).view(np.uint64)
    # The position of the highest set bit is the exponent of a float64, plus one for the sign; the
    # bit below is cleared, so that rounding to float64 cannot change the exponent.
    return (((sizes & ~(sizes >> np.uint64(1))) + 0.5).view(np.int64) >> 52) - 1021
