"""What a what-if found, as plain data: views render it, traces keep it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tracer.records.environment import Environment
from tracer.records.trace import ModelInfo
from tracer.whatif.search import Choice
from tracer.whatif.sweep import Answer
from tracer.whatif.widths import Pins


@dataclass(frozen=True, slots=True)
class Judgement:
    """How outputs were judged: `budget` is what the score may lose, in `unit`."""

    metric: str
    unit: str
    higher_is_better: bool
    budget: float


@dataclass(frozen=True, slots=True)
class Priced:
    """The energy model, in whose `unit` energies are, and how additions were counted."""

    model: str
    unit: str
    source: str
    convention: str


@dataclass(frozen=True, slots=True)
class NodeWork:
    """Multiplications and additions of a narrow node for one sample, and bits of its factors."""

    node: str
    op_type: str
    module: str | None
    muls: float
    adds: float
    activation_bits: float
    weight_bits: float


@dataclass(frozen=True, slots=True)
class Variant:
    """The answer for one combination of the axes.

    `weight_bits` and `activation_bits` are None where the model's own were kept; `pinned` are nodes
    that have a width of their own. `energies` are those of the nodes, in the order of `work`, for
    each width of interest.
    """

    weight_bits: int | None
    activation_bits: int | None
    pinned: Pins
    answer: Answer
    work: tuple[NodeWork, ...]
    energies: Mapping[int, tuple[float, ...]] = field(repr=False)

    def energy(self, bits: int) -> float:
        """Of one sample with one width for all nodes. Raises KeyError for a width not asked for."""
        return sum(self.energies[bits])

    def swept_energy(self, bits: int) -> float:
        """The same with one width for all nodes but the pinned ones, which have theirs."""
        own = [self.pinned.bits.get(work.node, bits) for work in self.work]
        return sum(self.energies[width][place] for place, width in enumerate(own))

    def swept(self, choice: Choice) -> tuple[int, ...]:
        """The widths of the nodes that are not pinned."""
        pairs = zip(self.work, choice.widths, strict=True)
        return tuple(bits for work, bits in pairs if work.node not in self.pinned.bits)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Everything there is to say: one variant for each combination of the axes."""

    model: ModelInfo
    environment: Environment
    settings: Mapping[str, Any]
    judgement: Judgement
    priced: Priced
    variants: tuple[Variant, ...]
    notes: tuple[str, ...] = ()
