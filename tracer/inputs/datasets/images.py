"""Converts images [N, C, H, W]: pixels to float32, size and channels to the model's."""

from __future__ import annotations

from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tracer.errors import InputError, refusing

if TYPE_CHECKING:
    from PIL.Image import Image

    from tracer.graph.tensor_type import TensorType

Pixels = NDArray[np.generic]

LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # of red, green and blue, after BT.601


def as_float(pixels: Pixels) -> NDArray[np.float32]:
    """Returns C-contiguous float32: uint8 divided by 255, other numbers unchanged."""
    # copies the planes of grey images broadcast to colours
    floats = pixels.astype(np.float32, order="C")
    if pixels.dtype == np.uint8:
        floats /= np.float32(255)
    return floats


def fit(x: Pixels, shape: tuple[int, int, int]) -> Pixels:
    """Resizes images [N, C, H, W] to [N, *shape] (bilinear) and converts their channels.

    Grey is repeated into colours, colours become their luma. Raises InputError for other changes
    of channels.
    """
    channels, height, width = shape
    x = _channels(x, channels)
    if x.shape[2:] == (height, width):
        return x
    from PIL import Image

    def resize(plane: Pixels) -> Pixels:
        image = Image.fromarray(np.ascontiguousarray(plane))
        return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))

    grey_in_colours = x.strides[1] == 0  # resize only one of three equal planes
    planes = x[:, :1] if grey_in_colours else x
    resized = np.stack([[resize(plane) for plane in image] for image in planes])
    return _channels(resized, channels) if grey_in_colours else resized


def read(path: Path) -> Pixels:
    """Reads an image file as uint8 [1, C, H, W], C 1 or 3. Raises InputError for other files."""
    return decoded(path, str(path))


def decoded(file: Path | IO[bytes], name: str) -> Pixels:
    """Reads an image called `name` as uint8 [1, C, H, W], C 1 or 3.

    Raises InputError for other files.
    """
    from PIL import Image

    hint = "Name a PNG or JPEG image."
    if isinstance(file, Path) and not file.exists():
        raise InputError(f"{name}: no such file", hint)
    with (
        refusing(lambda why: InputError(f"{name}: not an image that can be read", hint)),
        Image.open(file) as image,
    ):
        return pixels_of(image)


def pixels_of(image: Image) -> Pixels:
    """Returns an image of Pillow as uint8 [1, C, H, W]: C is 1 for grey, 3 for colours."""
    pixels = np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))
    planes = pixels[:, :, None] if pixels.ndim == 2 else pixels
    return np.ascontiguousarray(planes.transpose(2, 0, 1))[None]


def fit_declared(x: Pixels, declared: TensorType | None) -> Pixels:
    """Returns images [N, C, H, W] in those of an input's sizes that are fixed.

    Images for an input of other rank are unchanged.
    """
    sizes = () if declared is None or declared.shape is None else declared.shape[1:]
    if len(sizes) != 3:
        return x
    c, h, w = (
        size if isinstance(size, int) else own for size, own in zip(sizes, x.shape[1:], strict=True)
    )
    return fit(x, (c, h, w))


def _channels(x: Pixels, channels: int) -> Pixels:
    if x.shape[1] == channels:
        return x
    if x.shape[1] == 1:
        return np.broadcast_to(x, (len(x), channels, *x.shape[2:]))
    if x.shape[1] == 3 and channels == 1:
        grey = np.tensordot(x.astype(np.float32), LUMA, axes=(1, 0))[:, None]
        return np.rint(grey).astype(np.uint8) if x.dtype == np.uint8 else grey
    raise InputError(
        f"images of {x.shape[1]} channels do not fit a model that takes {channels}",
        "Use grey or colour images (1 or 3 channels).",
    )
