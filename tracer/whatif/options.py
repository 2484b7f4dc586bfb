"""What to ask of a network: which widths, under which accumulators, judged how."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracer.errors import UsageError
from tracer.interpreter.arithmetic import orders
from tracer.interpreter.arithmetic.accumulator import Accumulator, Bias, Convention, Overflow

_RANGE = re.compile(r"(\d{1,4}):(\d{1,4})(?::(\d{1,4}))?")
_HINT = "Widths are a range such as 12:32 (or 12:32:2), or a list such as 12,14,16."


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


def widths(given: str | Sequence[int]) -> tuple[int, ...]:
    """The widths that `12:32`, `12:32:2` or `12,14,16` mean, from the narrowest on.

    Raises UsageError for what is none, and for a range that is empty.
    """
    found = _parsed(given) if isinstance(given, str) else list(given)
    if not found:
        raise UsageError(f"'{given}' is no width: the range is empty", _HINT)
    return tuple(sorted(set(found)))


def _parsed(text: str) -> list[int]:
    matched = _RANGE.fullmatch(text.strip())
    if matched is not None:
        first, last, step = (int(part) for part in (matched[1], matched[2], matched[3] or 1))
        if step < 1:
            raise UsageError(f"'{text}': steps of {step}", _HINT)
        return list(range(first, last + 1, step))
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 4 for part in parts):
        raise UsageError(f"'{text}' is not a list of widths", _HINT)
    return [int(part) for part in parts]
