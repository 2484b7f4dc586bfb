"""Operators that tracer's interpreter computes with the bits of any IEEE machine: moves, Add …"""

from collections.abc import Iterator, Mapping
from typing import Any

from tracer.arithmetic.kernel import Kernel
from tracer.arithmetic.rule import Rule
from tracer.support.types import Array


class _Interpreted:
    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        yield Rule("each result is rounded once, or moved")

    def replay(
        self, kernel: Kernel, facts: Mapping[str, Any], inputs: Mapping[str, Array]
    ) -> list[Array]:
        return list(kernel.interpreter.run(None, inputs))


REPLAY = _Interpreted()
