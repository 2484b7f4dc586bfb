"""What to ask of a network: which widths, under which accumulators, judged how."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from tracer.accumulators.spec import orders
from tracer.accumulators.spec.accumulator import Accumulator, Bias, Convention, Overflow
from tracer.errors import UsageError


@dataclass(frozen=True, slots=True)
class Options:
    """Everything but the model, the widths and the data.

    `orders`, `overflows`, `biases`, `weight_bits` and `activation_bits` (None: as the model has
    them) are axes: every combination is tried. `fixed` are numbers for a float graph, as
    `policy_text` reads them. `metric` None is one that fits labels and outputs. `budget` is what
    the metric may lose, in its unit. `search` asks for a width for each node as well. `energy` and
    `counting` are what `analyzers.energy` and `analyzers.cost` find; without `counting` a
    channelwise order counts channelwise, others plainly.
    """

    orders: tuple[str, ...] = ("sequential",)
    overflows: tuple[Overflow, ...] = ("saturate",)
    biases: tuple[Bias, ...] = ("first",)
    product_bits: int | None = None
    convention: Convention = "twos-complement"
    weight_bits: tuple[int | None, ...] = (None,)
    activation_bits: tuple[int | None, ...] = (None,)
    fixed: str | None = None
    metric: str | None = None
    limit: int | None = None
    batch: int = 64
    budget: float = 1.0
    search: bool = True
    energy: str = "lab"
    counting: str | None = None

    def accumulators(self, bits: int) -> Iterator[Accumulator]:
        """One of `bits` for each combination. Raises UsageError for what no accumulator has."""
        if "error" in self.overflows:
            raise UsageError(
                "overflow 'error' would end the first run that overflows",
                "Sweep the others: saturate, symmetric, wrap, zero.",
            )
        for order, overflow, bias in itertools.product(self.orders, self.overflows, self.biases):
            yield Accumulator(
                bits, overflow, orders.named(order), self.product_bits, bias, self.convention
            )

    def operands(self) -> Iterator[tuple[int | None, int | None]]:
        """Bits of weights and activations for each combination."""
        return itertools.product(self.weight_bits, self.activation_bits)
