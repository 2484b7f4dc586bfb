"""Computes the output of a node from its sums: floats, or bytes where the next node quantises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracer.interpreter.ops.quantized import requantized
from tracer.support.types import Array

_KEPT = 1 << 18
"""Bytes of the parameters of rows that are kept for the next run."""
BYTES = tuple(map(np.dtype, ("int8", "uint8")))

Restore = Callable[[Array], Array]
"""Computes the output from sums, int64 in its shape."""


@dataclass(frozen=True, slots=True)
class Dequantize:
    """Computes floats: sums times the `step` of their channel, plus the `rest`.

    `rest` is a bias that is no multiple of the step. Both are one number or one for each channel.
    Channels are axis 1 of (N, C, *size), or the last axis.
    """

    step: Array
    rest: Array | None
    dtype: np.dtype[Any]
    channels_last: bool = False

    def __call__(self, sums: Array) -> Array:
        """The floats of all sums."""
        rank = 2 if self.channels_last else sums.ndim
        out = sums * per_channel(self.step, rank)
        if self.rest is not None:
            out = out + per_channel(self.rest, rank)
        return out.astype(self.dtype)


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes from floats: limited to [least, most], divided by `scale`, rounded, plus `zero`."""

    least: float
    most: float
    scale: float
    zero: int
    dtype: np.dtype[Any]
    _known: dict[int, tuple[Dequantize, Array]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def parameters(self, floats: Dequantize, channels: int) -> Array:
        """What `kernels.steps.BYTES` knows of each row: (channels, 8), float64.

        They are computed again only for other floats than those before.
        """
        before, known = self._known.get(channels, (None, None))
        if before is not None and before.step is floats.step and before.rest is floats.rest:
            assert known is not None
            return known
        ends = np.iinfo(self.dtype)
        rest = 0.0 if floats.rest is None else floats.rest
        numbers = (floats.step, rest, self.least, self.most, self.scale,
                   ends.min - self.zero, ends.max - self.zero, self.zero)  # fmt: skip
        known = np.empty((channels, len(numbers)))
        for column, each in enumerate(numbers):
            known[:, column] = each if np.ndim(each) == 0 else np.reshape(each, -1)
        self._known.clear()
        if known.nbytes <= _KEPT:
            self._known[channels] = floats, known
        return known


@dataclass(frozen=True, slots=True)
class Requantize:
    """Computes bytes: sums times a `factor`, float32, rounded, plus the zero point.

    The factor broadcasts to the sums.
    """

    factor: Array
    zero: Array

    def __call__(self, sums: Array) -> Array:
        """The bytes of all sums."""
        return requantized(sums, self.factor, self.zero)

    def finish(self) -> Finish | None:
        """What a kernel does in place of it; None where it has to be computed from the sums."""
        bytes_ = self.zero.size == 1 and self.zero.dtype in BYTES
        if not bytes_ or not np.isfinite(self.factor).all():
            return None
        factor = np.asarray(self.factor, np.float64)
        made = Bytes(-np.inf, np.inf, 1.0, int(self.zero.reshape(())), self.zero.dtype)
        return Finish(Dequantize(factor, None, np.dtype(np.float32)), made)


@dataclass(frozen=True, slots=True)
class Finish:
    """The output of a node as bytes, in place of its sums; `floats` come in between."""

    floats: Dequantize
    bytes: Bytes


def per_channel(values: Array, rank: int) -> Array:
    """One number, or one for each channel of a tensor of `rank` axes."""
    flat = values.reshape(-1)
    return flat.reshape(()) if flat.size == 1 else flat.reshape(-1, *[1] * (rank - 2))
