"""The name of a preset in `accumulators.hardware`, as `x86-maddubs`."""

from collections.abc import Sequence

from tracer.accumulators import hardware
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.any_accumulator import AnyAccumulator

EXAMPLE = "x86-maddubs"
TAKES = frozenset[str]()


def names() -> Sequence[str]:
    """Returns the names of all presets."""
    return tuple(hardware.presets())


def parse(text: str, like: Accumulator) -> AnyAccumulator | None:
    """Returns the accumulator of a preset, whose properties are all its own."""
    preset = hardware.presets().get(text)
    return None if preset is None else preset.accumulator
