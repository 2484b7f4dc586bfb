"""What evaluations are of, so that those of something else are not taken for them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import msgspec

from tracer.accumulators.spec import plain_values
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.graph.model import Model
from tracer.inputs.datasets import Dataset
from tracer.metrics import Metric
from tracer.whatif.graph_variants import Graph
from tracer.whatif.options import Options

_DIGITS = 16
"""Of a SHA-256: more would tell a reader nothing."""


def identity(
    model: Model, dataset: Dataset, metric: Metric, options: Options, changes: Sequence[str]
) -> dict[str, str]:
    """Everything that all evaluations depend on, by names that a user knows.

    `changes` are what was done to the model. Widths and budget are not among it: the question may
    change, and what is known stays true.
    """
    found = {
        "model": f"{model.name} ({model.sha256[:_DIGITS]})",
        "data": f"{_data(dataset)} ({dataset.fingerprint()[:_DIGITS]})",
        "metric": _metric(metric),
        "batch": str(options.batch),
        "fixed": options.fixed or "none",
        "tracer": metadata.version("tracer-onnx"),
    }
    if changes:  # its quantiser made the graph
        found["onnxruntime"] = metadata.version("onnxruntime")
    return found


def variant(graph: Graph, accumulator: Accumulator, samples: int | None = None) -> str:
    """What evaluations of one variant depend on besides, but for the widths.

    `samples` is how many of the first ones they are made on, where that is not all.
    """
    kind = plain_values.dumped(accumulator)
    del kind["bits"]
    bits = {"weight_bits": graph.weight_bits, "activation_bits": graph.activation_bits}
    part = {} if samples is None else {"samples": samples}
    return msgspec.json.encode({**bits, **kind, **part}).decode()


def _data(dataset: Dataset) -> str:
    count = dataset.samples
    return dataset.name if count is None else f"{count:,} samples of {dataset.name}"


def _metric(metric: Metric) -> str:
    """The name; of the user's own also what is in its file."""
    place, colon, _ = metric.name.rpartition(":")
    if not colon:
        return metric.name
    return f"{metric.name} ({hashlib.sha256(Path(place).read_bytes()).hexdigest()[:_DIGITS]})"
