"""The tokens of a text file: its bytes, or those of a tokenizer of Hugging Face."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from tracer.errors import InputError
from tracer.support.imports import require

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BYTES_OF_A_TOKEN = 8
"""Bytes read at first for each token; most tokens of English text have 4."""
_SETTLED = 64
"""Tokens before the end of a part of a text that may differ from those of the whole."""


class Tokens(Protocol):
    """The tokens of a text in order."""

    @property
    def count(self) -> int:
        """The number of tokens."""

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        """Returns tokens `start` to `stop` - 1."""

    def mean_bytes(self, stop: int) -> float:
        """Returns the mean bytes of text of tokens 1 to `stop` - 1; the first is never a label."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """The bytes of a file, which is read piece by piece."""

    path: Path

    @property
    def count(self) -> int:
        """The size of the file."""
        return self.path.stat().st_size

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        """Returns bytes `start` to `stop` - 1."""
        with self.path.open("rb") as file:
            file.seek(start)
            return np.frombuffer(file.read(stop - start), np.uint8).astype(np.int64)

    def mean_bytes(self, stop: int) -> float:
        """Returns 1."""
        return 1.0


@dataclass(frozen=True, slots=True)
class Encoded:
    """Tokens in memory: `numbers`, int32 [count], and the byte `ends` [count] of each, int64."""

    numbers: NDArray[np.int32] = field(repr=False)
    ends: NDArray[np.int64] = field(repr=False)

    @property
    def count(self) -> int:
        """The number of tokens."""
        return len(self.numbers)

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        """Returns tokens `start` to `stop` - 1."""
        return self.numbers[start:stop].astype(np.int64)

    def mean_bytes(self, stop: int) -> float:
        """Returns the bytes from the end of the first token to the end of the last, ÷ tokens."""
        return float(self.ends[stop - 1] - self.ends[0]) / (stop - 1)


def read_tokenizer(path: Path) -> Tokenizer:
    """Returns the tokenizer of a tokenizer.json.

    Raises UsageError where the package is not installed, InputError for a file that is none.
    """
    require(f"the tokenizer {path}", "tokenizers")
    from tokenizers import Tokenizer

    if not path.is_file():
        raise InputError(f"{path}: no such file", "Name a tokenizer.json: text@FILE.json:TEXT.")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises nothing narrower
        raise InputError(
            f"{path}: not a tokenizer ({error})",
            "Give a tokenizer.json, as save_pretrained of transformers writes it.",
        ) from error


def encoded(path: Path, tokenizer: Tokenizer, least: int | None) -> Encoded:
    """Returns the tokens of a text in UTF-8, without special tokens: all, or at least `least`.

    A long text is encoded as a whole, for tokens at the seams of parts would differ: only its
    beginning where `least` tokens suffice. Raises InputError for a file that is not UTF-8.
    """
    size = path.stat().st_size
    part = size if least is None else (least + _SETTLED) * _BYTES_OF_A_TOKEN
    while True:
        tokens = _encoded(_beginning(path, min(part, size)), tokenizer)
        if part >= size:
            return tokens
        if least is not None and tokens.count >= least + _SETTLED:
            return Encoded(tokens.numbers[:least], tokens.ends[:least])
        part *= 2


def _beginning(path: Path, size: int) -> str:
    """Returns the text of the first `size` bytes, without a character that is cut."""
    with path.open("rb") as file:
        data = file.read(size)
    is_whole = size == path.stat().st_size
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data, final=is_whole)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: byte {error.start:,} is not UTF-8 ({error.reason})",
            "Convert the text to UTF-8; text@bytes:FILE reads any file as bytes.",
        ) from error


def _encoded(text: str, tokenizer: Tokenizer) -> Encoded:
    encoding = tokenizer.encode(text, add_special_tokens=False)
    characters = np.array([end for _, end in encoding.offsets], np.int64)
    widths = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    sizes = 1 + (widths > 0x7F) + (widths > 0x7FF) + (widths > 0xFFFF)
    places = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    return Encoded(np.array(encoding.ids, np.int32), places[characters])
