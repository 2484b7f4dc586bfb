"""Signals: STFT, the spectrum of each frame, windows that are sums of cosines, and, of domain
com.microsoft, CDist and DynamicTimeWarping: distances of points, and a cheapest path."""

from collections.abc import Callable, Sequence

import numpy as np
import onnx

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.operators import MICROSOFT, Arguments, operator
from tracer.support.types import Array

_METRICS = ("sqeuclidean", "euclidean")
_BOTH, _ROW, _COLUMN = 0, 1, 2
"""A move of a path: to the next row and column, or to one of them."""


@operator("STFT", since=17)
def stft(
    signal: Array, frame_step: Array, window: Array | None = None,
    frame_length: Array | None = None,
    *, onesided: int = 1,
) -> Array:  # fmt: skip
    """Transforms frames of a signal [batch, samples], real or complex on a last axis of 1 or 2.

    The result is [batch, frames, frequencies, 2]. A frame is as long as `frame_length`, or as the
    window. Raises ModelError for lengths that do not fit.
    """
    if frame_length is not None:
        length = int(frame_length.reshape(-1)[0])
    elif window is not None:
        length = len(window)
    else:
        raise ModelError("STFT needs a window or a frame length")
    step, samples = int(frame_step.reshape(-1)[0]), signal.shape[1]
    if (window is not None and len(window) != length) or not 0 < length <= samples or step <= 0:
        raise ModelError(
            f"frames of {length} samples every {step} do not fit a signal of {samples}"
            + ("" if window is None else f" and a window of {len(window)}")
        )
    is_complex = signal.ndim == 3 and signal.shape[2] == 2
    if is_complex and onesided:
        raise ModelError("the spectrum of a complex signal has two sides: onesided must be 0")
    bins = length // 2 + 1 if onesided else length
    frames = (samples - length) // step + 1
    limits.allow((len(signal), frames, length), np.complex128)
    values = signal.reshape(len(signal), samples, 1 + is_complex).astype(np.float64)
    flat = values[..., 0] + 1j * values[..., 1] if is_complex else values[..., 0]
    cut = np.lib.stride_tricks.sliding_window_view(flat, length, axis=1)[:, ::step]
    framed = cut if window is None else cut * window.astype(np.float64)
    spectra = np.fft.fft(framed)[..., :bins]
    return np.stack([spectra.real, spectra.imag], axis=-1).astype(signal.dtype)


# F. J. Harris, "On the use of windows for harmonic analysis", Proc. IEEE 66 (1978): factors of
# cos(k * phase), k = 0, 1, ...; ONNX's Hamming has the exact 25/46, not the rounded 0.54.
_WINDOWS = {
    "BlackmanWindow": (0.42, -0.5, 0.08),
    "HammingWindow": (25 / 46, -21 / 46),
    "HannWindow": (0.5, -0.5),
}


def cosine_window(factors: Sequence[float]) -> Callable[..., Array]:
    """Returns the operator; a periodic window is one longer, without its last value."""

    def function(size: Array, *, output_datatype: int = 1, periodic: int = 1) -> Array:
        count = int(size.reshape(-1)[0])
        limits.allow((count,), np.float64)
        phase = np.arange(count) * (2 * np.pi / max(count if periodic else count - 1, 1))
        total = sum(factor * np.cos(k * phase) for k, factor in enumerate(factors))
        return np.asarray(total).astype(onnx.helper.tensor_dtype_to_np_dtype(output_datatype))

    return function


for _name, _factors in _WINDOWS.items():
    operator(_name, since=17)(cosine_window(_factors))


def check_points(given: Arguments) -> None:
    """Raises ModelError for points of different dimensions, and another metric."""
    A, B = given.A, given.B
    if given.metric not in _METRICS:
        raise ModelError(f"the metric '{given.metric}' is not one of {', '.join(_METRICS)}")
    if A.ndim != 2 or B.ndim != 2 or A.shape[1] != B.shape[1]:
        raise ModelError(f"A {list(A.shape)} and B {list(B.shape)} are not rows of one length")


@operator("CDist", domain=MICROSOFT, check=check_points)
def cdist(A: Array, B: Array, *, metric: str = "sqeuclidean") -> Array:
    """Returns the distances [M, N] of the rows of A (M, D) and B (N, D), or their squares."""
    limits.allow((len(A), len(B)), np.float64)
    left, right = A.astype(np.float64), B.astype(np.float64)
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * left @ right.T
    squares = np.maximum(squares, 0)  # rounding may leave less than 0
    return (np.sqrt(squares) if metric == "euclidean" else squares).astype(A.dtype)


def check_costs(given: Arguments) -> None:
    """Raises ModelError for costs that are no matrix."""
    input = given.input
    if input.ndim not in (2, 3) or (input.ndim == 3 and input.shape[0] != 1):
        raise ModelError(f"costs of shape {list(input.shape)} are not [M, N] or [1, M, N]")
    if not input.size:
        raise ModelError(f"costs of shape {list(input.shape)} have no path")


@operator("DynamicTimeWarping", domain=MICROSOFT, check=check_costs)
def dynamic_time_warping(input: Array) -> Array:
    """Returns the cheapest path through costs (M, N), from corner to corner: int32 [2, steps]."""
    rows, columns = input.shape[-2:]
    costs = input.reshape(rows, columns)
    limits.allow((rows + 1, columns + 1), np.float32)
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    total[0, 0] = 0
    moves = np.zeros((rows, columns), np.int8)  # by which it enters each point; ties go by column
    for diagonal in range(rows + columns - 1):  # points of an anti-diagonal do not need each other
        i = np.arange(max(0, diagonal - columns + 1), min(rows, diagonal + 1))
        j = diagonal - i
        both, up, left = total[i, j], total[i, j + 1], total[i + 1, j]
        taken = np.where((both < up) & (both < left), _BOTH,
                         np.where((up < both) & (up < left), _ROW, _COLUMN))  # fmt: skip
        moves[i, j] = taken
        total[i + 1, j + 1] = costs[i, j] + np.choose(taken, [both, up, left])
    row, column = rows - 1, columns - 1
    path = [(row, column)]
    while row or column:
        move = _COLUMN if not row else _ROW if not column else moves[row, column]
        row, column = row - (move != _COLUMN), column - (move != _ROW)
        path.append((row, column))
    return np.array(path[::-1], np.int32).T
