"""The register that a dot product is summed in: its width, and what it does beyond its range."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from tracer.accumulators.spec.orders import Order, Terms
from tracer.accumulators.spec.orders.sequential import Sequential
from tracer.errors import UsageError
from tracer.support.types import Array

Overflow = Literal["saturate", "symmetric", "wrap", "zero", "error"]
Convention = Literal["twos-complement", "magnitude"]
Bias = Literal["first", "last"]
ZeroPoints = Literal["before", "after"]

NARROWEST, WIDEST = 2, 64


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A signed accumulator of `bits`, and the order in which it meets its terms.

    A sum that leaves the range is brought back at every step: `saturate` to the nearer end;
    `symmetric` likewise, in a range without the lowest number; `wrap` modulo its size; `zero` to
    0; `error` ends the run. `product_bits` is the width every product is brought into, in the
    same way, before it is added; None keeps products exact. `bias` enters as the first term of
    the last sum, or is added at its end. In two's complement B bits hold [-2^(B-1), 2^(B-1) - 1];
    in the `magnitude` convention, which does not count the sign, [-2^B, 2^B - 1]. `zero_points` are
    taken off quantised operands before they are multiplied, or what they add is taken off the sum
    after: then operands enter as they are stored, as bytes do in most libraries.

    Raises UsageError for a width or a word that is not allowed.
    """

    bits: int
    overflow: Overflow = "saturate"
    order: Order = field(default_factory=Sequential)
    product_bits: int | None = None
    bias: Bias = "first"
    convention: Convention = "twos-complement"
    zero_points: ZeroPoints = "before"

    def __post_init__(self) -> None:
        _one_of("overflow", self.overflow, get_args(Overflow))
        _one_of("bias", self.bias, get_args(Bias))
        _one_of("convention", self.convention, get_args(Convention))
        _one_of("zero_points", self.zero_points, get_args(ZeroPoints))
        widest = self.widest
        for what, bits in (("an accumulator", self.bits), ("a product", self.product_bits)):
            if bits is not None and not NARROWEST <= bits <= widest:
                raise UsageError(
                    f"{what} of {bits} bits",
                    f"Widths from {NARROWEST} to {widest} are possible with '{self.convention}'.",
                )

    @property
    def widest(self) -> int:
        """The largest width there is."""
        return WIDEST - (self.convention == "magnitude")

    @property
    def range(self) -> tuple[int, int]:
        """The lowest and the highest number it holds."""
        return self.range_of(self.bits)

    def range_of(self, bits: int) -> tuple[int, int]:
        """The same for another width."""
        return signed_range(bits + (self.convention == "magnitude"), self.overflow == "symmetric")

    def formats(self, terms: Terms) -> bool:
        """Whether products are brought into a width before the accumulator meets them."""
        stages = self.order.stages(terms)
        return self.product_bits is not None or any(stage.bits is not None for stage in stages)

    def bits_for(self, low: Array, high: Array) -> Array:
        """The least widths, int64, that hold both of `low` and `high`, int64, element by element.

        Not less than NARROWEST; it may be WIDEST + 1 where no width is enough.
        """
        symmetric = self.overflow == "symmetric"
        largest = np.maximum(_magnitude(low, symmetric), _magnitude(high, symmetric))
        return np.maximum(_bits(largest) - (self.convention == "magnitude"), NARROWEST)


def signed_range(bits: int, symmetric: bool = False) -> tuple[int, int]:
    """What two's complement of `bits` holds; `symmetric` leaves out the lowest number."""
    high = 2 ** (bits - 1) - 1
    return (-high if symmetric else -high - 1), high


def needed(values: Array, symmetric: bool = False) -> Array:
    """Bits of two's complement, int64, that hold each of `values`, int64."""
    return _bits(_magnitude(values, symmetric))


def _magnitude(values: Array, symmetric: bool) -> Array:
    """uint64 that grows with the bits needed: n, and -n or, as two's complement has it, n - 1."""
    return (np.abs(values) if symmetric else values ^ (values >> 63)).view(np.uint64)


def _bits(magnitude: Array) -> Array:
    """The position of the highest bit that is set, and one for the sign.

    It is the exponent of a float64; the bit below is cleared lest rounding changes it.
    """
    return (((magnitude & ~(magnitude >> np.uint64(1))) + 0.5).view(np.int64) >> 52) - 1021


def _one_of(what: str, given: str, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise UsageError(f"{what} '{given}'", f"It is one of {', '.join(allowed)}.")
