"""What a policy assigns to a node: an accumulator of one of several kinds.

Each class has `kind`, a word for tables, and its spelling as `str`, which its module in
`spec.kinds` parses. A class that is added to `AnyAccumulator` fails type checking wherever code
does not say what it does with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.block_fma import BlockFma
from tracer.accumulators.spec.float_accumulator import FloatAccumulator
from tracer.errors import UsageError


@dataclass(frozen=True, slots=True)
class ByOperands:
    """The accumulators of one device by the format of the operands, as `fp8-e4m3`."""

    kind: ClassVar[str] = "by operands"
    name: str
    accumulators: Mapping[str, AnyAccumulator] = field(hash=False, repr=False)

    def of(self, operand_format: str) -> AnyAccumulator:
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
