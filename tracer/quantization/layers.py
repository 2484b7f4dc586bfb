"""Measures what a quantised graph loses, layer by layer, in the reference interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracer.graph.model import Model, Node
from tracer.graph.operators import channel_axes
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.observers import Observer, TensorRecorder, named_tensors
from tracer.interpreter.values import Value
from tracer.quantization.calibration import CalibrationBatches
from tracer.quantization.joins import JoinedRanges
from tracer.quantization.noise import Noise, decibels
from tracer.quantization.time_left import within_time
from tracer.quantization.twins import Twin, measured, twins
from tracer.records.transformed import LayerError, OutputError
from tracer.support.progress import Progress, silent

_SHARE = 0.5
"""Of the time that is left; the accuracy is measured afterwards."""


@dataclass(frozen=True, slots=True)
class Losses:
    """The errors of the layers, in the order of the graph, and of the outputs; and notes."""

    layers: tuple[LayerError, ...]
    outputs: tuple[OutputError, ...]
    notes: tuple[str, ...]


def losses(
    prepared: Model,
    quantized: Model,
    batches: CalibrationBatches,
    progress: Progress | None = None,
) -> Losses:
    """Runs `quantized` and `prepared` on `batches`, and returns the errors of the first.

    The interpreter makes the results independent of the processor. Memory does not grow with the
    data: both graphs run one batch at a time. Where the time limit of the command does not suffice,
    it measures fewer batches, and says so.
    """
    report = progress or silent
    twins_by_name = twins(prepared.proto, quantized.proto)
    recorder = TensorRecorder({twin.original for twin in twins_by_name.values()})
    axes = channel_axes(prepared.graph)
    noise, joined = _NoiseMeter(twins_by_name, recorder, axes), JoinedRanges(quantized)
    plain = Interpreter(prepared, observers=[recorder, joined])
    narrow = Interpreter(quantized, observers=[noise])
    done = 0
    for done, feeds in enumerate(within_time(batches, _SHARE), 1):
        recorder.tensors = dict(feeds)
        plain.run(None, feeds)
        narrow.run(None, feeds)
        report(done, len(batches), "comparing layers")
    layers = _layers(narrow.model.nodes, {node.name for node in prepared.graph.node}, noise)
    outputs = _outputs([value.name for value in prepared.graph.output], noise)
    lost = filter(None, map(_lost_note, outputs))
    return Losses(layers, outputs, (*joined.notes(), *lost, *_early_note(done, len(batches))))


def _early_note(done: int, total: int) -> tuple[str, ...]:
    """Returns a note where not all batches were measured."""
    if done == total:
        return ()
    return (f"out of time: the layers were measured on {done:,} of {total:,} batches",)


class _NoiseMeter(Observer):
    """Sums the signal and the noise of float tensors, over their finite values, by their twins.

    `axes` are those of the channels of float tensors, where known.
    """

    def __init__(
        self,
        twins_by_name: Mapping[str, Twin],
        recorder: TensorRecorder,
        axes: Mapping[str, int],
    ) -> None:
        self._axes = axes
        self._twins = twins_by_name
        self._recorder = recorder
        self._noise: dict[str, Noise] = {}

    def after(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Compares tensors that have a twin."""
        for name, value in named_tensors(node, outputs):
            twin = self._twins.get(name)
            real = None if twin is None else self._recorder.tensors.get(twin.original)
            if twin is not None and isinstance(real, np.ndarray) and real.dtype.kind == "f":
                finite = np.isfinite(real)
                wide = np.where(finite, real, 0).astype(np.float64)
                lost = np.where(finite, wide - twin.real(value), 0)
                if name not in self._noise:
                    self._noise[name] = Noise(self._axes.get(twin.original))
                self._noise[name].add(wide, lost)

    def of(self, name: str) -> Noise | None:
        """Returns the noise of a tensor of the quantised graph; None without a twin."""
        return self._noise.get(measured(name, self._twins) or "")


def _layers(
    nodes: Sequence[Node], prepared: set[str], meter: _NoiseMeter
) -> tuple[LayerError, ...]:
    rows = []
    for node in nodes:
        noise = meter.of(node.outputs[0]) if node.key in prepared else None
        if noise is None:
            continue
        read = filter(None, map(meter.of, node.inputs))
        before = max((each.share for each in read), default=0.0)
        added = 0.0 if noise.share == before else noise.share - before
        row = (node.key, node.op_type, node.module, decibels(noise.share), added)
        rows.append(LayerError(*row, noise.worst_channel))
    return tuple(rows)


def _outputs(names: Sequence[str], meter: _NoiseMeter) -> tuple[OutputError, ...]:
    measured_outputs = [(name, meter.of(name)) for name in names]
    return tuple(
        OutputError(name, decibels(noise.share), noise.worst_channel)
        for name, noise in measured_outputs
        if noise is not None
    )


def _lost_note(output: OutputError) -> str | None:
    """Returns a note on channels of an output that are lost; None without any."""
    worst = output.worst_channel
    if worst is None or not worst.lost:
        return None
    return (
        f"output '{output.output}' loses {worst.lost:,} of its {worst.count:,} channels (axis "
        f"{worst.axis}): an SQNR below 6 dB leaves less than one bit, and channel {worst.index} "
        f"has {worst.sqnr_db:.1f} dB. The {output.sqnr_db:.1f} dB of the whole output are those of "
        "its largest values"
    )
