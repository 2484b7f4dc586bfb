"""Sums tiles of terms in narrow registers, which are then added up in a wide one.

Libraries for bytes do so: FBGEMM adds pairs of products in 16 bits for 256 terms, then adds the sum
to 32 bits. Datapaths with several levels do so too (AXE, arXiv 2409.17092).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracer.accumulators.spec.orders import Order, Stage, Terms, check_size, one_group, rows_of
from tracer.accumulators.spec.register import Overflow, Register
from tracer.errors import UsageError
from tracer.support.types import Array

ALL = "all"
_SPELLING = re.compile(rf"({ALL}|\d{{1,9}})(?:x(\d{{1,9}}))?(?::(\d{{1,3}}))?(?::([a-z]+))?")


@dataclass(frozen=True, slots=True)
class Level:
    """Sums of `size` terms each, `stride` apart; None sums all terms.

    `register` is what they are summed in; None uses the accumulator.
    """

    size: int | None
    register: Register | None = None
    stride: int = 1

    def __post_init__(self) -> None:
        check_size("a stride", self.stride)
        if self.size is not None:
            check_size("a tile", self.size)

    def groups(self, count: int) -> Array:
        """Returns the positions of `count` terms by group, as `Stage` has them."""
        size = count if self.size is None else min(self.size, -(-count // self.stride))
        if self.stride == 1 or not count:
            return rows_of(count, max(size, 1))
        blocks = -(-count // (size * self.stride))
        positions = np.arange(blocks * size * self.stride).reshape(blocks, size, self.stride)
        rows = positions.swapaxes(1, 2).reshape(-1, size)
        rows[rows >= count] = -1
        return rows[rows[:, 0] >= 0]

    def __str__(self) -> str:
        size = ALL if self.size is None else str(self.size)
        stride = "" if self.stride == 1 else f"x{self.stride}"
        return f"{size}{stride}" + ("" if self.register is None else f":{self.register}")


@dataclass(frozen=True, slots=True)
class Tiles(Order):
    """Sums the tiles of each level, then the last sums in the accumulator.

    A level is spelled `size:bits:overflow`, as in `tiles(2:16,128:16:wrap)`; `2x8` takes terms
    that are 8 apart, and `all` all terms.
    """

    levels: tuple[Level, ...]

    def __post_init__(self) -> None:
        if not self.levels:
            raise UsageError("an order of tiles has no level", "One is written as tiles(256:16).")

    @classmethod
    def read(cls, sizes: Sequence[str]) -> Tiles:
        """Returns the order with these spellings of levels. Raises UsageError."""
        return cls(tuple(map(_level, sizes)))

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns a stage for each level, and the sum of the last tiles."""
        stages, count = [], terms.count
        for level in self.levels:
            stages.append(Stage(level.groups(count), level.register))
            count = len(stages[-1].groups)
        return (*stages, one_group(count))

    def __str__(self) -> str:
        """The spelling that `named` reads."""
        return f"tiles({','.join(map(str, self.levels))})"


def _level(text: str) -> Level:
    match = _SPELLING.fullmatch(text.strip())
    if match is None or (match[4] and not match[3]):
        raise UsageError(
            f"'{text}' is not a level of tiles",
            "It is size:bits:overflow, as 256:16 or 256:16:wrap; 2x8 takes terms that are 8 apart.",
        )
    overflow: Overflow = match[4] or "saturate"  # type: ignore[assignment]  # checked by Register
    register = Register(int(match[3]), overflow) if match[3] else None
    size = None if match[1] == ALL else int(match[1])
    return Level(size, register, int(match[2] or 1))
