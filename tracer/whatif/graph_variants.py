"""The graphs that a what-if tries: the model as it is, or quantised, and with fewer bits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tracer.graph import loading
from tracer.graph.model import Model
from tracer.graph.quantized import quantized_node
from tracer.inputs.datasets import Dataset, open_dataset
from tracer.quantization.calibration import Samples
from tracer.quantization.options import Options as Quantizing
from tracer.quantization.quantizer import graphs as quantized
from tracer.quantization.widths import narrow
from tracer.support.progress import Progress
from tracer.whatif.options import Options

_SAMPLES = 512
_BATCH = 32


@dataclass(frozen=True, slots=True)
class Graph:
    """A quantised model, and to how many bits its weights and activations were brought."""

    model: Model = field(repr=False)
    weight_bits: int | None = None
    activation_bits: int | None = None


@dataclass(frozen=True, slots=True)
class Graphs:
    """A graph for each combination of bits, and what was done to the model."""

    graphs: tuple[Graph, ...]
    notes: tuple[str, ...] = ()


def graphs(
    model: Model, dataset: Dataset, options: Options, folder: Path, progress: Progress | None
) -> Graphs:
    """Graphs of integers for `model`; one of floats is quantised, unless it becomes fixed-point.

    Raises what quantising raises, and UsageError or ModelError where bits cannot be narrowed.
    """
    given, notes = model, tuple[str, ...]()
    if options.fixed is None and quantized_node(model) is None:
        given, notes = _quantised(model, dataset, folder, progress)
    found = tuple(_narrowed(given, *bits) for bits in options.operands())
    return Graphs(found, notes)


def _quantised(
    model: Model, dataset: Dataset, folder: Path, progress: Progress | None
) -> tuple[Model, tuple[str, ...]]:
    name = dataset.name
    split = "test" if Path(name).is_dir() else "train"
    samples = open_dataset(name, model, limit=_SAMPLES, split=split, folder=folder)
    _, proto = quantized(model, Samples(samples, _BATCH), Quantizing(), progress)
    note = (
        f"{model.name} computes with floats; it was quantised first, as tracer quantize does: int8 "
        f"weights per channel, uint8 activations, ranges of up to {_SAMPLES} samples of {name} "
        f"({split})"
    )
    return loading.from_proto(proto), (note,)


def _narrowed(model: Model, weight_bits: int | None, activation_bits: int | None) -> Graph:
    if weight_bits is None and activation_bits is None:
        return Graph(model)
    proto = narrow(model.proto, weight_bits, activation_bits)
    return Graph(loading.from_proto(proto), weight_bits, activation_bits)
