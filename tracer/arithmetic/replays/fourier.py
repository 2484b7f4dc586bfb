"""Fourier transforms: by halves where the length is a power of 2, otherwise as a convolution.

Source: onnxruntime's `core/providers/cpu/signal/dft.cc`; Cooley and Tukey (1965), Bluestein (1970).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tracer.arithmetic import c_library
from tracer.arithmetic.kernel import Facts, Inputs, Kernel, NotKnown, Rule
from tracer.arithmetic.replays import of_floats
from tracer.support.types import Array

_UNIT = np.array([1, 0], np.float32)
"""The complex number 1."""
_TAU = np.float32(2) * np.float32(3.14159265)  # as the source has it
_PI = np.float32(math.pi)
_TEXTS = {
    "halves": "of every second term each, down to single terms (Cooley and Tukey)",
    "chirp": "as a convolution with a chirp (Bluestein), by transforms of a power of 2",
}


@dataclass(frozen=True)
class _Transform:
    """Transforms along an axis, or of `has_frames` of a signal."""

    has_frames: bool

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        signal, window, length, _ = self._terms(kernel, kernel.draw(np.random.default_rng(0)))
        if window is not None and signal.shape[-1] == 2:
            raise NotKnown("windows of complex signals are not known")
        text = _TEXTS["halves" if _is_power(length) else "chirp"]
        yield Rule(f"{text}; angles in float32, sines and cosines of the C library")

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        signal, window, length, axis = self._terms(kernel, inputs)
        attributes = kernel.attributes
        is_inverse = bool(attributes.get("inverse"))
        is_onesided = attributes.get("onesided", int(self.has_frames))
        moved = np.moveaxis(signal, axis, -2)[..., :length, :]
        rows = np.zeros((math.prod(moved.shape[:-2]), length, moved.shape[-1]), np.float32)
        rows[:, : moved.shape[-2]] = moved.reshape(len(rows), *moved.shape[-2:])
        if rows.shape[2] == 2:
            values = _multiply(_UNIT, np.moveaxis(rows, -1, 0))
        else:  # a real number times 1 + 0i, whose imaginary part may be -0
            values = np.multiply.outer(_UNIT, rows[..., 0]) * (1 if window is None else window)
        if _is_power(length):
            spectra = _halves(values, _TAU if is_inverse else -_TAU)
            spectra = spectra / np.float32(length) if is_inverse else spectra
        else:
            spectra = _by_chirp(values, is_inverse)
        bins = length // 2 + 1 if is_onesided else length
        spectra = np.moveaxis(spectra, 0, -1)[:, :bins]
        shaped = spectra.reshape(*moved.shape[:-2], bins, 2)
        return [np.ascontiguousarray(np.moveaxis(shaped, -2, axis))]

    def _terms(self, kernel: Kernel, inputs: Inputs) -> tuple[Array, Array | None, int, int]:
        """Returns the signal (..., 1 or 2), its window, the length of a transform and its axis."""
        signal, *others = kernel.values(inputs)
        if self.has_frames:
            step, window, frame = [*others, None, None][:3]
            signal = signal[..., None] if signal.ndim == 2 else signal
            length = len(window) if window is not None else int(np.ravel(frame)[0])
            cut = np.lib.stride_tricks.sliding_window_view(signal, length, axis=1)
            return np.moveaxis(cut[:, :: int(np.ravel(step)[0])], -1, 2), window, length, -2
        of_length, of_axis = [*others, None, None][:2]
        axis = kernel.attributes.get("axis", 1)
        if kernel.opsets[""] >= 20:
            axis = -2 if of_axis is None else int(np.ravel(of_axis)[0])
        axis = axis - signal.ndim if axis >= 0 else axis
        length = signal.shape[axis] if of_length is None else int(np.ravel(of_length)[0])
        return signal, None, length, axis


def _is_power(length: int) -> bool:
    return length & (length - 1) == 0


def _multiply(a: Array, b: Array) -> Array:
    return np.stack([a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]])


def _rotations(angles: Array) -> Array:
    """Returns exp(i x) of angles, float32, as (2, angles)."""
    return np.stack([c_library.cos(angles), c_library.sin(angles)])


def _halves(values: Array, tau: np.float32) -> Array:
    """Returns the transforms of rows (2, N, 2^n), whose angles are parts of `tau`."""
    _, rows, length = values.shape
    rotations = _rotations(np.arange(length).astype(np.float32) * (tau / np.float32(length)))
    order = np.zeros(1, np.int64)
    while len(order) < length:  # numbers with their bits reversed
        order = np.concatenate([2 * order, 2 * order + 1])
    values, size = values[..., order], 1
    while size < length:
        even, odd = np.moveaxis(values.reshape(2, rows, -1, 2, size), 3, 0)
        step = length // (2 * size)
        sums = []
        for first in (0, size):  # the second half is turned by angles of its own, not negated
            turns = slice(first * step, (first + size) * step, step)
            sums.append(even + _multiply(rotations[:, turns], odd))
        values = np.stack(sums, 3).reshape(2, rows, length)
        size *= 2
    return values


def _by_chirp(values: Array, is_inverse: bool) -> Array:
    """Returns the transforms of rows (2, N, length); an inverse one is multiplied by 1/length.

    The transform back takes the angles of the one forth, so that its results are in reverse order.
    """
    _, rows, length = values.shape
    n, count = np.arange(length).astype(np.float32), np.float32(length)
    chirp = _rotations((_PI if is_inverse else -_PI) * n * n / count)
    size = 1 << (2 * length - 2).bit_length()
    padded, mirrored = np.zeros((2, rows, size), np.float32), np.zeros((2, 1, size), np.float32)
    padded[..., :length] = _multiply(values, chirp)
    mirrored[0, 0, :length], mirrored[1, 0, :length] = chirp[0], -chirp[1]
    mirrored[..., size - length + 1 :] = mirrored[..., length - 1 : 0 : -1]
    spectra = _multiply(_halves(padded, -_TAU), _halves(mirrored, -_TAU))
    back = _halves(spectra, -_TAU) / np.float32(size)
    out = _multiply(back[..., -np.arange(length) % size], chirp)
    return np.asarray(out * (_UNIT[0] / count) if is_inverse else out)


REPLAYS = of_floats({"DFT": _Transform(False), "STFT": _Transform(True)})
