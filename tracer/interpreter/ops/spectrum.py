"""STFT: the spectrum of each frame of a signal."""

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.registry import operator
from tracer.support.types import Array


@operator("STFT", since=17)
def stft(
    signal: Array,
    frame_step: Array,
    window: Array | None = None,
    frame_length: Array | None = None,
    *,
    onesided: int = 1,
) -> Array:
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
