"""STFT, the spectrum of each frame of a signal, and windows that are sums of cosines."""

from collections.abc import Callable, Sequence

import numpy as np
import onnx

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.operators import operator
from tracer.support.types import Array


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
