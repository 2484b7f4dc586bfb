"""Which floats compute sums exactly in tiles, and what their lanes hold.

`kernels.steps` explains when a lane is exact. All follows from bounds.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tracer.accumulators.engine.matrices import Matrices
from tracer.accumulators.engine.programs import Program, products_may_change
from tracer.accumulators.kernels import loaded
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.modes import Overflow, effect_of
from tracer.accumulators.spec.register import Register
from tracer.interpreter.numeric.tile_tasks import Lanes

_EXACT = {32: 1 << 24, 64: 1 << 53}
"""Floats of so many bits hold every integer up to these."""


@dataclass(frozen=True)
class SumLanes:
    """The lanes of sums of these matrices, by a program, in an accumulator."""

    matrices: Matrices
    plan: Program | None
    accumulator: Accumulator

    @cached_property
    def limited_bits(self) -> int:
        """The bits of the smallest floats in which limited sums are exact; 0 if there are none."""
        if not self._suits or self.overflow not in loaded("steps").RULES:
            return 0
        most = min(max(self.accumulator.range[1], self._own_limit), self._bound) + 1
        modes = [self.overflow] if self.inner is None else [self.overflow, self.inner.overflow]
        if any(effect_of(mode).outside == "any" for mode in modes):  # it depends on all digits
            most += max(most, self._largest_product, self._largest_bias)
        return self._smallest(most)

    @cached_property
    def exact_bits(self) -> int:
        """The bits of the smallest floats in which sums without a range are exact; 0 if none."""
        most = self._bound + 1
        if self.inner is not None and effect_of(self.inner.overflow).outside == "any":
            most += max(most, self._largest_product)
        return self._smallest(most) if self._suits else 0

    @cached_property
    def overflow(self) -> Overflow:
        """The overflow mode; where no sum leaves the range, the simplest one."""
        leaves = self._bound > self.accumulator.range[1]
        return self.accumulator.overflow if leaves else "saturate"

    @property
    def inner(self) -> Register | None:
        """The range of register 0, if it is not the accumulator's."""
        return None if self.plan is None else self.plan.registers[0]

    @cached_property
    def product(self) -> Any:
        """The code of products that may change; else None."""
        if not self._changing:
            return None
        rounding = self.accumulator.product_rounding.name if self._shift else None
        overflow = self.accumulator.overflow if self._limits_products else None
        return loaded("steps").product(overflow, rounding)

    def lanes(self, limited: bool) -> Lanes:
        """What lanes hold of sums that are limited, or without a range."""
        symmetric = self.accumulator.is_symmetric
        most = min(self.accumulator.range[1], self._bound)
        outer = own = _lane(most, symmetric) if limited else (0, 0)
        if self.inner is not None:
            is_symmetric = effect_of(self.inner.overflow).is_symmetric
            own = _lane(min(self._own_limit, self._bound), is_symmetric)
        highest = self._highest_product if self._limits_products else None
        product = (0, 0) if highest is None else _lane(highest, symmetric)
        return Lanes(*outer, *own, *product, 2 << self._shift)

    @property
    def _suits(self) -> bool:
        """Whether tiles have the order and the products of these sums, with a bias for each row."""
        plan, accumulator = self.plan, self.accumulator
        if plan is None or accumulator.order.reorders or self.matrices.bias.shape[1] > 1:
            return False
        if any(plan.registers[min(1, len(plan.registers) - 1) :]):
            return False
        tiles = loaded("steps")
        if self.inner is not None and self.inner.overflow not in tiles.RULES:
            return False
        rounds = not self._shift or accumulator.product_rounding.name in tiles.ROUNDINGS
        return not self._changing or (accumulator.overflow in tiles.RULES and rounds)

    @cached_property
    def _changing(self) -> bool:
        return products_may_change(self.matrices, self.accumulator)

    @property
    def _shift(self) -> int:
        return self.accumulator.product_shift

    @cached_property
    def _own_limit(self) -> int:
        """The highest number of register 0, if it has a range of its own; else 0."""
        return 0 if self.inner is None else self.inner.range[1]

    @property
    def _highest_product(self) -> int | None:
        """The highest product, in units of its lowest bit that is kept; None has no limit."""
        bits = self.accumulator.product_bits
        return None if bits is None else self.accumulator.range_of(bits)[1]

    @property
    def _limits_products(self) -> bool:
        """Whether a rounded product may leave its range."""
        highest = self._highest_product
        return highest is not None and highest <= self.matrices.largest_term >> self._shift

    @cached_property
    def _bound(self) -> int:
        """A magnitude that no sum exceeds, whatever its registers and products become.

        It is at least 1: the limits 0 and -0 turn a sum of 0 into -0, whose bits count as changed.
        """
        if not self._own_limit and not self._changing:
            return max(1, self.matrices.bound)
        return max(1, self.matrices.depth * self._largest_product + self._largest_bias)

    @cached_property
    def _largest_bias(self) -> int:
        return int(np.abs(self.matrices.bias).max(initial=0))

    @property
    def _largest_product(self) -> int:
        """A magnitude that no product exceeds, rounded and limited."""
        rounded = self.matrices.largest_term + ((1 << self._shift) if self._shift else 0)
        highest = self._highest_product
        return rounded if highest is None else min(rounded, (highest + 1) << self._shift)

    def _smallest(self, most: int) -> int:
        """The bits of floats that hold halves up to `most`, the operands and changing products."""
        if not self.matrices.depth:
            return 0
        products = self.matrices.largest_term + 1 if self._changing else 0
        largest = max(*self.matrices.factors, 2 * most, 2 * products)
        return next((bits for bits, limit in _EXACT.items() if largest <= limit), 0)


def _lane(most: int, is_symmetric: bool) -> tuple[int, int]:
    """Twice the limit of a lane, and 1 where it holds the sum plus one half."""
    half = 0 if is_symmetric else 1
    return 2 * most + half, half
