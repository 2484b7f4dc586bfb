"""Sums on their way, and what happened to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracer.accumulators.floats.casting import limited, to_grid
from tracer.accumulators.spec.float_accumulator import FloatRoundingName
from tracer.accumulators.spec.float_format import FloatFormat
from tracer.support.types import Array


@dataclass
class State:
    """Sums (M, P), float64; counts are those of `floats.sums.FloatSums`."""

    values: Array
    overflowed: Array
    swamped: Array
    terms: Array
    exact: Array

    @classmethod
    def beginning(cls, start: Array) -> State:
        """Returns sums that begin with `start`, without any term."""
        none = np.zeros(start.shape, np.int64)
        return cls(start.copy(), none != 0, none, none.copy(), start.copy())

    def count(self, products: Array, is_unchanged: Array) -> None:
        """Counts products (M, P) other than 0, and those of them that changed nothing."""
        self.terms += products != 0
        self.swamped += (products != 0) & is_unchanged
        self.exact += products

    def put(
        self, values: Array, form: FloatFormat, name: FloatRoundingName = "rne",
        saturates: bool = False, random: Array | None = None,
    ) -> Array:  # fmt: skip
        """Returns `values` in a format; notes which were outside its range. 0 is +0."""
        result, outside = limited(to_grid(values, form, name, random), form, saturates)
        self.overflowed |= outside
        return result + 0.0
