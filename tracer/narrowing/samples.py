"""What the layers of a quantised graph read on calibration data."""

from collections.abc import Mapping, Sequence

import numpy as np

from tracer.graph.model import Model, Node
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.observers import Observer
from tracer.interpreter.values import Value
from tracer.narrowing.layers import Layer
from tracer.quantization.calibration import CalibrationBatches
from tracer.support.progress import Progress, silent
from tracer.support.types import FloatArray

_LEAST, _FOR_EACH_INPUT = 2048, 4
"""Columns of a layer: as many, or so many for each of its K inputs."""
_MOST_NUMBERS = 1 << 25
"""Numbers of all columns of a layer: 256 MiB."""


def sampled(
    model: Model,
    layers: Sequence[Layer],
    batches: CalibrationBatches,
    progress: Progress | None = None,
) -> Mapping[str, FloatArray]:
    """Returns real inputs (count, groups, K) of random outputs of each layer, by key.

    The choice depends on nothing but the layers and the batches.
    """
    report = progress or silent
    picker = _Picker(layers, len(batches))
    interpreter = Interpreter(model, observers=[picker])
    for done, feeds in enumerate(batches, 1):
        interpreter.run(None, feeds)
        report(done, len(batches), "sampling activations")
    return {key: np.concatenate(parts) for key, parts in picker.columns.items()}


class _Picker(Observer):
    """Keeps columns of each layer."""

    def __init__(self, layers: Sequence[Layer], batches: int) -> None:
        self._layers = {layer.key: layer for layer in layers}
        self._counts = {layer.key: -(-_count(layer) // batches) for layer in layers}
        self._generator = np.random.default_rng(0)
        self.columns: dict[str, list[FloatArray]] = {}

    def after(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Keeps some of what a layer has read."""
        layer = self._layers.get(node.key)
        if layer is not None:
            columns = layer.columns(inputs[0], self._counts[node.key], self._generator)
            self.columns.setdefault(node.key, []).append(columns)


def _count(layer: Layer) -> int:
    most = _MOST_NUMBERS // (layer.depth * layer.groups)
    return max(min(max(_LEAST, _FOR_EACH_INPUT * layer.depth), most), 1)
