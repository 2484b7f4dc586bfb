"""The results that are models: quantised, narrowed and tuned, with what that costs and brings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import onnx

from tracer.accumulators.statistics.certificates import Guarantee
from tracer.records.columns import as_column
from tracer.records.model_info import ModelInfo
from tracer.records.result import Result
from tracer.records.whatif import EnergyBasis, Judgement, known_sum
from tracer.text import plural


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A metric of the float model (`before`) and of the quantised one (`after`), in `unit`.

    Both have exact sums. `here` is `after` in onnxruntime on this processor; None where its sums
    are exact, too.
    """

    metric: str
    unit: str
    before: float
    after: float
    samples: int
    here: float | None = None


@dataclass(frozen=True, slots=True)
class WorstChannel:
    """The noisiest slice of a tensor along `axis`: its number `index`, and its SQNR in dB.

    `lost` of the `count` slices have an SQNR below 6 dB: less than one bit of them is left.
    """

    axis: int
    index: int
    sqnr_db: float
    lost: int
    count: int


@dataclass(frozen=True, slots=True)
class LayerError:
    """The error of a node's output in the quantised graph against the float graph.

    `sqnr_db` is the signal-to-quantisation-noise ratio 10 log10(sum x^2 / sum (x - q)^2) over all
    samples, infinite without an error; it includes the noise of all layers before. `added_noise` is
    the noise share sum (x - q)^2 / sum x^2 of the output less that of the noisiest input; below 0
    for a layer that averages noise out. `worst_channel` is None where there are no channels.
    """

    node: str = field(metadata=as_column("node", 0))
    op_type: str = field(metadata=as_column("op", 3))
    module: str | None = field(metadata=as_column("module", 4))
    sqnr_db: float = field(metadata=as_column("SQNR dB", 2, "decibels"))
    added_noise: float = field(metadata=as_column("added noise", 1, "noise"))
    worst_channel: WorstChannel | None = None


@dataclass(frozen=True, slots=True)
class OutputError:
    """The error of an output of the model, as in LayerError."""

    output: str
    sqnr_db: float
    worst_channel: WorstChannel | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Quantized(Result):
    """A quantised model (`proto`), its accuracy, and the errors of its layers.

    `model` describes the float model. `accuracy` is None where no metric fits the data. `layers`
    are in the order of the graph; `outputs` are those that are floats.
    """

    view: ClassVar[str] = "tracer.analyzers.views.quantized"

    model: ModelInfo
    settings: Mapping[str, Any]
    accuracy: Accuracy | None
    layers: tuple[LayerError, ...]
    notes: tuple[str, ...]
    proto: onnx.ModelProto = field(repr=False)
    outputs: tuple[OutputError, ...] = ()

    def headline(self) -> str:
        """The model, its layers and its accuracy."""
        accuracy = self.accuracy
        change = (
            "accuracy unknown"
            if accuracy is None
            else f"{accuracy.metric} {accuracy.before:.4g} -> {accuracy.after:.4g}"
        )
        return f"{self.model.name}, {plural(len(self.layers), 'layer')}, {change}"


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

    node: str = field(metadata=as_column("node", 0))
    op_type: str = field(metadata=as_column("op", 3))
    module: str | None = field(metadata=as_column("module", 5))
    bits: int = field(metadata=as_column("bits", 1, "whole"))
    guaranteed_before: int = field(metadata=as_column("any input before", 2, "whole"))
    guaranteed: int = field(metadata=as_column("any input after", 2, "whole"))
    observed_before: int = field(metadata=as_column("on data before", 7, "whole"))
    observed: int = field(metadata=as_column("on data after", 7, "whole"))
    measure: str = field(default="", metadata=as_column("changed", 4))
    activation_bits: int | None = field(default=None, metadata=as_column("input bits", 4, "whole"))
    sqnr_db: float | None = field(default=None, metadata=as_column("SQNR dB", 3, "tenths"))
    parts: int = field(default=1, metadata=as_column("nodes", 6, "whole"))
    overflows: int = field(default=0, metadata=as_column("overflows", 5, "thousands"))
    energy_before: float | None = field(default=None, metadata=as_column("energy before", 9, "si"))
    energy: float | None = field(default=None, metadata=as_column("energy after", 8, "si"))

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
        return f"{self.model.name}, {plural(self.bits, 'bit')}, {self.judgement.metric} {change}"


def certificate_beside(model: Path) -> Path:
    """Returns the path of the certificate of the model at `model`: acc16.certificate.json."""
    return model.with_suffix(".certificate.json")


@dataclass(frozen=True, slots=True)
class Speedup:
    """Time before ÷ time after; between `low` and `high` with a confidence of 99 %."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Trial:
    """One form of a change, tried alone: `why` it was, and what came of it.

    `speedup` and `memory_bytes` (of a session at most) are None where they were not measured.
    `difference` is the largest error of an output ÷ its largest value in the unchanged model.
    `verdict` says in words whether the change was kept, and why not.
    """

    change: str = field(metadata=as_column("change", 0))
    value: str = field(metadata=as_column("form", 0))
    why: str
    effect: str
    verdict: str
    kept: bool = False
    speedup: Speedup | None = None
    memory_bytes: int | None = field(default=None, metadata=as_column("memory", 4, "size"))
    difference: float | None = field(default=None, metadata=as_column("difference", 2, "exponent"))


@dataclass(frozen=True, slots=True)
class Plan:
    """What was chosen for the model with the hash `sha256`, and where: steps of change and value.

    `settings` are those that the steps change. `processor`, `cores` and `onnxruntime` tell the
    machine of the measurements.
    """

    model: str
    sha256: str
    goal: str
    steps: tuple[tuple[str, str], ...]
    settings: Mapping[str, Any]
    processor: str
    cores: int
    onnxruntime: str
    speedup: Speedup | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Tuned(Result):
    """A tuned model: the trials, best first, and the `plan` of the best combination.

    `speedup`, `memory_bytes` and `difference` are those of the combination, as in Trial, and
    `memory_before` is the memory of the unchanged model. `code` are lines of Python that open the
    session, after `commands` that make the changed model. `proto` is the changed model, None where
    the model stays as it is.
    """

    view: ClassVar[str] = "tracer.analyzers.views.tuned"

    model: ModelInfo
    settings: Mapping[str, Any]
    trials: tuple[Trial, ...]
    plan: Plan
    speedup: Speedup | None
    memory_bytes: int | None
    memory_before: int | None
    difference: float | None
    commands: tuple[str, ...]
    code: tuple[str, ...]
    notes: tuple[str, ...]
    proto: onnx.ModelProto | None = field(default=None, repr=False)

    def headline(self) -> str:
        """The model, what was chosen, and the speed-up."""
        chosen = ", ".join(f"{change}={value}" for change, value in self.plan.steps)
        gain = f", {self.speedup.ratio:.2f}x" if self.speedup else ""
        return f"{self.model.name}, {chosen or 'nothing to change'}{gain}"
