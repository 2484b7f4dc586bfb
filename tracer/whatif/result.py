"""What a what-if found, as plain data: views render it, traces keep it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tracer.environment import Environment
from tracer.trace import ModelInfo
from tracer.whatif.sweep import Answer


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

    `weight_bits` and `activation_bits` are None where the model's own were kept. `energies` are
    those of the nodes, in the order of `work`, for each width of interest.
    """

    weight_bits: int | None
    activation_bits: int | None
    answer: Answer
    work: tuple[NodeWork, ...]
    energies: Mapping[int, tuple[float, ...]] = field(repr=False)

    def energy(self, bits: int) -> float:
        """Of one sample with one width for all nodes. Raises KeyError for a width not asked for."""
        return sum(self.energies[bits])


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
