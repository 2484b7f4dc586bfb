"""How much of its signal each layer loses by quantisation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from tracer.graph import loading
from tracer.graph.model import Node
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.values import Value
from tracer.quantization.calibration import Batches
from tracer.quantization.twins import Twin, measured, twins
from tracer.support.progress import Progress
from tracer.support.types import Array


@dataclass(frozen=True, slots=True)
class LayerError:
    """A node of the quantised graph, and how far its output is from that of the float graph.

    `sqnr_db` is the signal-to-quantisation-noise ratio 10 log10(sum x^2 / sum (x - q)^2) over all
    samples, infinite where nothing is lost; it holds the noise of all layers before. `added_noise`
    is what this layer lost: its noise as a share of its signal (sum (x - q)^2 / sum x^2) less that
    of its noisiest input, below 0 where it averages noise out.
    """

    node: str
    op_type: str
    module: str | None
    sqnr_db: float
    added_noise: float


def layer_errors(
    prepared: onnx.ModelProto,
    quantized: onnx.ModelProto,
    batches: Batches,
    progress: Progress | None = None,
) -> tuple[LayerError, ...]:
    """The layers of `quantized` in the order of the graph, run on `batches` beside `prepared`.

    Both run in the reference interpreter, a batch at a time, so that the figures do not depend on
    the processor and memory does not grow with the data.
    """
    known = twins(prepared, quantized)
    kept = _Kept({twin.original for twin in known.values()})
    noise = _Noise(known, kept)
    plain = Interpreter(loading.from_proto(prepared), observers=[kept])
    narrow = Interpreter(loading.from_proto(quantized), observers=[noise])
    for done, feeds in enumerate(batches, 1):
        kept.values = dict(feeds)
        plain.run(None, feeds)
        narrow.run(None, feeds)
        if progress is not None:
            progress(done, len(batches), "comparing layers")
    return _rows(narrow.model.nodes, {node.name for node in prepared.graph.node}, noise)


class _Kept:
    """An observer that keeps the tensors of these names."""

    def __init__(self, names: set[str]) -> None:
        self._names = names
        self.values: dict[str, Value] = {}

    def before(self, node: Node, inputs: Sequence[Value]) -> None:
        """Nothing to see yet."""

    def after(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Keep what is asked for."""
        self.values.update((n, v) for n, v in _named(node, outputs) if n in self._names)


class _Noise:
    """An observer that adds up the squares of float tensors, and of what their twins lack."""

    def __init__(self, known: Mapping[str, Twin], kept: _Kept) -> None:
        self._known = known
        self._kept = kept
        self._sums: dict[str, Array] = {}

    def before(self, node: Node, inputs: Sequence[Value]) -> None:
        """Nothing to see yet."""

    def after(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Compare what has a twin."""
        for name, value in _named(node, outputs):
            twin = self._known.get(name)
            real = None if twin is None else self._kept.values.get(twin.original)
            if twin is not None and isinstance(real, np.ndarray) and real.dtype.kind == "f":
                wide = real.astype(np.float64)
                lost = wide - twin.real(value)
                made = np.array([np.vdot(wide, wide), np.vdot(lost, lost)])
                self._sums[name] = self._sums.get(name, 0) + made

    def share(self, name: str) -> float | None:
        """Noise by signal of what is `name` in the quantised graph; None if it was not compared."""
        found = measured(name, self._known)
        if found is None or found not in self._sums:
            return None
        signal, noise = self._sums[found].tolist()
        if not noise:
            return 0.0
        return noise / signal if signal else math.inf


def _named(node: Node, outputs: Sequence[Value]) -> zip[tuple[str, Value]]:
    """The outputs of a node of the main graph under their names; tensors of bodies are others."""
    names = () if node.scope.path else node.outputs
    return zip(names, outputs, strict=False)


def _rows(nodes: Sequence[Node], own: set[str], noise: _Noise) -> tuple[LayerError, ...]:
    rows = []
    for node in nodes:
        share = noise.share(node.outputs[0]) if node.key in own else None
        if share is None:
            continue
        before = max((noise.share(name) or 0.0 for name in node.inputs), default=0.0)
        added = 0.0 if share == before else share - before
        rows.append(LayerError(node.key, node.op_type, node.module, _decibels(share), added))
    return tuple(rows)


def _decibels(share: float) -> float:
    return -10 * math.log10(share) if 0 < share < math.inf else math.copysign(math.inf, 0.5 - share)
