"""The results of a what-if: sweeps over accumulator widths, and over accumulators of several kinds.

`WhatIf` holds a `Variant` for each combination of graph, accumulator and pinned widths; a `Variant`
holds the `Answer` of its sweep and its searches for the narrowest widths that suffice.
`AccumulatorSweep` has a row for each accumulator. A `ShardBaseline` is what a part of the data
tells in wide accumulators.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.metrics.scores import ChannelSquares, ClassCounts
from tracer.records.columns import as_column
from tracer.records.environment import Environment
from tracer.records.model_info import ModelInfo
from tracer.records.result import Result
from tracer.support.types import Array
from tracer.text import plural


@dataclass(frozen=True, slots=True)
class Coverage:
    """`nodes` of the `multiplying` nodes are narrow; they have `share` of the known MACs.

    `share` is None where the MACs of a node that multiplies are unknown.
    """

    nodes: int
    multiplying: int
    share: float | None

    @property
    def is_whole(self) -> bool:
        """Whether every node that multiplies is narrow."""
        return self.nodes == self.multiplying


Widths: TypeAlias = tuple[int, ...]
"""Bits of the narrow nodes, in the order of the model."""

_SLACK = 1e-9
"""Added to the budget: in floats, 98.3 - 97.3 is slightly more than 1."""

REFERENCE_BITS = 32
"""Width that energies are compared with: the usual width of integer accumulators."""


@dataclass(frozen=True, slots=True)
class NodeOverflows:
    """Overflow counts of one node, summed over all samples."""

    outputs: int
    overflow_outputs: int
    transient_outputs: int
    persistent_outputs: int
    saturation_events: int
    outputs_changed: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The mean score over all samples at widths `bits`, and the overflows of each narrow node.

    `overflows` is None where only the score was asked.
    """

    bits: Mapping[str, int]
    score: float
    overflows: Mapping[str, NodeOverflows] | None


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One row of a sweep: all nodes that are not pinned have `bits` bits."""

    bits: int
    score: float
    energy: float
    evaluation: Evaluation

    @property
    def overflows(self) -> Mapping[str, NodeOverflows]:
        """The overflows of each narrow node."""
        assert self.evaluation.overflows is not None  # a sweep counts
        return self.evaluation.overflows


@dataclass(frozen=True, slots=True)
class WidthChoice:
    """Widths that a search chose, their energy per sample and their score.

    `limiting` is the node whose score changes most where it alone has one bit less; None where no
    score changes, or where these scores were not computed. `overflowing` is the node with
    the largest share of sums that overflow where it alone has one bit less; None where none do.
    """

    widths: Widths
    energy: float
    score: float
    limiting: str | None
    overflowing: str | None = None


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A point of the Pareto front of energy against score."""

    widths: Widths
    energy: float
    score: float


@dataclass(frozen=True, slots=True)
class Screening:
    """The size of the search for per-node widths on the first `samples` samples alone."""

    samples: int
    evaluations: int


@dataclass(frozen=True, slots=True)
class Pins:
    """Fixed widths of some nodes, by node; `text` is how a user writes them."""

    text: str = ""
    bits: Mapping[str, int] = field(default_factory=dict)

    def among(self, nodes: Sequence[str]) -> "Pins":
        """The pins of `nodes` alone."""
        return Pins(self.text, {node: self.bits[node] for node in nodes if node in self.bits})


@dataclass(frozen=True, slots=True)
class Answer:
    """The sweep and the searches for one accumulator.

    `score` is the score in wide accumulators and `sums` the partial sums of each node there.
    `guaranteed` bits are safe for any input, `observed` bits on this data, where `limiting` is the
    node that needs them. Within the accuracy budget, `uniform` is the narrowest width that all
    nodes share (None if there is none) and `each` has a width for each node. `evaluations` are in
    the order of the search. Pinned nodes keep their widths throughout. `ended` says what ended the
    searches early, with the best found until then: `out of time`, `interrupted` or `terminated`.
    """

    accumulator: Accumulator
    score: float
    samples: int
    sums: tuple[PartialSums, ...] = field(repr=False)
    rows: tuple[SweepRow, ...]
    guaranteed: int
    observed: int
    limiting: str
    uniform: WidthChoice | None
    each: WidthChoice | None
    front: tuple[FrontPoint, ...]
    evaluations: tuple[Evaluation, ...] = field(repr=False)
    screening: Screening | None = None
    ended: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The metric, and the accuracy `budget`: how much the score may fall, in `unit`."""

    metric: str
    unit: str
    higher_is_better: bool
    budget: float

    def allows(self, score: float, reference: float) -> bool:
        """Whether `score` is within the budget of `reference`, the score to keep."""
        lost = reference - score if self.higher_is_better else score - reference
        return lost <= self.budget + _SLACK

    def is_better(self, score: float, reference: float) -> bool:
        """Whether `score` is better than `reference`."""
        return score > reference if self.higher_is_better else score < reference


@dataclass(frozen=True, slots=True)
class EnergyBasis:
    """The energy model, the `unit` of all energies, and the convention for counting additions."""

    model: str
    unit: str
    source: str
    convention: str


def known_sum(energies: Iterable[float | None]) -> float:
    """Returns the sum without missing energies."""
    return sum(energy for energy in energies if energy is not None)


@dataclass(frozen=True, slots=True)
class NodeWork:
    """Multiplications and additions of a narrow node for one sample, and bits of its operands.

    All are None for a node that multiplies nothing, and for a node of unknown work.
    """

    node: str
    op_type: str
    module: str | None
    muls: float | None
    adds: float | None
    activation_bits: float | None
    weight_bits: float | None


@dataclass(frozen=True, slots=True)
class Variant:
    """The answer for one combination of graph, accumulator and pinned widths.

    `weight_bits` and `activation_bits` are None for the model's own bits. `energies` maps a
    width to the energies of the nodes at that width, in the order of `work`; None where missing.
    `coverage` is the share of the products that are added in narrow accumulators; None in files of
    older versions.
    """

    weight_bits: int | None
    activation_bits: int | None
    pinned: Pins
    answer: Answer
    work: tuple[NodeWork, ...]
    energies: Mapping[int, tuple[float | None, ...]] = field(repr=False)
    coverage: Coverage | None = None

    def energy(self, bits: int) -> float:
        """Energy per sample with `bits` bits in all nodes. Raises KeyError without energies."""
        return known_sum(self.energies[bits])

    def swept_energy(self, bits: int) -> float:
        """Energy per sample with `bits` bits in all nodes that are not pinned."""
        widths = [self.pinned.bits.get(work.node, bits) for work in self.work]
        return known_sum(self.energies[width][index] for index, width in enumerate(widths))

    def swept(self, choice: WidthChoice) -> Widths:
        """The widths in `choice` of the nodes that are not pinned."""
        pairs = zip(self.work, choice.widths, strict=True)
        return tuple(bits for work, bits in pairs if work.node not in self.pinned.bits)


@dataclass(frozen=True, slots=True, repr=False)
class WhatIf(Result):
    """The result of a what-if: a variant for each combination that was tried."""

    view: ClassVar[str] = "tracer.analyzers.whatif.views"

    model: ModelInfo
    environment: Environment
    settings: Mapping[str, Any]
    judgement: Judgement
    energy: EnergyBasis
    variants: tuple[Variant, ...]
    notes: tuple[str, ...] = ()

    def headline(self) -> str:
        """The model, the variants, and the observed width of the first."""
        first = self.variants[0].answer
        uniform = "none" if first.uniform is None else max(first.uniform.widths)
        variants = plural(len(self.variants), "variant")
        return (
            f"{self.model.name}, {variants}; {first.accumulator.order}: "
            f"observed {first.observed} bits, within the budget {uniform}"
        )


@dataclass(frozen=True, slots=True)
class SweptAccumulator:
    """A network whose sums are all computed in one accumulator.

    `score` is the mean over all samples. Counts are those of all nodes together: `outputs` are
    sums, `overflow_outputs` those that left a range. `swamped_share` is the share of the terms that
    did not change their sum, and `rel_error_p50` and `rel_error_p99` are percentiles of the
    relative error of a sum; None for sums of integers. `energy` is per sample; None where the
    energy model lacks figures.
    """

    accumulator: str = field(metadata=as_column("accumulator", 0))
    operands: str | None = field(metadata=as_column("operands", 9))
    score: float = field(metadata=as_column("{metric}", 2, "score"))
    outputs: int = field(metadata=as_column("sums", 11, "number"))
    overflow_outputs: int
    swamped_share: float | None = field(metadata=as_column("swamped", 6, "percent"))
    rel_error_p50: float | None = field(metadata=as_column("error p50", 8, "difference"))
    rel_error_p99: float | None = field(metadata=as_column("error p99", 7, "difference"))
    energy: float | None = field(metadata=as_column("energy {unit}", 4, "si"))


@dataclass(frozen=True, slots=True, repr=False)
class AccumulatorSweep(Result):
    """The rows in the order of the request, and the `score` of the model as it is.

    `judgement` says how much of it may be lost.
    """

    view: ClassVar[str] = "tracer.analyzers.whatif.accumulators"

    model: ModelInfo
    environment: Environment
    settings: Mapping[str, Any]
    judgement: Judgement
    energy: EnergyBasis
    score: float
    samples: int
    rows: tuple[SweptAccumulator, ...]
    notes: tuple[str, ...] = ()

    @property
    def sufficient(self) -> tuple[SweptAccumulator, ...]:
        """The rows within the accuracy budget."""
        return tuple(row for row in self.rows if self.judgement.allows(row.score, self.score))

    @property
    def cheapest(self) -> SweptAccumulator | None:
        """The row of least known energy within the budget; None if there is none."""
        known = (row for row in self.sufficient if row.energy is not None)
        return min(known, key=lambda row: row.energy or 0.0, default=None)

    def headline(self) -> str:
        """The model, the accumulators, and those within the budget."""
        accumulators = plural(len(self.rows), "accumulator")
        return (
            f"{self.model.name}, {accumulators}, {len(self.sufficient)} of them within the budget"
        )


@dataclass(frozen=True, slots=True)
class WideBatch:
    """What is kept of a batch in wide accumulators, without its outputs.

    `scores` and `leads` (samples,) are float64: a lead is by how much the best class leads.
    """

    scores: Array
    leads: Array
    classes: ClassCounts
    squares: ChannelSquares


@dataclass(frozen=True, slots=True)
class ShardBaseline:
    """The run of a shard in accumulators that hold every sum.

    `widths` are the bits of the narrow nodes in the policy, by key in the order of the model, and
    `steps` (nodes,) the step of the main graph that each of them is in. `needed` (batches, nodes)
    are the widths that hold all partial sums of a batch. `altered` (batches, nodes, 2) counts
    saturation events and changed outputs by reduced-width products. `seconds` is how long it took.
    """

    widths: Mapping[str, int]
    steps: Array
    batches: tuple[WideBatch, ...] = field(repr=False)
    needed: Array = field(repr=False)
    altered: Array = field(repr=False)
    sums: Mapping[str, PartialSums] = field(repr=False)
    notes: tuple[str, ...]
    seconds: float = 0.0
