"""The register that a dot product is summed in: its width, and what happens beyond its range."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import assert_never, get_args

import numpy as np

from tracer.accumulators.spec.modes import Bias, Convention, Overflow, ZeroPoints, effect_of
from tracer.accumulators.spec.orders import Order, Terms, named
from tracer.accumulators.spec.orders.sequential import Sequential
from tracer.accumulators.spec.register import NARROWEST, WIDEST, signed_range
from tracer.accumulators.spec.rounding import MOST_SHIFT, NAMES, Rounding, rounding
from tracer.errors import UsageError
from tracer.support.types import Array

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "overflow": get_args(Overflow), "bias": get_args(Bias), "convention": get_args(Convention),
    "zero_points": get_args(ZeroPoints),
}  # fmt: skip
"""The words that a property may have."""


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A signed accumulator of `bits`, and the order in which it adds its terms.

    `overflow` is applied after every addition that leaves the range: `saturate` clips to the
    nearer end; `symmetric` does too, in a range without the lowest number; `wrap` reduces modulo
    the size of the range; `zero` sets the sum to 0; `error` ends the run.

    `product_bits` is the width of a product before it is added, with the same overflow; None keeps
    products exact. `product_shift` low bits of a product are rounded away first, by
    `product_rounding`; the sum keeps its unit, so that these bits are 0 in what is added. `bias` is
    the first term of the last sum, or is added at its end.

    With `twos-complement`, B bits hold [-2^(B-1), 2^(B-1) - 1]. The `magnitude` convention does
    not count the sign: B bits hold [-2^B, 2^B - 1].

    `zero_points` are subtracted from the quantised operands `before` they are multiplied. With
    `after`, operands are multiplied as stored, as most byte libraries do, and the contribution of
    the zero points is subtracted from the sum.

    `order` and `product_rounding` may be given as text that `orders.named` and
    `rounding.rounding` read. Raises UsageError for a width, a word or
    an order that is not allowed.
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", _order(self.order))
        object.__setattr__(self, "product_rounding", _rounding(self.product_rounding))
        object.__setattr__(self, "product_shift", _shift(self.product_shift))
        for name, choices in _CHOICES.items():
            choice = getattr(self, name)
            if choice not in choices:
                raise UsageError(f"{name} {choice!r}", f"It is one of {', '.join(choices)}.")
        object.__setattr__(self, "bits", self._width("an accumulator", self.bits))
        if self.product_bits is not None:
            object.__setattr__(self, "product_bits", self._width("a product", self.product_bits))

    def _width(self, what: str, bits: int) -> int:
        """Returns a width as an int of Python, which files can store. Raises UsageError."""
        width = whole_number(f"the width of {what}", bits)
        if not NARROWEST <= width <= self.widest:
            raise UsageError(
                f"{what} of {width} bits",
                f"Widths from {NARROWEST} to {self.widest} are possible with '{self.convention}'.",
            )
        return width

    def __str__(self) -> str:
        """The spelling: the width, and the properties that are not the default."""
        usual = Accumulator(self.bits)
        changed = [
            f"{each.name}={getattr(self, each.name)}"
            for each in fields(self)
            if getattr(self, each.name) != getattr(usual, each.name)
        ]
        return f"{self.bits}({','.join(changed)})" if changed else f"{self.bits}"

    @property
    def kind(self) -> str:
        """The kind in words: whether the order has registers of its own."""
        stages = self.order.stages(Terms(1))
        return "integer" if all(each.register is None for each in stages) else "two levels"

    @property
    def uncounted_bits(self) -> int:
        """Bits of the register that `bits` leaves out: the sign, by the magnitude convention."""
        match self.convention:
            case "twos-complement":
                return 0
            case "magnitude":
                return 1
            case _:
                assert_never(self.convention)

    @property
    def is_symmetric(self) -> bool:
        """Whether the range leaves out the lowest number of two's complement."""
        return effect_of(self.overflow).is_symmetric

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
    def range(self) -> tuple[int, int]:
        """The lowest and the highest number that the accumulator holds."""
        return self.range_of(self.bits)

    def range_of(self, bits: int) -> tuple[int, int]:
        """Returns the range of the same accumulator with another width."""
        return signed_range(bits + self.uncounted_bits, self.is_symmetric)

    def has_inner_widths(self, terms: Terms) -> bool:
        """Whether products are rounded, or they or the sums of a stage have their own width."""
        if self.product_bits is not None or self.product_shift:
            return True
        stages = self.order.stages(terms)
        return any(stage.register is not None for stage in stages)

    def bits_for(self, low: Array, high: Array) -> Array:
        """Returns the least widths, int64, that hold both `low` and `high`, int64, by element.

        From NARROWEST to WIDEST + 1, which stands for values that no width holds.
        """
        largest = np.maximum(
            _magnitude(low, self.is_symmetric), _magnitude(high, self.is_symmetric)
        )
        return np.maximum(_bits(largest) - self.uncounted_bits, NARROWEST)


def whole_number(what: str, value: object) -> int:
    """Returns `value` as an int of Python. Raises UsageError for another type."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise UsageError(f"{what} is {value!r}", "It is a whole number.")
    return int(value)


def _order(order: object) -> Order:
    if isinstance(order, str):
        return named(order)
    if not isinstance(order, Order):
        raise UsageError(f"order {order!r}", "It is a text such as 'chunked(32)', or an Order.")
    return order


def _rounding(rule: object) -> Rounding:
    if isinstance(rule, str):
        return rounding(rule)
    if not isinstance(rule, Rounding):
        raise UsageError(f"product_rounding {rule!r}", f"It is one of {', '.join(NAMES)}.")
    return rule


def _shift(bits: object) -> int:
    shift = whole_number("the number of low bits that a product loses", bits)
    if not 0 <= shift <= MOST_SHIFT:
        raise UsageError(f"a product loses {shift} low bits", f"It loses from 0 to {MOST_SHIFT}.")
    return shift


def needed(values: Array, symmetric: bool = False) -> Array:
    """Returns the bits of two's complement, int64, that hold each of `values`, int64."""
    return _bits(_magnitude(values, symmetric))


def _magnitude(values: Array, symmetric: bool) -> Array:
    """Returns n for n >= 0, else -n (symmetric) or -n - 1 (two's complement), uint64."""
    return (np.abs(values) if symmetric else values ^ (values >> 63)).view(np.uint64)


def _bits(magnitude: Array) -> Array:
    """Returns the position of the highest set bit, plus one for the sign.

    The exponent of a float64 is this position; the bit below is cleared so that rounding to
    float64 cannot change the exponent.
    """
    return (((magnitude & ~(magnitude >> np.uint64(1))) + 0.5).view(np.int64) >> 52) - 1021
