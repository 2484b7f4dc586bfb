"""Keys of stored evaluations: everything except the widths that changes their result."""

import hashlib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import msgspec

from tracer.accumulators.spec import plain_values
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.analyzers.views.redaction import bare_text
from tracer.graph.model import Model
from tracer.graph.stored_weights import WeightFiles
from tracer.inputs.datasets.dataset import Dataset
from tracer.metrics import Metric
from tracer.records import environment
from tracer.whatif.graph_variants import GraphVariant
from tracer.whatif.options import WhatIfOptions

_DIGITS = 16
"""Hexadecimal digits shown of a SHA-256: enough to tell files apart."""


def identity(
    model: Model,
    dataset: Dataset,
    fingerprint: str,
    metric: Metric,
    options: WhatIfOptions,
    changes: Sequence[str],
) -> dict[str, str]:
    """Everything that all evaluations of a file depend on, by names that a user knows.

    `fingerprint` is that of the data. `changes` lists what was done to the model. Widths and budget
    are excluded on purpose: changing them must not invalidate cached evaluations.
    """
    values = {
        "model": f"{model.name} ({model.sha256[:_DIGITS]})",
        "data": f"{_data(dataset)} ({fingerprint[:_DIGITS]})",
        "metric": _metric(metric),
        "batch": str(options.batch),
        "fixed": options.fixed or "none",
        "tracer": metadata.version("tracer-onnx"),
    }
    weights = WeightFiles.of(model).hashes
    if weights:
        values["weights"] = ", ".join(f"{n} ({h[:_DIGITS]})" for n, h in weights.items())
    if model.operators.fingerprint:
        values["operators"] = model.operators.fingerprint[:_DIGITS]
    if changes:  # the graph depends on onnxruntime's quantiser
        values["onnxruntime"] = environment.version_of("onnxruntime", environment.versions())
    return {name: bare_text(value) for name, value in values.items()}  # the hashes tell files apart


def variant_key(graph: GraphVariant, accumulator: Accumulator, hardest: int | None = None) -> str:
    """Everything else that the evaluations of one variant depend on, as JSON.

    `hardest` is the number of samples of evaluations on the hardest samples alone.
    """
    properties = plain_values.dumped(accumulator)
    del properties["bits"]
    bits = {"weight_bits": graph.weight_bits, "activation_bits": graph.activation_bits}
    part = {} if hardest is None else {"hardest": hardest}
    return msgspec.json.encode({**bits, **properties, **part}).decode()


def _data(dataset: Dataset) -> str:
    count = dataset.samples
    return dataset.name if count is None else f"{count:,} samples of {dataset.name}"


def _metric(metric: Metric) -> str:
    """The name; for FILE.py:NAME with the hash of the file."""
    file, colon, _ = metric.name.rpartition(":")
    if not colon:
        return metric.name
    return f"{metric.name} ({hashlib.sha256(Path(file).read_bytes()).hexdigest()[:_DIGITS]})"
