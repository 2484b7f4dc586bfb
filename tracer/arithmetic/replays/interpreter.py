"""Operators that tracer's interpreter computes with the bits of any IEEE machine: moves, Add …"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tracer.arithmetic.kernel import Inputs, Kernel
from tracer.arithmetic.rule import Facts, Replay, Rule
from tracer.support.types import Array

ROUNDED = Rule("each result is rounded once, or moved")


class _Interpreted:
    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        yield ROUNDED

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        return kernel.interpret(inputs)


REPLAY = _Interpreted()


@dataclass(frozen=True)
class Floats:
    """A replay for kernels of float32, whose other types the interpreter replays."""

    replay_of_floats: Replay

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        """Yields the rules of the replay for the kernel's type."""
        return self._choose(kernel).candidates(kernel)

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        """Returns the outputs by the replay for the kernel's type."""
        with np.errstate(all="ignore"):
            return self._choose(kernel).replay(kernel, facts, inputs)

    def _choose(self, kernel: Kernel) -> Replay:
        name = kernel.node.input[0]
        stored = kernel.constants.get(name)
        dtype = kernel.inputs[name][0] if stored is None else stored.dtype
        return self.replay_of_floats if dtype == np.float32 else REPLAY


def of_floats(replays: Mapping[str, Replay]) -> dict[str, Replay]:
    """Returns replays by operator that hold for float32 alone."""
    return {name: Floats(replay) for name, replay in replays.items()}
