"""What quantisation costs: accuracy, the errors of layers and outputs, Concats of unlike ranges.

Each quantised layer has a float counterpart, whose output on the same data is compared. Data are
read as far as the time limit of the command allows.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import onnx

from tracer.containment import signals
from tracer.containment.activity import Progress, silent
from tracer.errors import locate_errors
from tracer.graph import operators
from tracer.graph.model import Model, Node
from tracer.inputs.datasets.batch import Batch
from tracer.inputs.datasets.dataset import Dataset
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.observers import Observer, TensorRecorder, named_tensors
from tracer.interpreter.ops.quantization import dequantize_linear
from tracer.interpreter.values import Value, from_tensor
from tracer.metrics import Metric, default_metric, scores, suited
from tracer.quantization.calibration import CalibrationBatches
from tracer.records.transformed import Accuracy, LayerError, OutputError, WorstChannel
from tracer.support.types import Array, FloatArray
from tracer.text import agree, plural

_Part = TypeVar("_Part")
_LAYERS_SHARE, _SCORES_SHARE = 0.5, 0.8
"""Shares of the time that is left for the layers, and afterwards for the accuracy."""


def within_time(parts: Iterable[_Part], share: float) -> Iterator[_Part]:
    """Yields `parts` while `share` of the time that is left suffices; the first in any case.

    A part is expected to take as long as the longest one before. What is done with a part counts.
    """
    began = time.monotonic()
    ends = began + share * signals.seconds_left()
    longest = 0.0
    for part in parts:
        now = time.monotonic()
        if longest and now + longest > ends:
            return
        yield part
        longest = max(longest, time.monotonic() - now)


def accuracy(
    wide: Interpreter,
    quantized: Interpreter,
    dataset: Dataset,
    metric: Metric | None,
    batch: int,
    progress: Progress = silent,
    session: Any = None,
) -> tuple[Accuracy | None, tuple[str, ...]]:
    """Scores a float model, `wide`, and a quantised one on all samples of `dataset`, by `batch`.

    `session` is one of onnxruntime on the quantised model, whose sums may saturate where those of
    the interpreter do not; None is not scored. A metric without labels compares with the float
    model. Without a metric, chooses one that fits labels and outputs, and returns None where none
    does. Where the time limit of the command does not suffice, scores the first samples. Notes say
    what the metric does not show of the float model's outputs. Raises the errors of the metric.
    """
    runners = [wide, quantized, *([] if session is None else [session])]
    scored: list[list[Array]] = [[] for _ in runners]
    shown: list[tuple[scores.ClassCounts, scores.ChannelSquares]] = []
    done, total = 0, dataset.samples
    for part in within_time(dataset.batches(batch), _SCORES_SHARE):
        before, *others = (_outputs(each, part) for each in runners)
        first = next(iter(before.values()))
        metric = metric or default_metric(part, first)
        if metric is None:
            return None, ()
        metric = suited(metric, part, first)
        shown.append((scores.class_counts(metric, before), scores.channel_squares(metric, before)))
        truth = metric.labels(part, dataset.name) if metric.needs_labels else before
        for all_scores, outputs in zip(scored, (before, *others), strict=True):
            with locate_errors(dataset.name):
                all_scores.append(metric.scores(outputs, truth))
        done += part.size
        progress(done, total or done, "comparing outputs")
    if metric is None:
        return None, ()
    values = [metric.value(np.concatenate(each)) for each in scored]
    classes, squares = zip(*shown, strict=True)
    notes = (
        scores.one_class_note(metric, classes),
        scores.no_hit_note(metric, np.concatenate(scored[0])),
        scores.unlike_channels_note(metric, squares),
    )
    here = values[2] if session is not None else None
    measured = Accuracy(metric.name, metric.unit, values[0], values[1], done, here)
    return measured, tuple(filter(None, notes))


def check_metric(model: Model, dataset: Dataset, metric: Metric) -> None:
    """Raises the errors of `metric` that one sample of `dataset` shows, before all the others."""
    sample = next(dataset.batches(1))
    outputs = _outputs(Interpreter(model), sample)
    metric = suited(metric, sample, next(iter(outputs.values())))
    truth = metric.labels(sample, dataset.name) if metric.needs_labels else outputs
    with locate_errors(dataset.name):
        metric.scores(outputs, truth)


def _outputs(runner: Any, batch: Batch) -> dict[str, Array]:
    """The outputs of the samples of the data set, in rows: a fixed batch may be padded.

    A scalar is the row of one sample. `runner` is an interpreter or a session of onnxruntime.
    """
    names = [value.name for value in runner.get_outputs()]
    rows = [np.atleast_1d(value) for value in runner.run(None, dict(batch.inputs))]
    return {name: value[: batch.size] for name, value in zip(names, rows, strict=True)}


_FEWEST_STEPS = 16
"""Steps that each input of a Concat needs: 4 of 8 bits, of ranges that differ up to 16 times."""

_MOST_NOTES = 3


class ConcatRanges(Observer):
    """Observes the float graph, and tells which Concats `quantized` gives too coarse a scale."""

    def __init__(self, quantized: Model) -> None:
        self._scales = {
            weight.name.removesuffix("_scale"): float(from_tensor(weight, quantized.folder).max())
            for weight in quantized.graph.initializer
            if weight.name.endswith("_scale")
        }
        self._ranges: dict[str, dict[str, tuple[float, float]]] = {}
        self._nodes: dict[str, Node] = {}

    def after(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Widens the ranges of the inputs of a Concat whose output has a scale."""
        is_join = node.op_type == "Concat" and not node.scope.path  # names in bodies may repeat
        if not is_join or node.outputs[0] not in self._scales:
            return
        self._nodes[node.key] = node
        ranges = self._ranges.setdefault(node.key, {})
        for name, value in zip(node.inputs, inputs, strict=True):
            finite = value[np.isfinite(value)] if isinstance(value, np.ndarray) else np.zeros(0)
            low, high = ranges.get(name, (0.0, 0.0))
            ranges[name] = float(finite.min(initial=low)), float(finite.max(initial=high))

    def notes(self) -> tuple[str, ...]:
        """Returns a note for each of the worst Concats, and one for the others."""
        worst = []  # the fewest steps that an input of a node has, where these are too few
        for key, node in self._nodes.items():
            steps = [
                ((high - low) / self._scales[node.outputs[0]], key, name)
                for name, (low, high) in self._ranges[key].items()
                if low < high  # ranges include 0, and inputs that are all 0 have none
            ]
            worst += sorted(each for each in steps if each[0] < _FEWEST_STEPS)[:1]
        worst.sort()
        told = []
        for count, key, name in worst[:_MOST_NOTES]:
            scale = self._scales[self._nodes[key].outputs[0]]
            low, high = self._ranges[key][name]
            ends = [end for ranges in self._ranges[key].values() for end in ranges]
            told.append(
                f"Concat '{key}' joins values of unlike ranges in one scale: the steps are "
                f"{scale:.2g} for {min(ends):.3g} to {max(ends):.3g}, and '{name}', from {low:.3g} "
                f"to {high:.3g}, has {count:.1f} of them. --exclude '{key}' keeps it in float"
            )
        if (more := len(worst) - _MOST_NOTES) > 0:
            told.append(
                f"{plural(more, 'more Concat')} {agree(more, 'joins', 'join')} values of unlike "
                "ranges: "
                "--exclude Concat keeps them all in float"
            )
        return tuple(told)


_LOST = 1 / 4
"""Noise / signal above which a channel is lost: that is 6.02 dB, what a bit is worth."""


class Noise:
    """Sums of the squares of a tensor's values x and of its errors x - q.

    `axis` is that of the channels, negative if counted from the end. Without it, all axes that may
    have them are looked at.
    """

    def __init__(self, axis: int | None = None) -> None:
        self._axis = axis
        self._whole = np.zeros((2, 1))
        self._by_axis: dict[int, FloatArray | None] = {}

    def add(self, values: Array, errors: Array) -> None:
        """Adds a batch: float64 arrays of one shape, with 0 for what is not to count."""
        self._whole += _sums(0, values.reshape(1, -1), errors.reshape(1, -1))
        for axis in self._axes(values.ndim):
            sums = _sums(axis, values, errors)
            before = self._by_axis.get(axis, np.zeros_like(sums))
            if before is None or before.shape != sums.shape:  # a length, then
                self._by_axis[axis] = None
            else:
                self._by_axis[axis] = before + sums

    def _axes(self, rank: int) -> tuple[int, ...]:
        if self._axis is None or not -rank <= self._axis < rank:
            return scores.channel_axes(rank)
        return tuple(axis for axis in (self._axis % rank,) if axis)  # axis 0 has samples

    @property
    def share(self) -> float:
        """Noise / signal: 0 without noise, infinite for noise alone and for NaN."""
        return float(_shares(self._whole)[0])

    @property
    def worst_channel(self) -> WorstChannel | None:
        """The noisiest channel; None for a tensor without channels, or with one."""
        found = []
        for axis, sums in self._by_axis.items():
            if sums is not None and sums.shape[1] > 1:
                shares = _shares(sums)
                index = int(shares.argmax())
                found.append((float(shares[index]), axis, index, shares))
        if not found:
            return None
        share, axis, index, shares = max(found, key=lambda each: each[0])
        lost = int((shares > _LOST).sum())
        return WorstChannel(axis, index, decibels(share), lost, len(shares))


def _sums(axis: int, values: Array, errors: Array) -> FloatArray:
    """Returns (signal, noise) of each slice along an axis."""
    return np.stack([scores.squares_along(axis, each) for each in (values, errors)])


def decibels(share: float) -> float:
    """Returns the SQNR for noise / signal; infinite for 0, and minus infinite for infinity."""
    if not 0 < share < math.inf:
        return math.copysign(math.inf, 0.5 - share)
    return 10 * math.log10(1 / share)


def _shares(sums: FloatArray) -> FloatArray:
    """Returns noise / signal of each column of (signal, noise), float64."""
    signal, noise = sums
    noise = np.where(np.isnan(noise), np.inf, noise)  # no number where the other graph has one
    silent = np.where(noise > 0, np.inf, 0.0)
    with np.errstate(invalid="ignore"):  # of infinities on both sides
        return np.asarray(np.divide(noise, signal, out=silent, where=(signal > 0) & (noise > 0)))


_DEQUANTIZED, _QUANTIZED, _BEFORE = (
    "_DequantizeLinear_Output",
    "_quantized",
    "_QuantizeLinear_Input",
)
"""Suffixes that onnxruntime.quantization appends to the name of a tensor."""

_CLIPPING = frozenset({"Relu", "Clip"})
"""Operators that the range of a quantised tensor can replace."""


@dataclass(frozen=True, slots=True)
class FloatCounterpart:
    """A tensor of the quantised graph that represents `original`; integers have a `scale`."""

    original: str
    scale: Array | None = None
    zero_point: Array | None = None

    def real(self, value: Array) -> Array:
        """Returns the float32 values of the tensor."""
        if self.scale is None:
            return value
        return dequantize_linear(value, self.scale, self.zero_point)


def float_counterparts(
    prepared: onnx.ModelProto, quantized: onnx.ModelProto
) -> dict[str, FloatCounterpart]:
    """Returns the twins by their names in the quantised graph.

    An activation function that the quantised graph lacks is part of the node before it.
    """
    producers = {name: node for node in quantized.graph.node for name in node.output}
    stored = {w.name: w for w in quantized.graph.initializer}
    remaining = {node.name for node in quantized.graph.node}
    clipped = {
        node.input[0]: str(node.output[0])
        for node in reversed(prepared.graph.node)
        if node.op_type in _CLIPPING and node.name not in remaining
    }
    names = [value.name for value in prepared.graph.input]
    names += [name for node in prepared.graph.node for name in node.output]
    by_name: dict[str, FloatCounterpart] = {}
    for name in names:
        if name + _DEQUANTIZED in producers:
            by_name[name + _DEQUANTIZED] = FloatCounterpart(name)
        elif name + _QUANTIZED in producers:
            scale, zero = _parameters(name + _QUANTIZED, producers, stored)
            if scale is not None:
                original = clipped.get(name, name)
                by_name[name + _QUANTIZED] = FloatCounterpart(original, scale, zero)
        elif name in producers:
            by_name[name] = FloatCounterpart(name)
    return by_name


def _parameters(
    name: str, producers: Mapping[str, onnx.NodeProto], stored: Mapping[str, onnx.TensorProto]
) -> tuple[Array | None, Array | None]:
    """Scale and zero point; a node that only moves elements has those of its input."""
    while name in producers:
        base = name.removesuffix(_QUANTIZED)
        if f"{base}_scale" in stored:
            zero = stored.get(f"{base}_zero_point")
            scale = onnx.numpy_helper.to_array(stored[f"{base}_scale"])
            return scale, None if zero is None else onnx.numpy_helper.to_array(zero)
        name = producers[name].input[0]
    return None, None


@dataclass(frozen=True, slots=True)
class Losses:
    """The errors of the layers, in the order of the graph, and of the outputs; and notes."""

    layers: tuple[LayerError, ...]
    outputs: tuple[OutputError, ...]
    notes: tuple[str, ...]


def losses(
    prepared: Model, quantized: Model, batches: CalibrationBatches, progress: Progress = silent
) -> Losses:
    """Runs `quantized` and `prepared` on `batches`, and returns the errors of the first.

    The interpreter makes the results independent of the processor. Memory does not grow with the
    data: both graphs run one batch at a time. Where the time limit of the command does not suffice,
    it measures fewer batches, and says so.
    """
    twins_by_name = float_counterparts(prepared.proto, quantized.proto)
    recorder = TensorRecorder({twin.original for twin in twins_by_name.values()})
    axes = operators.channel_axes(prepared.graph)
    noise, joined = _NoiseMeter(twins_by_name, recorder, axes), ConcatRanges(quantized)
    plain = Interpreter(prepared, observers=[recorder, joined])
    narrow = Interpreter(quantized, observers=[noise])
    done = 0
    for done, feeds in enumerate(within_time(batches, _LAYERS_SHARE), 1):
        recorder.tensors = dict(feeds)
        plain.run(None, feeds)
        narrow.run(None, feeds)
        progress(done, len(batches), "comparing layers")
    own, layers = {node.name for node in prepared.graph.node}, list[LayerError]()
    for node in narrow.model.nodes:
        added = noise.of(node.outputs[0]) if node.key in own else None
        if added is None:
            continue
        read = filter(None, map(noise.of, node.inputs))
        before = max((each.share for each in read), default=0.0)
        more = 0.0 if added.share == before else added.share - before
        row = (node.key, node.op_type, node.module, decibels(added.share), more)
        layers.append(LayerError(*row, added.worst_channel))
    of_outputs = [(each.name, noise.of(each.name)) for each in prepared.graph.output]
    outputs = tuple(
        OutputError(name, decibels(each.share), each.worst_channel)
        for name, each in of_outputs
        if each is not None
    )
    notes = list(joined.notes())
    for output in outputs:
        worst = output.worst_channel
        if worst is not None and worst.lost:
            notes.append(
                f"output '{output.output}' loses {worst.lost:,} of its {worst.count:,} channels "
                f"(axis {worst.axis}): an SQNR below 6 dB leaves less than one bit, and channel "
                f"{worst.index} has {worst.sqnr_db:.1f} dB. The {output.sqnr_db:.1f} dB of the "
                "whole output are those of its largest values"
            )
    if done != len(batches):
        notes.append(
            f"out of time: the layers were measured on {done:,} of {len(batches):,} batches"
        )
    return Losses(tuple(layers), outputs, tuple(notes))


class _NoiseMeter(Observer):
    """Sums the signal and the noise of float tensors, over their finite values, by their twins.

    `axes` are those of the channels of float tensors, where known.
    """

    def __init__(
        self,
        twins_by_name: Mapping[str, FloatCounterpart],
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
        base = name.removesuffix(_BEFORE)
        forms = (base + _DEQUANTIZED, name, base, base + _QUANTIZED)
        return self._noise.get(next((each for each in forms if each in self._twins), ""))
