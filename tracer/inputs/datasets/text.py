"""Reads a text file as windows of bytes for a language model, each with the bytes that follow."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tracer.errors import InputError, UsageError
from tracer.graph import tensor_type
from tracer.graph.model import Model
from tracer.graph.tensor_type import TensorType
from tracer.inputs.datasets.batch import Batch
from tracer.support.types import Array

SPEC = re.compile(r"text(?:@(?P<window>[0-9]{1,9}))?:(?P<file>.+)")
_WINDOW = 256  # bytes, if neither the spec nor the model says
_CACHE_RANK = 4  # [N, heads, past, size]
_OTHERS = {"attention_mask": "the mask", "position_ids": "the positions"}


@dataclass(frozen=True, slots=True)
class TextWindows:
    """Windows of `window` bytes of a file, one after another; bytes that fill none are left out.

    A window is the input `tokens`, int [n, window]; its labels are the bytes that follow each of
    its bytes, int64 [n, window]. `caches` are the shapes of one sample's caches, which are empty.
    """

    path: Path
    window: int
    tokens: str
    types: dict[str, str] = field(repr=False)
    caches: dict[str, tuple[int, ...]] = field(repr=False)

    @property
    def samples(self) -> int:
        """The number of whole windows with a byte that follows the last."""
        return max(0, self.path.stat().st_size - 1) // self.window

    def pieces(self, rows: int) -> Iterator[Batch]:
        """Yields `rows` windows at a time, and reads no more of the file than them."""
        left = self.samples
        with self.path.open("rb") as file:
            while left > 0:
                count = min(rows, left)
                file.seek((self.samples - left) * self.window)
                data = np.frombuffer(file.read(count * self.window + 1), np.uint8)
                labels = data[1:].reshape(count, self.window).astype(np.int64)
                yield Batch(self._inputs(data[:-1].reshape(count, self.window)), count, labels)
                left -= count

    def _inputs(self, data: NDArray[np.uint8]) -> dict[str, Array]:
        values: dict[str, Array] = {self.tokens: data}
        values["attention_mask"] = np.ones_like(data)
        values["position_ids"] = np.broadcast_to(np.arange(self.window), data.shape)
        values |= {name: np.zeros((len(data), *shape)) for name, shape in self.caches.items()}
        return {name: values[name].astype(kind) for name, kind in self.types.items()}


def open_text(spec: str, model: Model) -> TextWindows:
    """Opens the file of text:FILE, or text@128:FILE for windows of 128 bytes.

    A model with a fixed number of tokens decides the window. Caches are empty: their axis 2 has
    size 0. Raises InputError for a file without a window or that cannot be read, and for a model
    that takes no tokens; UsageError for a window of 0 bytes.
    """
    match = SPEC.fullmatch(spec)
    assert match is not None
    path = Path(match["file"])
    declared = {v.name: tensor_type.from_type_proto(v.type) for v in model.inputs}
    kinds = {name: kind for name, kind in declared.items() if kind is not None}
    tokens = _tokens(model, kinds)
    shape = kinds[tokens].shape or ()
    fixed = shape[1] if isinstance(shape[1], int) else None
    window = int(match["window"] or fixed or _WINDOW)
    if window < 1:
        raise UsageError(f"{spec}: windows of 0 bytes", "Give 1 or more: text@128:FILE.")
    if not path.is_file():
        raise InputError(f"{path}: no such file", "Name a text file: text:FILE.")
    caches = {n: _cache(model, n, k) for n, k in kinds.items() if n not in (tokens, *_OTHERS)}
    types = {name: kind.dtype for name, kind in kinds.items()}
    text = TextWindows(path, window, tokens, types, caches)
    if not text.samples:
        raise InputError(
            f"{path}: {path.stat().st_size:,} bytes are no window of {window} and a byte that "
            "follows",
            "Give a longer text, or a smaller window: text@16:FILE.",
        )
    return text


def _tokens(model: Model, kinds: dict[str, TensorType]) -> str:
    """Returns the name of the input that has the tokens: the integers [N, tokens]."""
    names = [
        name
        for name, kind in kinds.items()
        if kind.dtype in ("int32", "int64") and len(kind.shape or ()) == 2 and name not in _OTHERS
    ]
    if len(names) == 1:
        return names[0]
    inputs = ", ".join(f"'{name}' {kind}" for name, kind in kinds.items()) or "none"
    raise InputError(
        f"text is for a model with one input of integers [N, tokens]; the inputs of {model.name} "
        f"are {inputs}",
        "Name an .npz file with an array for each input.",
    )


def _cache(model: Model, name: str, kind: TensorType) -> tuple[int, ...]:
    """Returns the shape of the empty cache of one sample, [heads, 0, size]."""
    sizes = kind.shape or ()
    if len(sizes) == _CACHE_RANK and not isinstance(sizes[2], int):
        heads, size = sizes[1], sizes[3]
        if isinstance(heads, int) and isinstance(size, int):
            return heads, 0, size
    raise InputError(
        f"text does not fill input '{name}' of {model.name}, {kind}",
        "It fills tokens, attention_mask, position_ids and caches [N, heads, past, size] whose "
        "past may have any length. Name an .npz file with an array for each input.",
    )
