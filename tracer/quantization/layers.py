"""Measures the error of each layer of a quantised graph, in the reference interpreter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from tracer.graph import loading
from tracer.graph.model import Node
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.observers import Observer
from tracer.interpreter.recording import TensorRecorder, named_tensors
from tracer.interpreter.values import Value
from tracer.quantization.calibration import CalibrationBatches
from tracer.quantization.twins import Twin, measured, twins
from tracer.records.quantized import LayerError
from tracer.support.progress import Progress, silent
from tracer.support.types import Array


def layer_errors(
    prepared: onnx.ModelProto,
    quantized: onnx.ModelProto,
    batches: CalibrationBatches,
    progress: Progress | None = None,
) -> tuple[LayerError, ...]:
    """Runs `quantized` and `prepared` on `batches`, and returns the error of each layer.

    The interpreter makes the results independent of the processor. Memory does not grow with the
    data: both graphs run one batch at a time.
    """
    report = progress or silent
    twins_by_name = twins(prepared, quantized)
    recorder = TensorRecorder({twin.original for twin in twins_by_name.values()})
    noise = _NoiseMeter(twins_by_name, recorder)
    plain = Interpreter(loading.from_proto(prepared), observers=[recorder])
    narrow = Interpreter(loading.from_proto(quantized), observers=[noise])
    for done, feeds in enumerate(batches, 1):
        recorder.tensors = dict(feeds)
        plain.run(None, feeds)
        narrow.run(None, feeds)
        report(done, len(batches), "comparing layers")
    return _rows(narrow.model.nodes, {node.name for node in prepared.graph.node}, noise)


class _NoiseMeter(Observer):
    """Sums the squares of finite values of float tensors, and of the errors of their twins."""

    def __init__(self, twins_by_name: Mapping[str, Twin], recorder: TensorRecorder) -> None:
        self._twins = twins_by_name
        self._recorder = recorder
        self._sums: dict[str, Array] = {}

    def after(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Compares tensors that have a twin."""
        for name, value in named_tensors(node, outputs):
            twin = self._twins.get(name)
            real = None if twin is None else self._recorder.tensors.get(twin.original)
            if twin is not None and isinstance(real, np.ndarray) and real.dtype.kind == "f":
                finite = np.isfinite(real)
                wide = np.where(finite, real, 0).astype(np.float64)
                lost = np.where(finite, wide - twin.real(value), 0)
                squares = np.array([np.vdot(wide, wide), np.vdot(lost, lost)])
                self._sums[name] = self._sums.get(name, 0) + squares

    def share(self, name: str) -> float | None:
        """Returns noise / signal of a tensor of the quantised graph; None without a twin."""
        twin = measured(name, self._twins)
        if twin is None or twin not in self._sums:
            return None
        signal, noise = self._sums[twin].tolist()
        if not noise:
            return 0.0
        if math.isnan(noise):  # the quantised graph has no number where the other one has one
            return math.inf
        return noise / signal if signal else math.inf


def _rows(nodes: Sequence[Node], prepared: set[str], noise: _NoiseMeter) -> tuple[LayerError, ...]:
    rows = []
    for node in nodes:
        share = noise.share(node.outputs[0]) if node.key in prepared else None
        if share is None:
            continue
        before = max((noise.share(name) or 0.0 for name in node.inputs), default=0.0)
        added = 0.0 if share == before else share - before
        rows.append(LayerError(node.key, node.op_type, node.module, _decibels(share), added))
    return tuple(rows)


def _decibels(share: float) -> float:
    return -10 * math.log10(share) if 0 < share < math.inf else math.copysign(math.inf, 0.5 - share)
