"""Reads a text file as windows of tokens for a language model, each with the tokens that follow."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracer.errors import InputError, UsageError
from tracer.graph import tensor_type
from tracer.graph.model import Model
from tracer.inputs.datasets.batch import Batch
from tracer.support.imports import require
from tracer.support.types import Array
from tracer.text import agree, plural

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BYTES_OF_A_TOKEN = 8
"""Bytes read at first for each token; most tokens of English text have 4."""
_SETTLED = 64
"""Tokens before the end of a part of a text that may differ from those of the whole."""
SPEC = re.compile(r"text(?:@(?P<options>[^:]+))?:(?P<file>.+)")
_WINDOW = 256  # tokens, if neither the spec nor the model says
_BYTES = "bytes"  # stands for a tokenizer
_BESIDE = "tokenizer.json"
_MOST_BYTES = 512
"""Logits of a model over bytes, at most: 256 bytes and some special tokens."""
_LOGITS_RANK = 3  # [N, tokens, vocabulary]
_CACHE_RANK = 4  # [N, heads, past, size]
_OTHERS = {"attention_mask": "the mask", "position_ids": "the positions"}


@dataclass(frozen=True, slots=True)
class TextWindows:
    """Windows of `window` tokens of a text, one after another; tokens that fill none are left out.

    A window is the input `name`, int [n, window]; its labels are the tokens that follow each of its
    tokens, int64 [n, window], of `token_bytes` bytes of text on average. `caches` are the shapes of
    one sample's caches, which are empty.
    """

    tokens: Tokens
    window: int
    name: str
    token_bytes: float
    types: dict[str, str] = field(repr=False)
    caches: dict[str, tuple[int, ...]] = field(repr=False)

    @property
    def samples(self) -> int:
        """The number of whole windows with a token that follows the last."""
        return _windows(self.tokens, self.window)

    def pieces(self, rows: int, first: int = 0) -> Iterator[Batch]:
        """Yields `rows` windows at a time, and reads no more of the text than them."""
        done, samples = first, self.samples
        while done < samples:
            count = min(rows, samples - done)
            start = done * self.window
            data = self.tokens.read(start, start + count * self.window + 1)
            labels = data[1:].reshape(count, self.window)
            tokens = data[:-1].reshape(count, self.window)
            values: dict[str, Array] = {self.name: tokens}
            values["attention_mask"] = np.ones_like(tokens)
            values["position_ids"] = np.broadcast_to(np.arange(self.window), tokens.shape)
            values |= {name: np.zeros((count, *shape)) for name, shape in self.caches.items()}
            inputs = {name: values[name].astype(kind) for name, kind in self.types.items()}
            yield Batch(inputs, count, labels, token_bytes=self.token_bytes)
            done += count


def explicit(spec: str, model: Model) -> str:
    """Returns the spec with the tokenizer that lies beside `model`, if that is the one it has."""
    match = SPEC.fullmatch(spec)
    assert match is not None
    wanted = _parsed(spec, Path())
    beside = _tokenizer(wanted, model)
    if wanted.tokenizer is not None or beside is None:
        return spec
    options = filter(None, [match["options"], str(beside)])
    return f"text@{','.join(options)}:{match['file']}"


def open_text(
    spec: str, model: Model, limit: int | None = None, home: Path | None = None
) -> TextWindows:
    """Opens the file of text:FILE, or text@128:FILE for windows of 128 tokens.

    Relative paths start at the folder `home` [default: the current one].

    Tokens are those of a tokenizer.json beside the model, or of the file in
    text@tokenizer.json:FILE; else, and in text@bytes:FILE, they are bytes. Of a tokenizer, the text
    is encoded as far as `limit` windows need. A model with a fixed number of tokens decides the
    window. Caches are empty: their axis 2 has size 0. Raises InputError for a file without a window
    or that cannot be read, for a model that takes no tokens, and for tokens that it has no logits
    for; UsageError for a window of 0 tokens, and without the package of the tokenizer.
    """
    wanted = _parsed(spec, home or Path())
    declared = tensor_type.declared_types(model.inputs)
    kinds = {name: kind for name, kind in declared.items() if kind is not None}
    name = _token_input(model, kinds)
    shape = kinds[name].shape or ()
    fixed = shape[1] if isinstance(shape[1], int) else None
    window = wanted.window or fixed or _WINDOW
    caches = {n: _cache(model, n, k) for n, k in kinds.items() if n not in (name, *_OTHERS)}
    tokens = _read_tokens(wanted, model, None if limit is None else limit * window + 1)
    samples = _windows(tokens, window)
    if not samples:
        what = plural(tokens.count, "byte" if isinstance(tokens, Bytes) else "token")
        raise InputError(
            f"{wanted.file}: {what} {agree(tokens.count, 'is', 'are')} no window of {window} and "
            "one that follows",
            "Give a longer text, or a smaller window: text@16:FILE.",
        )
    token_bytes = tokens.mean_bytes(min(samples, limit or samples) * window + 1)
    types = {name: kind.dtype for name, kind in kinds.items()}
    return TextWindows(tokens, window, name, token_bytes, types, caches)


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
        """Returns 1, the mean bytes of text of tokens 1 to `stop` - 1."""
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
        """Returns the mean bytes of text of tokens 1 to `stop` - 1; the first is never a label."""
        return float(self.ends[stop - 1] - self.ends[0]) / (stop - 1)


Tokens: TypeAlias = Bytes | Encoded
"""The tokens of a text in order."""


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


def encode_file(path: Path, tokenizer: Tokenizer, least: int | None) -> Encoded:
    """Returns the tokens of a text in UTF-8, without special tokens: all, or at least `least`.

    A long text is encoded as a whole, for tokens at the seams of parts would differ: only its
    beginning where `least` tokens suffice. Raises InputError for a file that is not UTF-8.
    """
    size = path.stat().st_size
    part = size if least is None else (least + _SETTLED) * _BYTES_OF_A_TOKEN
    while True:
        with path.open("rb") as file:
            data = file.read(min(part, size))
        try:  # without a character that is cut
            decoder = codecs.getincrementaldecoder("utf-8")()
            text = decoder.decode(data, final=len(data) == path.stat().st_size)
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}: byte {error.start:,} is not UTF-8 ({error.reason})",
                "Convert the text to UTF-8; text@bytes:FILE reads any file as bytes.",
            ) from error
        encoding = tokenizer.encode(text, add_special_tokens=False)
        characters = np.array([end for _, end in encoding.offsets], np.int64)
        widths = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        sizes = 1 + (widths > 0x7F) + (widths > 0x7FF) + (widths > 0xFFFF)
        places = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        tokens = Encoded(np.array(encoding.ids, np.int32), places[characters])
        if part >= size:
            return tokens
        if least is not None and tokens.count >= least + _SETTLED:
            return Encoded(tokens.numbers[:least], tokens.ends[:least])
        part *= 2


@dataclass(frozen=True, slots=True)
class _Spec:
    """What text@128,tokenizer.json:FILE names; None where it leaves the choice."""

    file: Path
    window: int | None
    tokenizer: Path | None


def _parsed(spec: str, home: Path) -> _Spec:
    match = SPEC.fullmatch(spec)
    assert match is not None
    options = match["options"].split(",") if match["options"] else []
    windows = [int(option) for option in options if option.isdecimal()]
    tokenizers = [option for option in options if not option.isdecimal()]
    if len(windows) > 1 or len(tokenizers) > 1 or not all(options):
        raise UsageError(
            f"{spec}: '{match['options']}' is not a window and a tokenizer",
            "Give one of each at most, as in text@128,tokenizer.json:FILE.",
        )
    if windows == [0]:
        raise UsageError(f"{spec}: windows of 0 tokens", "Give 1 or more: text@128:FILE.")
    path = home / match["file"]
    if not path.is_file():
        raise InputError(f"{path}: no such file", "Name a text file: text:FILE.")
    tokenizer = next(
        ((Path(_BYTES) if option == _BYTES else home / option) for option in tokenizers), None
    )
    return _Spec(path, next(iter(windows), None), tokenizer)


def _read_tokens(wanted: _Spec, model: Model, least: int | None) -> Tokens:
    """Returns the tokens of a text; of a tokenizer at least `least`, or all."""
    kinds = (tensor_type.from_type_proto(value.type) for value in model.graph.output)
    shapes = (kind.shape or () for kind in kinds if kind is not None)
    last = next((shape[-1] for shape in shapes if len(shape) == _LOGITS_RANK), None)
    logits = last if isinstance(last, int) else None
    file = _tokenizer(wanted, model)
    if file is None:
        if wanted.tokenizer is None and logits is not None and logits > _MOST_BYTES:
            raise InputError(
                f"{model.name} has {logits:,} logits, so its tokens are no bytes, and there is no "
                f"{_BESIDE} beside it",
                f"Name its tokenizer: text@FOLDER/{_BESIDE}:FILE; text@bytes:FILE gives it bytes.",
            )
        return Bytes(wanted.file)
    tokenizer = read_tokenizer(file)
    size = tokenizer.get_vocab_size()
    if logits is not None and size > logits:
        raise InputError(
            f"{file}: {plural(size, 'token')}, and {model.name} has {plural(logits, 'logit')}",
            "Give the tokenizer that the model was trained with.",
        )
    return encode_file(wanted.file, tokenizer, least)


def _tokenizer(wanted: _Spec, model: Model) -> Path | None:
    """Returns the file of the tokenizer; None for bytes."""
    if wanted.tokenizer is not None:
        return None if wanted.tokenizer == Path(_BYTES) else wanted.tokenizer
    beside = None if model.folder is None else model.folder / _BESIDE
    return beside if beside is not None and beside.is_file() else None


def _windows(tokens: Tokens, window: int) -> int:
    return max(0, tokens.count - 1) // window


def _token_input(model: Model, kinds: dict[str, tensor_type.TensorType]) -> str:
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


def _cache(model: Model, name: str, kind: tensor_type.TensorType) -> tuple[int, ...]:
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
