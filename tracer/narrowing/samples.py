"""What nodes read and should return on calibration data, and how far their partial sums reach.

One order of the input channels serves all output channels, so it balances many sums at once: those
outputs of the samples whose partial sums reach farthest. Two orders are tried: positive and
negative channels of the farthest output in turn, and a greedy one that takes the channel next that
keeps all these sums the smallest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tracer.interpreter.values import Value
from tracer.narrowing.layers import Layer, PlainSum
from tracer.narrowing.requirement import MARGIN, Registers
from tracer.narrowing.rounding import Correlations, product
from tracer.support.types import Array, FloatArray

_MOST_NUMBERS = 1 << 27
"""Partial sums that are computed; columns beyond are left out, every so many."""
_BLOCK = 1 << 22
"""Partial sums at a time."""


def least_units(layer: Layer, inputs: FloatArray, registers: Registers) -> FloatArray:
    """Returns the least real numbers (M,) for an integer of a sum at which all sums fit.

    A row fits whose partial sums, transient ones too, reach the largest number of the register
    divided by `MARGIN`.
    """
    return MARGIN * largest_sums(layer, inputs, registers) / registers.need.largest


def largest_sums(layer: Layer, inputs: FloatArray, registers: Registers) -> FloatArray:
    """Returns the largest magnitudes (M,) of partial sums of the layer as it is, in real units.

    `inputs` (count, groups, K) are real. Each register begins anew, and the bias comes first where
    a register has it.
    """
    most = np.zeros(len(layer.integers))
    for group, rows in enumerate(np.split(np.arange(len(most)), layer.groups)):
        start = first_terms(layer, registers)[rows]
        few = thin_out(inputs[:, group], layer.integers[rows].size)
        outputs = output_extremes(few, layer.weights[rows], start, registers)
        most[rows] = outputs.max(0, initial=0)
    return most


def thin_out(inputs: FloatArray, size: int) -> FloatArray:
    """Returns every so many of the inputs (count, K) of a layer with `size` weights."""
    return inputs[:: max(len(inputs) * size // _MOST_NUMBERS, 1)]


def first_terms(layer: Layer, registers: Registers) -> FloatArray:
    """Returns what the first register of each sum (M,) begins with: the bias, or 0."""
    if layer.bias is None or not registers.has_bias:
        return np.zeros(len(layer.integers))
    return layer.bias


def output_extremes(
    inputs: FloatArray,
    weights: FloatArray,
    start: FloatArray,
    registers: Registers,
    order: Array | None = None,
) -> FloatArray:
    """Returns the largest magnitude of a partial sum of each output (count, M).

    They are those of inputs (count, K) times weights (M, K), with the terms in an `order` (K,).
    """
    if order is not None:
        weights, inputs = weights[:, order], inputs[:, order]
    height = max(_BLOCK // weights.size, 1)
    blocks = (inputs[first : first + height] for first in range(0, len(inputs), height))
    return np.concatenate(
        [term_extremes(x[:, None] * weights, start, registers.starts) for x in blocks]
    )


def term_extremes(terms: FloatArray, start: FloatArray, starts: tuple[int, ...]) -> FloatArray:
    """Returns the largest magnitudes of the partial sums of terms (..., K).

    A register takes the terms from one of `starts` to the next; the first begins with `start`.
    """
    most = np.broadcast_to(np.abs(start), terms.shape[:-1])
    ends = (*starts[1:], terms.shape[-1])
    for number, (low, high) in enumerate(zip(starts, ends, strict=True)):
        sums = np.cumsum(terms[..., low:high], axis=-1)
        sums += (start if number == 0 else 0 * start)[..., None]
        most = np.maximum(most, np.abs(sums).max(-1, initial=0))
    return most


_MOST_ORDERED, _LEAST_ORDERED = 256, 16
"""Outputs that an order is made for, at a time."""
_MOST_GREEDY = 1 << 28
"""Sums that the greedy order looks at: channels squared times outputs. It takes a second or two."""
_ROUNDS = 4
"""Times that outputs which an order carries too far are added to those that orders are made for."""
_TIE = 1e-3
"""Weight of the mean square of the sums beside their largest magnitude, in the greedy order."""


def find_order(
    layer: Layer, inputs: FloatArray, registers: Registers, most: FloatArray
) -> Array | None:
    """Returns an order (channels,) in which partial sums have magnitudes up to `most` (M,).

    `inputs` (count, K) of a layer without groups are real, as `most`. None where no order
    that was tried fits.
    """
    search = _Search(layer, thin_out(inputs, layer.integers.size), registers, most)
    extreme = search.farthest(search.extremes(None))
    for _ in range(_ROUNDS):
        order = search.order_for(extreme)
        if order is None:
            return None
        reached = search.extremes(order)
        if reached.max(initial=0) <= 1:
            return order
        extreme = np.union1d(extreme, search.farthest(reached))
    return None


def terms_of(order: Array, window: int) -> Array:
    """Returns the order of the terms (channels * window,): the window of a channel moves whole."""
    return (order[:, None] * window + np.arange(window)).reshape(-1)


@dataclass(frozen=True, slots=True)
class _Search:
    """A layer, its inputs (count, K), and what its sums (M,) may reach.

    The place of an output is the number of its sample times M, plus that of its row.
    """

    layer: Layer
    inputs: FloatArray
    registers: Registers
    most: FloatArray

    def extremes(self, order: Array | None) -> FloatArray:
        """Returns how far the partial sums of each output (count, M) reach, 1 as far as allowed."""
        terms = None if order is None else terms_of(order, self.layer.window)
        start = first_terms(self.layer, self.registers)
        most = output_extremes(self.inputs, self.layer.weights, start, self.registers, terms)
        return most / self.most

    def farthest(self, reached: FloatArray) -> Array:
        """Returns the places of the outputs that reach farthest."""
        channels = self.layer.depth // self.layer.window
        few = _MOST_GREEDY // max(channels**2, 1)
        few = min(max(few, _LEAST_ORDERED), _MOST_ORDERED, reached.size)
        return np.argsort(-reached, axis=None, kind="stable")[:few]

    def order_for(self, places: Array) -> Array | None:
        """Returns the first order in which the sums at these places fit."""
        samples, rows = np.divmod(places, len(self.most))
        products = self.inputs[samples] * self.layer.weights[rows] / self.most[rows, None]
        start = first_terms(self.layer, self.registers)[rows] / self.most[rows]
        terms = products.reshape(len(places), -1, self.layer.window)
        sums = _Sums(terms, start, self.registers.starts)
        if len(self.registers.starts) == 1 and np.abs(sums.totals).max(initial=0) > 1:
            return None
        for propose in (sums.interleave, sums.order_greedily):
            order = propose()
            if sums.extremes(order) <= 1:
                return order
        return None


@dataclass(frozen=True, slots=True)
class _Sums:
    """Terms (sums, channels, window) of sums that begin with `start`, in registers of `starts`.

    The unit is what a sum may reach. The first sum reaches farthest in the order of the layer.
    """

    terms: FloatArray = field(repr=False)
    start: FloatArray = field(repr=False)
    starts: tuple[int, ...]

    @property
    def channels(self) -> FloatArray:
        """What each channel adds (sums, channels)."""
        result: FloatArray = self.terms.sum(2)
        return result

    @property
    def totals(self) -> FloatArray:
        """The sums (sums,) of all terms, if there is one register."""
        result: FloatArray = self.start + self.channels.sum(1)
        return result

    def extremes(self, order: Array) -> float:
        """Returns the largest magnitude of a partial sum, with the channels in an order."""
        terms = self.terms[:, order].reshape(len(self.terms), -1)
        return float(term_extremes(terms, self.start, self.starts).max(initial=0))

    def interleave(self) -> Array:
        """Returns positive and negative channels of the first sum in turn, the largest first."""
        added, total, order = self.channels[0], self.start[0], list[int]()
        rising = np.argsort(np.abs(added), kind="stable")
        up, down = ([*rising[is_side]] for is_side in (added[rising] > 0, added[rising] <= 0))
        while up or down:
            side = up if up and (total <= 0 or not down) else down
            order.append(int(side.pop()))
            total += added[order[-1]]
        return np.array(order)

    def order_greedily(self) -> Array:
        """Returns channels, of which each keeps the largest magnitude of all sums the smallest."""
        window, count = self.terms.shape[2], self.terms.shape[1]
        left, order, total = np.arange(count), list[int](), self.start
        whole = _Channels.of(self.terms, [])
        for place in range(count):
            first = place * window
            cuts = [cut - first for cut in self.starts[1:] if first <= cut < first + window]
            channels = _Channels.of(self.terms, cuts) if cuts else whole
            far = channels.extremes(total, left)
            best = int((far.max(0) + _TIE * (far**2).mean(0)).argmin())
            order.append(int(left[best]))
            total = channels.after(total, order[-1])
            left = np.delete(left, best)
        return np.array(order)


@dataclass(frozen=True, slots=True)
class _Channels:
    """How far a sum goes within the window of each channel: arrays (sums, channels).

    It rises to `top` and falls to `bottom` above what it was, and ends `end` above it. Where a new
    register begins within the window, `inner` is how far its sums go by themselves, and `end` is
    the sum of the last register.
    """

    top: FloatArray = field(repr=False)
    bottom: FloatArray = field(repr=False)
    end: FloatArray = field(repr=False)
    inner: FloatArray | None = field(repr=False)

    @classmethod
    def of(cls, terms: FloatArray, cuts: list[int]) -> "_Channels":
        """Returns those of terms (sums, channels, window); registers begin at `cuts`."""
        first, *others = np.split(terms, cuts, axis=2)
        sums = np.cumsum(first, axis=2)
        top, bottom = sums.max(2, initial=0), sums.min(2, initial=0)
        if not others:
            return cls(top, bottom, sums[:, :, -1], None)
        zero = np.zeros(terms.shape[:2])
        inner = np.max([term_extremes(part, zero, (0,)) for part in others], axis=0)
        return cls(top, bottom, others[-1].sum(2), inner)

    def extremes(self, sums: FloatArray, left: Array) -> FloatArray:
        """Returns how far each of `sums` goes (sums, left) if a channel that is left is next."""
        total = sums[:, None]
        far = np.maximum(np.abs(total + self.top[:, left]), np.abs(total + self.bottom[:, left]))
        return far if self.inner is None else np.maximum(far, self.inner[:, left])

    def after(self, sums: FloatArray, channel: int) -> FloatArray:
        """Returns the sums after a channel."""
        return self.end[:, channel] + (sums if self.inner is None else 0)


_LEAST, _FOR_EACH_INPUT = 2048, 4
"""Columns of a layer: as many, or so many for each of its K inputs."""
_MOST_SAMPLES = 1 << 25
"""Numbers of all columns of a layer: 256 MiB."""
_MOST_OUTPUTS = 1 << 22
"""Outputs of a node without weights that are compared."""
_FEW, _MANY = 64, 256
"""Output channels on which changes of a layer with more than many of them are compared."""
_FEWEST, _DEEP = 16, 512
"""The same for layers of more than so many inputs: their factors take as long as all else."""


@dataclass(frozen=True, slots=True)
class LayerSamples:
    """Random outputs of a layer: `wanted` (count, M), for `wide` inputs (count, groups, K).

    `read` are the inputs in the narrowed model. All are real numbers.
    """

    layer: Layer
    wide: FloatArray = field(repr=False)
    read: FloatArray = field(repr=False)
    wanted: FloatArray = field(repr=False)
    shares: bool = False
    """Whether fits on all grids share the correlations of inputs on the layer's own grid."""
    base: list[tuple[Correlations, float]] = field(default_factory=list, init=False, repr=False)
    """These correlations, once they are known."""
    _least_units: dict[Registers, FloatArray] = field(default_factory=dict, init=False, repr=False)

    def some_outputs(self) -> "LayerSamples":
        """Returns some of the output channels, evenly spaced; all where they are not many.

        There are fewer for a layer that is large, whose grids share correlations as well.
        """
        outputs, is_large = len(self.layer.integers), self.layer.depth > _DEEP
        if (outputs <= _MANY and not is_large) or self.layer.groups > 1:
            return self
        few = min(_FEWEST if is_large else _FEW, outputs)
        rows = np.linspace(0, outputs - 1, few).astype(np.int64)
        some = self.layer.of_outputs(rows)
        return LayerSamples(some, self.wide, self.read, self.wanted[:, rows], is_large)

    def in_order(self, order: Sequence[int]) -> "LayerSamples":
        """Returns the samples with the terms of the layer in an order (K,)."""
        layer = replace(self.layer, integers=self.layer.integers[:, order])
        return replace(self, layer=layer, wide=self.wide[..., order], read=self.read[..., order])

    def least_units(self, registers: Registers) -> FloatArray:
        """Returns the least real numbers (M,) for an integer of a sum at which the samples fit.

        They are computed once, since measures try many grids.
        """
        if registers not in self._least_units:
            self._least_units[registers] = least_units(self.layer, self.wide, registers)
        return self._least_units[registers]


@dataclass(frozen=True, slots=True)
class SumSamples:
    """Batches of a node without weights: `wanted` outputs, and inputs in the narrowed model.

    `compute` returns the output of the node for inputs of one batch.
    """

    node: PlainSum
    compute: Callable[[Sequence[Value]], Value] = field(repr=False)
    read: Sequence[Sequence[Value]] = field(repr=False)
    wanted: Sequence[Array] = field(repr=False)

    def outputs(self, inputs: Sequence[Sequence[Value]]) -> list[Array]:
        """Returns the outputs of the node for batches of inputs."""
        return [np.asarray(self.compute(each)) for each in inputs]


@dataclass(frozen=True, slots=True)
class Batch:
    """The inputs of a node in the wide and in the narrowed model, and its wide output."""

    wide: Sequence[Value]
    read: Sequence[Value]
    wanted: Array


def layer_samples(layer: Layer, batches: Sequence[Batch]) -> LayerSamples:
    """Returns random outputs of all batches; the choice depends on nothing but their number."""
    most = _MOST_SAMPLES // (layer.depth * layer.groups)
    columns = max(min(max(_LEAST, _FOR_EACH_INPUT * layer.depth), most), 1)
    count = -(-columns // len(batches))
    wide, read = (
        np.concatenate([
            layer.columns(inputs[0], count, np.random.default_rng(number))
            for number, inputs in enumerate(sides)
        ])
        for sides in ([each.wide for each in batches], [each.read for each in batches])
    )  # fmt: skip
    groups = np.split(layer.weights, layer.groups)
    wanted = np.concatenate([product(wide[:, n], rows.T) for n, rows in enumerate(groups)], axis=1)
    return LayerSamples(layer, wide, read, wanted if layer.bias is None else wanted + layer.bias)


def sum_samples(
    node: PlainSum, compute: Callable[[Sequence[Value]], Value], batches: Sequence[Batch]
) -> SumSamples:
    """Returns the first batches, as many as are compared."""
    size = max(np.asarray(batches[0].wanted).size, 1)
    few = batches[: max(_MOST_OUTPUTS // size, 1)]
    return SumSamples(node, compute, [each.read for each in few], [each.wanted for each in few])
