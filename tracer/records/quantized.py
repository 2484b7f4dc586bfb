"""The result of a quantisation: the integer model, its accuracy, and the error of each layer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import onnx

from tracer.records.model_info import ModelInfo
from tracer.records.result import Result


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A metric of the float model (`before`) and of the quantised one (`after`), in `unit`."""

    metric: str
    unit: str
    before: float
    after: float
    samples: int


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

    node: str
    op_type: str
    module: str | None
    sqnr_db: float
    added_noise: float
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
        return f"{self.model.name}, {len(self.layers)} layers, {change}"
