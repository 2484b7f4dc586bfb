"""Reductions: in which order a sum over axes adds, and which of equal numbers an extreme keeps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from math import prod

import numpy as np

from tracer.arithmetic.functions import c_library
from tracer.arithmetic.kernel import Facts, Inputs, Kernel, NotKnown, Rule
from tracer.arithmetic.replays import of_floats
from tracer.arithmetic.replays.elementwise import is_plain
from tracer.arithmetic.sums import products, sum_rules
from tracer.interpreter.compiled_code import loaded
from tracer.support.types import Array

_PACKAGE = "tracer.arithmetic.kernels"
_TEXTS = {
    "aligned": "in 8 lanes from the first aligned number on",
    "lanes": "in 8 lanes",
    "first": "one after the other",
    "zero": "one after the other, from 0",
    "blocks": "rows in 8 lanes from the first aligned number on, then row after row",
}
_LANES = 4
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
            yield Rule(_TEXTS[way], {"way": way})
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


@dataclass(frozen=True)
class _Extreme:
    """The largest or least number; of equal ones, which are zeros, the first in the order."""

    place: Callable[..., Array]

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        ways = ("aligned", "first") if _axes(kernel).reduced[-1] else ("first",)
        for way in ways:
            yield Rule(f"{_TEXTS[way]}; of equal numbers the first", {"way": way})

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        x, axes = kernel.values(inputs)[0], _axes(kernel)
        rows = axes.rows(x)
        out = rows[np.arange(len(rows)), self.place(rows, axis=1)]
        others = np.flatnonzero((out == 0) | np.isnan(out))  # whose bits depend on the order
        if facts["way"] == "aligned" and not is_plain(rows[others]):
            for phase in range(_LANES):
                which = others[others % _LANES == phase]
                order = _lanes_order(rows.shape[1], -phase * rows.shape[1] % _LANES)
                part = rows[which][:, order]
                places = self.place(part, axis=1)[:, None]
                out[which] = np.take_along_axis(part, places, 1)[:, 0]
        return [out.reshape(axes.out)]


def _lanes_order(width: int, start: int) -> Array:
    """Returns the places of a row in the order in which vectors from `start` on prefer them."""
    size = max(width - start, 0) // _LANES * _LANES
    vectors = start + np.arange(size).reshape(-1, _LANES)
    pairs = len(vectors) // 2 * 2
    in_turn = np.concatenate([vectors[:pairs:2], vectors[1:pairs:2], vectors[pairs:]])
    outside = np.setdiff1d(np.arange(width), vectors)
    return np.concatenate([in_turn[:, [0, 2, 1, 3]].T.ravel(), outside])


REPLAYS = of_floats(
    {
        "ReduceSum": _Sum(),
        "ReduceMean": _Sum(after=lambda total, count: np.asarray(total / np.float32(count))),
        "ReduceL1": _Sum(before=np.abs),
        "ReduceSumSquare": _Sum(before=np.square),
        "ReduceL2": _Sum(before=np.square, after=lambda total, _: np.asarray(np.sqrt(total))),
        "ReduceLogSum": _Sum(after=lambda total, _: c_library.log(total)),
        "ReduceMax": _Extreme(np.argmax),
        "ReduceMin": _Extreme(np.argmin),
    }
)
