"""Reductions and poolings: in which order the numbers of an axis or of a window are folded.

Of two zeros the maximum of a window is the one that the processor's instruction keeps: vectors the
second, the C library's `std::max` the first. Source of the ways of poolings: MLAS's `pooling.cpp`
and `SpoolKernel*.S`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import groupby, product
from math import prod
from typing import Any

import numpy as np

from tracer.arithmetic import c_library
from tracer.arithmetic.kernel import Facts, Inputs, Kernel, NotKnown, Rule
from tracer.arithmetic.replays import of_floats
from tracer.arithmetic.replays.elementwise import is_plain
from tracer.arithmetic.sums import products, sum_rules
from tracer.interpreter.compiled_code import loaded
from tracer.interpreter.numeric.windows import Window, window
from tracer.interpreter.ops.pooling import counts
from tracer.support.types import Array

_LANES = 4
_LOWEST = np.finfo(np.float32).min
_ZERO = np.float32(0)
_TEXTS = {
    "rows": "row by row of a window",
    "first": "row by row of a window, from its first number on",
    "columns": "along the columns of a window, then across",
    "lanes": "in 4 lanes",
}
Fold = Callable[[Array, Array], Array]


def _keep_first(a: Array, b: Array) -> Array:
    return np.where(b > a, b, a)


def _keep_second(a: Array, b: Array) -> Array:
    return np.where(a > b, a, b)


@dataclass(frozen=True)
class _Pooling:
    """`has_blocks` says that 8 or 16 channels lie side by side, as MLAS convolves them."""

    is_max: bool
    is_global: bool = False
    has_blocks: bool = False

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        shape = kernel.shape(0)
        assert shape is not None
        slid = self._window(kernel, shape)
        if (
            self.is_max
            and not self.has_blocks
            and max(len(kernel.node.output), *slid.dilations) > 1
        ):
            yield Rule(_TEXTS["first"], {"way": "first"})
            return
        if self.has_blocks:
            for block in (16, 8):
                if shape[1] % block == 0:
                    text = f"{_TEXTS['rows']}, {block} channels side by side"
                    yield Rule(text, {"way": "rows", "block": block})
            return
        ways = ["lanes", "columns", "rows"] if len(shape) > 3 else ["lanes", "rows"]
        is_whole = slid.kernel == shape[2:] and not any(slid.before) and set(slid.out) == {1}
        for way in ways:
            if way != "lanes" or is_whole:
                yield Rule(_TEXTS[way], {"way": way})

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        (x,) = kernel.values(inputs)
        shape, block = x.shape, facts.get("block", 1)
        slid = self._window(kernel, shape)
        if block > 1:
            x = np.moveaxis(x.reshape(shape[0], -1, *shape[2:], block), -1, 2)
        maps = np.ascontiguousarray(x).reshape(-1, *shape[2:])
        keep: Fold = _keep_second if self.has_blocks else _keep_first
        way = facts["way"]
        if self.is_max and is_plain(maps) and np.isfinite(maps).all():  # the order is of no account
            keep, way = np.maximum, "rows"
        if way == "first":
            out = _folded(maps, slid, maps.ndim - 1, keep, None)
        else:
            out = getattr(self, f"_{way}")(maps, slid, keep)
        if not self.is_max:
            with_padding = bool(kernel.attributes.get("count_include_pad", 0))
            out = out / counts(shape[2:], slid, with_padding).astype(np.float32)
        if block > 1:
            out = np.moveaxis(out.reshape(shape[0], -1, block, *slid.out), 2, -1)
        outputs = [np.ascontiguousarray(out).reshape(*shape[:2], *slid.out)]
        if len(kernel.node.output) > 1:
            outputs.append(kernel.interpret(inputs)[-1])
        return outputs

    def _window(self, kernel: Kernel, shape: tuple[int, ...]) -> Window:
        if self.is_global:
            return window(shape[2:], shape[2:], None, None, None, "NOTSET")
        a = kernel.attributes
        return window(
            shape[2:], a["kernel_shape"], a.get("strides"), a.get("pads"), a.get("dilations"),
            a.get("auto_pad", "NOTSET"), a.get("ceil_mode", 0),
        )  # fmt: skip

    def _rows(self, maps: Array, slid: Window, keep: Fold) -> Array:
        fold, start = (keep, _LOWEST) if self.is_max else (np.add, _ZERO)
        return _folded(maps, slid, maps.ndim - 1, fold, start)

    def _columns(self, maps: Array, slid: Window, keep: Fold) -> Array:
        """Folds all axes but the last, in vectors and what is left over, then across."""
        last, start = maps.ndim - 2, _LOWEST if self.is_max else _ZERO
        fold, first = _keep_second if self.is_max else np.add, None if last == 1 else start
        columns = _folded(maps, slid, last, fold, first)
        if self.is_max:
            alone = columns.shape[-1] // _LANES * _LANES
            columns[..., alone:] = _folded(maps[..., alone:], slid, last, _keep_first, first)
        padded = _padded(columns, slid, [last], start)
        across = [_slice(padded, slid, (k,), last) for k in range(slid.kernel[-1])]
        return np.asarray(reduce(fold, across))

    def _lanes(self, maps: Array, slid: Window, keep: Fold) -> Array:
        """Folds whole maps, each a sequence of vectors and what is left over."""
        rows = maps.reshape(len(maps), -1)
        end = rows.shape[1] // _LANES * _LANES
        vectors = rows[:, :end].reshape(len(maps), -1, _LANES)
        lanes = np.full((len(maps), _LANES), _LOWEST if self.is_max else _ZERO)
        fold = _keep_second if self.is_max else np.add
        for n in range(vectors.shape[1]):
            lanes = fold(lanes, vectors[:, n])
        pairs = fold(lanes[:, :2], lanes[:, 2:])
        total = fold(pairs[:, 0], pairs[:, 1])
        for n in range(end, rows.shape[1]):
            total = (_keep_first if self.is_max else np.add)(total, rows[:, n])
        return np.asarray(total).reshape(-1, *slid.out)


def _folded(maps: Array, slid: Window, axes: int, fold: Fold, start: np.float32 | None) -> Array:
    """Folds what windows have along the first axes, from `start`, or from their first number on.

    Padding is skipped: it would take the place of NaN, or of an infinity.
    """
    padded = _padded(maps, slid, range(axes), _ZERO)
    inside = _padded(np.ones((1, *maps.shape[1:]), bool), slid, range(axes), False)
    places = list(product(*map(range, slid.kernel[:axes])))
    total = np.full_like(_slice(padded, slid, places[0]), start or 0)
    is_empty = np.full(total.shape, start is None)
    for place in places:
        part, is_inside = _slice(padded, slid, place), _slice(inside, slid, place)
        total = np.where(is_inside, np.where(is_empty, part, fold(total, part)), total)
        is_empty = is_empty & ~is_inside
    return total


class _Norms(_Pooling):
    """Roots of sums of powers. Source: onnxruntime's `core/providers/cpu/nn/pool_base.h`."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        yield Rule(f"powers in float64, rounded, {_TEXTS['rows']}; the root in float32")

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        (x,) = kernel.values(inputs)
        slid, power = self._window(kernel, x.shape), kernel.attributes.get("p", 2)
        powers = c_library.power_of_doubles(np.abs(x), np.float64(power))
        sums = self._rows(powers.reshape(-1, *x.shape[2:]), slid, np.add)
        roots = c_library.power(sums, np.float32(1) / np.float32(power))
        return [roots.reshape(*x.shape[:2], *slid.out)]


def _padded(maps: Array, slid: Window, axes: Any, fill: Any) -> Array:
    """Returns maps (N, *size) padded along some axes, as far as windows reach."""
    around = [(0, 0)] * maps.ndim
    for axis in axes:
        reach = (slid.out[axis] - 1) * slid.strides[axis] + slid.extent[axis]
        before = slid.before[axis]
        around[1 + axis] = (before, max(reach - before - maps.shape[1 + axis], 0))
    return np.pad(maps, around, constant_values=fill)


def _slice(padded: Array, slid: Window, place: tuple[int, ...], first: int = 0) -> Array:
    """Returns what all windows have at a place, along the axes from `first` on."""
    index = [slice(None)] * (1 + first)
    for axis, offset in enumerate(place, first):
        low, step = offset * slid.dilations[axis], slid.strides[axis]
        index.append(slice(low, low + step * (slid.out[axis] - 1) + 1, step))
    return padded[tuple(index)]


_PACKAGE = "tracer.arithmetic.kernels"
_ORDERS = {
    "aligned": "in 8 lanes from the first aligned number on",
    "lanes": "in 8 lanes",
    "first": "one after the other",
    "zero": "one after the other, from 0",
    "blocks": "rows in 8 lanes from the first aligned number on, then row after row",
}
Step = Callable[[Array], Array]


@dataclass(frozen=True)
class _Axes:
    """The axes of a reduction: neighbours that are both kept, or both reduced, are one axis.

    `shape` are the lengths of these, `reduced` whether each is reduced; `out` is the shape of the
    result.
    """

    shape: tuple[int, ...]
    reduced: tuple[bool, ...]
    out: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many numbers a result is of."""
        return prod(n for n, is_reduced in zip(self.shape, self.reduced, strict=True) if is_reduced)

    def rows(self, x: Array) -> Array:
        """Returns the numbers of each result as a row."""
        order = sorted(range(len(self.shape)), key=lambda axis: self.reduced[axis])
        turned = x.reshape(self.shape).transpose(order)
        return np.ascontiguousarray(turned).reshape(-1, self.count)


def _axes(kernel: Kernel) -> _Axes:
    shape, attributes = kernel.shape(0), kernel.attributes
    stored = kernel.constant(1)
    if shape is None or (stored is None and kernel.shape(1) is not None):
        raise NotKnown("its axes are computed")
    given = attributes.get("axes", []) if stored is None else stored.tolist()
    if not given and not attributes.get("noop_with_empty_axes"):
        given = range(len(shape))
    chosen = {axis % len(shape) for axis in given}
    keeps = attributes.get("keepdims", 1)
    out = [1 if n in chosen else size for n, size in enumerate(shape) if keeps or n not in chosen]
    long = [(n in chosen, size) for n, size in enumerate(shape) if size != 1] or [(True, 1)]
    merged = [(key, prod(size for _, size in part)) for key, part in groupby(long, lambda n: n[0])]
    if not any(key for key, _ in merged):
        merged.append((True, 1))
    return _Axes(tuple(n for _, n in merged), tuple(key for key, _ in merged), tuple(out))


@dataclass(frozen=True)
class _Sum:
    """A sum of what `before` makes of the numbers; `after` takes the sum and how many they are."""

    before: Step | None = None
    after: Callable[[Array, int], Array] | None = None

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        axes = _axes(kernel)
        ways = ["first", "zero"]
        if axes.reduced[-1]:
            ways = ["aligned", "lanes", *ways]
        if axes.reduced == (True, False, True):
            ways = ["blocks", *ways]
        for way in ways:
            yield Rule(_ORDERS[way], {"way": way})
        if axes.reduced != (False, True, False) or self.before is not None:
            return
        ((name, (_, shape)),) = kernel.inputs.items()
        divisor = axes.count if self.after is not None else 1
        ones = np.ones(axes.shape, np.float32)

        def add(terms: Array) -> float:
            ones[0, :, 0] = terms
            out = kernel.run({name: ones.reshape(shape)})[0]
            return float(np.rint(out.flat[0] * divisor))

        for rule in sum_rules(add, axes.count):
            yield Rule(
                f"a row of ones times a matrix: {rule.text}", {"way": "product", **rule.facts}
            )

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        x, axes, way = kernel.values(inputs)[0], _axes(kernel), facts["way"]
        if self.before is not None:
            x = self.before(x)
        if way == "product":
            ones = np.ones((1, axes.count), np.float32)
            parts = x.reshape(axes.shape)
            total: Array = np.concatenate([products(facts, ones, part) for part in parts])
        elif way == "blocks":
            first, kept, last = axes.shape
            sums = _row_sums("aligned", x.reshape(-1, last)).reshape(first, kept)
            total = _row_sums("zero", np.ascontiguousarray(sums.T))
        else:
            total = _row_sums(way, axes.rows(x))
        if self.after is not None:
            total = self.after(total, axes.count)
        return [total.reshape(axes.out)]


def _row_sums(way: str, rows: Array) -> Array:
    out = np.empty(len(rows), np.float32)
    kernels = loaded("rows", _PACKAGE)
    if way in ("aligned", "lanes"):
        kernels.in_lanes(rows, way == "aligned", out)
    else:
        kernels.in_order(rows, way == "zero", out)
    return out


class _LogSumExp:
    """Source: `ReduceAggregatorLogSumExp` of onnxruntime, for which no infinity is the largest."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        _axes(kernel)
        yield Rule("exp of the C library of what is below the largest, added one after the other")

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        axes = _axes(kernel)
        rows = axes.rows(kernel.values(inputs)[0])
        compared = np.where(np.isinf(rows), -np.inf, rows).astype(np.float32)
        compared[:, 0] = np.where(np.isinf(rows[:, 0]), 0, rows[:, 0])
        largest = compared.max(1)
        total = np.add.accumulate(c_library.exp(rows - largest[:, None]), 1)[:, -1]
        return [(c_library.log(total) + largest).reshape(axes.out)]


@dataclass(frozen=True)
class _Extreme:
    """The largest or least number; of equal ones, and of one and NaN, the first in the order."""

    fold: Callable[..., Array]
    is_further: Fold

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        ways = ("aligned", "first") if _axes(kernel).reduced[-1] else ("first",)
        for way in ways:
            yield Rule(f"{_ORDERS[way]}; of equal numbers the first", {"way": way})

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        x, axes = kernel.values(inputs)[0], _axes(kernel)
        rows = axes.rows(x)
        out = np.asarray(self.fold(rows, axis=1))
        others = np.flatnonzero((out == 0) | np.isnan(out))  # whose bits depend on the order
        phases = range(_LANES) if facts["way"] == "aligned" else ()
        for phase in phases:
            which = others[others % _LANES == phase]
            out[which] = self._in_lanes(rows[which], -phase * rows.shape[1] % _LANES)
        if not phases:
            out[others] = reduce(self._keep, rows[others].T)
        return [out.reshape(axes.out)]

    def _in_lanes(self, rows: Array, start: int) -> Array:
        """Folds two vectors in turn, from `start` on, then what is outside."""
        vectors = max(rows.shape[1] - start, 0) // _LANES
        inside = slice(start, start + vectors * _LANES)
        alone = list(np.delete(rows, inside, 1).T)
        if vectors:
            parts = list(rows[:, inside].reshape(-1, vectors, _LANES).swapaxes(0, 1))
            pairs = vectors // 2 * 2
            folded = [reduce(self._keep, parts[n:pairs:2]) for n in range(min(pairs, 2))]
            lanes = reduce(self._keep, [*folded, *parts[pairs:]])
            halves = self._keep(lanes[:, :2], lanes[:, 2:])
            alone = [self._keep(*halves.T), *alone]
        return np.asarray(reduce(self._keep, alone))

    def _keep(self, a: Array, b: Array) -> Array:
        return np.where(self.is_further(b, a), b, a)


REPLAYS = of_floats(
    {
        "ReduceSum": _Sum(),
        "ReduceMean": _Sum(after=lambda total, count: np.asarray(total / np.float32(count))),
        "ReduceL1": _Sum(before=np.abs),
        "ReduceSumSquare": _Sum(before=np.square),
        "ReduceL2": _Sum(before=np.square, after=lambda total, _: np.asarray(np.sqrt(total))),
        "ReduceLogSum": _Sum(after=lambda total, _: c_library.log(total)),
        "ReduceLogSumExp": _LogSumExp(),
        "ReduceMax": _Extreme(np.max, np.greater),
        "ReduceMin": _Extreme(np.min, np.less),
        "MaxPool": _Pooling(is_max=True),
        "AveragePool": _Pooling(is_max=False),
        "GlobalMaxPool": _Pooling(is_max=True, is_global=True),
        "GlobalAveragePool": _Pooling(is_max=False, is_global=True),
        "LpPool": _Norms(is_max=False),
        "GlobalLpPool": _Norms(is_max=False, is_global=True),
        **{
            f"com.microsoft.nchwc:{name}": _Pooling(
                is_max="Max" in name, is_global="Global" in name, has_blocks=True
            )
            for name in ("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool")
        },
    }
)
