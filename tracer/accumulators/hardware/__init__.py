"""Accumulators of processors and libraries, by name; modules of this package have `PRESETS`.

A new preset is one entry of a module's `PRESETS`, and its test.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from tracer.accumulators.spec.accumulator import Accumulator, AnyAccumulator, ByOperands

Status = Literal["checked against hardware vectors", "checked against another library", "modelled"]
"""How it is known that a preset computes what the device does. Tests check it: with results of the
device; with a library that runs on the device; or with the published rule alone."""


@dataclass(frozen=True, slots=True)
class Preset:
    """The accumulator of a device or library, with the `source` of its rule.

    `what` it does and what it `leaves_out` are one sentence each. `instead` has the accumulators
    of operators that the library adds otherwise, and of nodes with the traits of `nodes.rules_of`.
    A library that `lifts_int8` adds 128 to int8 activations, and multiplies uint8.
    """

    name: str
    what: str
    source: str
    status: Status
    leaves_out: str
    accumulator: AnyAccumulator
    instead: Mapping[str, AnyAccumulator] = field(default_factory=dict)
    lifts_int8: bool = False

    @property
    def zero_points(self) -> str:
        """Where zero points are subtracted: empty for accumulators that add no integers."""
        if not isinstance(self.accumulator, Accumulator):
            return ""
        return self.accumulator.zero_points


@cache
def presets() -> Mapping[str, Preset]:
    """Returns the presets of all modules of this package, by name."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return {preset.name: preset for module in modules for preset in module.PRESETS}


def spelling(accumulator: AnyAccumulator) -> str:
    """Returns the name of the one preset with this accumulator, else the spelling of its kind."""
    same = [preset.name for preset in presets().values() if preset.accumulator == accumulator]
    return same[0] if len(same) == 1 else str(accumulator)


def names(accumulator: AnyAccumulator) -> list[str]:
    """Returns the presets that add as this accumulator does, for operands of some format."""
    return [
        preset.name for preset in presets().values()
        if accumulator == preset.accumulator
        or (isinstance(preset.accumulator, ByOperands)
            and accumulator in preset.accumulator.accumulators.values())
    ]  # fmt: skip
