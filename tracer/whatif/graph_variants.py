"""The graphs of a what-if: the quantised model, and copies with fewer bits."""

from dataclasses import dataclass, field
from pathlib import Path

import onnx

from tracer.graph import loading
from tracer.graph.model import Model
from tracer.graph.operators import adds_integers
from tracer.inputs.datasets.dataset import Dataset
from tracer.inputs.datasets.opening import open_dataset
from tracer.quantization.bit_reduction import narrow
from tracer.quantization.calibration import CalibrationSamples
from tracer.quantization.options import QuantizationOptions
from tracer.quantization.quantizer import quantized_graphs
from tracer.support.progress import Progress
from tracer.support.temporary import TemporaryFolder
from tracer.whatif.options import WhatIfOptions

_SAMPLES = 512
_BATCH = 32


@dataclass(frozen=True, slots=True)
class GraphVariant:
    """A quantised model, and the bits of its weights and activations (None: as in the model)."""

    model: Model = field(repr=False)
    weight_bits: int | None = None
    activation_bits: int | None = None


def graph_variants(
    model: Model,
    dataset: Dataset,
    options: WhatIfOptions,
    folder: Path,
    progress: Progress | None,
) -> tuple[tuple[GraphVariant, ...], tuple[str, ...]]:
    """Returns a graph for each combination of bits, and notes on how `model` was changed.

    A float model is quantised first, unless fixed-point formats are given. Raises the errors of
    quantisation, and UsageError or ModelError where bits cannot be reduced.
    """
    quantised, notes = model, tuple[str, ...]()
    if options.fixed is None and not adds_integers(model):
        split = "test" if Path(dataset.name).is_dir() else "train"
        samples = open_dataset(dataset.name, model, limit=_SAMPLES, split=split, folder=folder)
        quantised, notes = quantized_first(model, CalibrationSamples(samples, _BATCH), progress)
    return tuple(_narrowed(quantised, *bits) for bits in options.operands()), notes


def quantized_first(
    model: Model, batches: CalibrationSamples, progress: Progress | None
) -> tuple[Model, tuple[str, ...]]:
    """Returns `model`, with a note: a float model is quantised with ranges on `batches`."""
    if adds_integers(model):
        return model, ()
    with TemporaryFolder() as work:
        _, path = quantized_graphs(model, batches, QuantizationOptions(), work, progress)
        quantised = loading.from_proto(onnx.load(path))
    note = (
        f"{model.name} is a float model and was quantised first, as tracer quantize does: int8 "
        f"weights per channel, uint8 activations, ranges of up to {batches.dataset.limit} samples "
        f"of {batches.dataset.name}"
    )
    return quantised, (note,)


def _narrowed(model: Model, weight_bits: int | None, activation_bits: int | None) -> GraphVariant:
    if weight_bits is None and activation_bits is None:
        return GraphVariant(model)
    proto = narrow(model.proto, weight_bits, activation_bits)
    return GraphVariant(loading.from_proto(proto), weight_bits, activation_bits)
