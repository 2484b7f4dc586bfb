"""The result of narrowing: a model whose sums fit, what was changed, and the scores by width."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import onnx

from tracer.accumulators.statistics.guarantee import Guarantee
from tracer.records.model_info import ModelInfo
from tracer.records.result import Result
from tracer.records.whatif import EnergyBasis, Judgement, known_sum


@dataclass(frozen=True, slots=True)
class NarrowedNode:
    """A node that sums, before and after.

    `guaranteed` are the bits that hold its sums for any input, in any order; with tiles, the sums
    of each tile. `observed` are those that hold whole sums of the data of the scores. `measure` is
    what was changed ('' for nothing), `activation_bits` are the bits of the inputs afterwards.
    `sqnr_db` is what is left of the outputs in the narrowed model on calibration data, against the
    quantised model: 10 log10(sum y^2 / sum (y - changed)^2). Both are None for a node that was not
    changed, and `sqnr_db` for one that loses nothing. `parts` are the nodes that sum in its place,
    and the widest counts. `overflows` are the outputs on the data of the scores whose sums leave
    the registers.
    `energy_before` and `energy` are those of a sample, None where the node multiplies nothing, or
    its energy is unknown.
    """

    node: str
    op_type: str
    module: str | None
    bits: int
    guaranteed_before: int
    guaranteed: int
    observed_before: int
    observed: int
    measure: str = ""
    activation_bits: int | None = None
    sqnr_db: float | None = None
    parts: int = 1
    overflows: int = 0
    energy_before: float | None = None
    energy: float | None = None

    @property
    def fits(self) -> bool:
        """Whether no input makes its sums exceed its bits."""
        return self.guaranteed <= self.bits

    @property
    def is_reordered(self) -> bool:
        """Whether its terms have another order, by a Gather in front of it."""
        return self.measure == "ordering"


@dataclass(frozen=True, slots=True)
class WidthScores:
    """Scores in accumulators of `bits` bits: narrowed, and of the model before, which saturates."""

    bits: int
    narrowed: float
    saturated: float


@dataclass(frozen=True, slots=True, repr=False)
class Narrowed(Result):
    """A narrowed model (`proto`) whose accumulators have `bits` bits, and what that costs.

    `model` describes the model that was given. `score` is that of the quantised model in wide
    accumulators, on `samples` samples. `curve` has every width that was tried, the narrowest first.
    `nodes` are in the order of the graph. `certificate` states for which of them no input makes a
    sum overflow, and None if there are none. `energy` is what the energies of the nodes mean.
    """

    view: ClassVar[str] = "tracer.analyzers.views.narrowed"

    model: ModelInfo
    settings: Mapping[str, Any]
    judgement: Judgement
    score: float
    samples: int
    bits: int
    curve: tuple[WidthScores, ...]
    nodes: tuple[NarrowedNode, ...]
    notes: tuple[str, ...]
    proto: onnx.ModelProto = field(repr=False)
    certificate: Guarantee | None = None
    energy: EnergyBasis | None = None

    @property
    def scores(self) -> WidthScores:
        """The scores at the width of the model."""
        return next(each for each in self.curve if each.bits == self.bits)

    @property
    def energies(self) -> tuple[float, float]:
        """The energies of a sample before and after, over the nodes whose energies are known."""
        before, after = ((n.energy_before for n in self.nodes), (n.energy for n in self.nodes))
        return known_sum(before), known_sum(after)

    def headline(self) -> str:
        """The model, its width and its score."""
        change = f"{self.score:.4g} -> {self.scores.narrowed:.4g}"
        return f"{self.model.name}, {self.bits} bits, {self.judgement.metric} {change}"


def certificate_beside(model: Path) -> Path:
    """Returns the path of the certificate of the model at `model`: acc16.certificate.json."""
    return model.with_suffix(".certificate.json")
