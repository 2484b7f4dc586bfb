"""A float accumulator, as `fp16`, `e6m9(chunk=64,sr=7)` or `bf16(fused)`."""

from collections.abc import Sequence

from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.float_accumulator import (
    FloatAccumulator,
    float_accumulator,
    is_float_accumulator,
)
from tracer.accumulators.spec.float_format import NAMES

EXAMPLE = "fp16(rz)"
TAKES = frozenset[str]()


def names() -> Sequence[str]:
    """Returns the names of formats."""
    return tuple(NAMES)


def parse(text: str, like: Accumulator) -> FloatAccumulator | None:
    """Returns the accumulator whose format and options the text spells."""
    return float_accumulator(text) if is_float_accumulator(text) else None
