"""The options of `tracer narrow`: what must fit, and what that may cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from tracer.analyzers.options import DEFAULT_ENERGY_MODEL
from tracer.errors import UsageError
from tracer.narrowing.need import Guarantee


@dataclass(frozen=True, slots=True)
class NarrowOptions:
    """Everything but the model, the data and the files: see `tracer.narrow`.

    Raises UsageError for a guarantee that there is not.
    """

    bits: str | Sequence[int]
    guarantee: Guarantee = "any-input"
    tile: int | None = None
    weight_bits: int | None = None
    budget: float = 1.0
    metric: str | None = None
    limit: int | None = 512
    test_limit: int | None = None
    batch: int = 32
    energy: str = DEFAULT_ENERGY_MODEL

    def __post_init__(self) -> None:
        if self.guarantee not in get_args(Guarantee):
            raise UsageError(
                f"guarantee {self.guarantee!r}", f"It is one of {', '.join(get_args(Guarantee))}."
            )
