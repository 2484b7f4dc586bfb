"""Poolings: whether a window is folded row by row, columns first, or in 4 lanes.

Of two zeros a maximum keeps the one that the processor's instruction keeps: vectors the second, the
C library's `std::max` the first. Source of the ways: MLAS's `pooling.cpp` and `SpoolKernel*.S`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from tracer.arithmetic.functions import c_library
from tracer.arithmetic.kernel import Facts, Inputs, Kernel, Rule
from tracer.arithmetic.replays import of_floats
from tracer.arithmetic.replays.elementwise import is_plain
from tracer.interpreter.numeric.windows import Window, window
from tracer.interpreter.ops.pooling import counts
from tracer.support.types import Array

_LANES = 4
_LOWEST = np.finfo(np.float32).min
_ZERO = np.float32(0)
_TEXTS = {
    "rows": "row by row of a window",
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
        if len(kernel.node.output) > 1:
            yield Rule(f"{_TEXTS['rows']}, with their places", {"way": "rows"})
            return
        if self.has_blocks:
            for block in (16, 8):
                if shape[1] % block == 0:
                    text = f"{_TEXTS['rows']}, {block} channels side by side"
                    yield Rule(text, {"way": "rows", "block": block})
            return
        ways = ["lanes", "columns", "rows"] if len(shape) > 3 else ["lanes", "rows"]
        slid = self._window(kernel, shape)
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
        if self.is_max and is_plain(maps):  # the order is of no account
            keep, way = np.maximum, "rows"
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
        """Begins with 0 or the least number, and skips padding."""
        total = np.full((len(maps), *slid.out), _LOWEST if self.is_max else _ZERO)
        padding = _LOWEST if self.is_max else -_ZERO  # -0 changes no sum
        padded = _padded(maps, slid, range(maps.ndim - 1), padding)
        fold = keep if self.is_max else np.add
        for place in slid.positions:
            total = fold(total, _slice(padded, slid, place))
        return total

    def _columns(self, maps: Array, slid: Window, keep: Fold) -> Array:
        """Folds all axes but the last, in vectors and what is left over, then across."""
        last = maps.ndim - 2
        padding = _LOWEST if self.is_max else -_ZERO
        padded = _padded(maps, slid, range(last), padding)
        parts = [_slice(padded, slid, place) for place in product(*map(range, slid.kernel[:-1]))]
        if last > 1 and not self.is_max:
            parts[0] = parts[0] + _ZERO
        columns = reduce(_keep_second if self.is_max else np.add, parts)
        if self.is_max:
            alone = columns.shape[-1] // _LANES * _LANES
            columns[..., alone:] = reduce(_keep_first, [part[..., alone:] for part in parts])
        padding = _LOWEST if self.is_max else _ZERO
        padded = _padded(columns, slid, [last], padding)
        across = [_slice(padded, slid, (k,), last) for k in range(slid.kernel[-1])]
        return np.asarray(reduce(_keep_second if self.is_max else np.add, across))

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


def _padded(maps: Array, slid: Window, axes: Any, fill: np.float32) -> Array:
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


REPLAYS = of_floats(
    {
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
