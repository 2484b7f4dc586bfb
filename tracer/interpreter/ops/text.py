"""Texts, domain com.microsoft: Tokenizer, MurmurHash3, WordConvEmbedding, NGramRepeatBlock."""

import re
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric import products
from tracer.interpreter.numeric.tensors import are_indices
from tracer.interpreter.operators import MICROSOFT, Arguments, operator, value_of
from tracer.support.types import Array

_START, _END = "\x02", "\x03"
"""Tokens around those of a text, where they are asked for."""
_FIRST, _SECOND = 0xCC9E2D51, 0x1B873593
_LAST_FIRST, _LAST_SECOND = 0x85EBCA6B, 0xC2B2AE35
_MASK = 0xFFFFFFFF


@operator("Tokenizer", domain=MICROSOFT)
def tokenizer(
    X: Array,
    *, mark: int, mincharnum: int, pad_value: str, separators: Sequence[str] | None = None,
    tokenexp: str | None = None,
) -> Array:  # fmt: skip
    """Returns the tokens of each text in a further axis, filled up with `pad_value`.

    Tokens are what lies between matches of the `separators`, applied one after the other, or
    matches of `tokenexp`; with the separator '' or the expression '.' they are letters. Tokens of
    fewer than `mincharnum` letters are dropped. `mark` puts a token before and after each text.
    Expressions are read as Python's. Raises ModelError for one that is none, and for a separator
    that matches an empty text.
    """
    if (separators is None) == (tokenexp is None):
        raise ModelError("give either separators or tokenexp")
    expressions = None if separators is None else list(separators)
    rows = [_tokens(str(text), expressions, tokenexp, mincharnum) for text in X.reshape(-1)]
    width = max(map(len, rows), default=0)
    if not width:
        return np.empty((*X.shape, 0), object)
    limits.allow((*X.shape, width + 2 * bool(mark)), np.dtype(object))
    marked = [[_START, *row, _END] for row in rows] if mark else rows
    columns = zip_longest(*marked, fillvalue=pad_value)
    return np.array(list(zip(*columns, strict=True)), object).reshape(*X.shape, -1)


def _tokens(
    text: str, separators: list[str] | None, expression: str | None, least: int
) -> list[str]:
    if expression == "." or separators == [""]:
        pieces = list(text)
    elif separators is None:
        pieces = [match.group() for match in _compiled(expression or "").finditer(text)]
    else:
        pieces = [text]
        for expression in separators:
            separator = _compiled(expression)
            if separator.match(""):
                raise ModelError(
                    f"the separator '{expression}' matches an empty text, and separates none"
                )
            pieces = [part for piece in pieces for part in _split(separator, piece)]
            pieces = [part for part in pieces if len(part) >= least]
    return [piece for piece in pieces if piece and len(piece) >= least]


def _split(separator: re.Pattern[str], text: str) -> list[str]:
    """Returns what lies between the matches, without what groups in them match."""
    spans = [match.span() for match in separator.finditer(text)]
    starts = [0, *(end for _, end in spans)]
    ends = [*(start for start, _ in spans), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def _compiled(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except re.error as error:
        raise ModelError(f"'{expression}' is no regular expression: {error}") from error


@operator("MurmurHash3", domain=MICROSOFT)
def murmur_hash_3(X: Array, *, positive: int = 1, seed: int = 0) -> Array:
    """Returns the 32-bit hash of each number or text (UTF-8), uint32, or int32 if not `positive`.

    The algorithm is MurmurHash3_x86_32 of Austin Appleby, in the public domain.
    """
    hashes = np.array([_hash(each, seed & _MASK) for each in X.reshape(-1)], np.uint32)
    return hashes.reshape(X.shape).view(np.uint32 if positive else np.int32)


def _hash(value: object, seed: int) -> int:
    octets = value.tobytes() if isinstance(value, np.generic) else str(value).encode()
    state, whole = seed, len(octets) // 4 * 4
    for start in range(0, whole, 4):
        state ^= _mixed(int.from_bytes(octets[start : start + 4], "little"))
        state = (_rotated(state, 13) * 5 + 0xE6546B64) & _MASK
    if whole < len(octets):
        state ^= _mixed(int.from_bytes(octets[whole:], "little"))
    state ^= len(octets)
    state = ((state ^ state >> 16) * _LAST_FIRST) & _MASK
    state = ((state ^ state >> 13) * _LAST_SECOND) & _MASK
    return state ^ state >> 16


def _mixed(block: int) -> int:
    return (_rotated((block * _FIRST) & _MASK, 15) * _SECOND) & _MASK


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> (32 - by)) & _MASK


def check_letters(given: Arguments) -> None:
    """Raises ModelError for inputs that do not fit each other."""
    Sequence, W, C = given.Sequence, given.W, given.C
    if Sequence.ndim != 2 or W.ndim != 4 or C.ndim != 2:
        raise ModelError(
            f"Sequence {list(Sequence.shape)}, W {list(W.shape)} and C {list(C.shape)} do not fit",
            "They are [words, letters], [filters, 1, window, size] and [alphabet, size].",
        )
    if W.shape[1] != 1 or W.shape[3] != C.shape[1] or given.B.shape != W.shape[:1]:
        raise ModelError(
            f"W {list(W.shape)} and B {list(given.B.shape)} do not fit letters of size {C.shape[1]}"
        )
    if Sequence.shape[1] < W.shape[2]:
        raise ModelError(f"words of {Sequence.shape[1]} letters, and a window of {W.shape[2]}")
    letters = value_of(Sequence)
    if letters is not None and not are_indices(letters, C.shape[0]):
        raise ModelError(f"a letter is not in the alphabet, which has {C.shape[0]}, from 0")


@operator("WordConvEmbedding", domain=MICROSOFT, check=check_letters)
def word_conv_embedding(
    Sequence: Array, W: Array, B: Array, C: Array,
    *, char_embedding_size: int = -1, conv_window_size: int = -1, embedding_size: int = -1,
) -> Array:  # fmt: skip
    """Returns [words, filters]: the largest tanh of a convolution (W, B) of embedded letters.

    C is the table of letters, 0 the padding. Windows reach to the last letter of a word, or are
    the first one of a shorter word. A word without letters is 0.
    """
    words, window = len(Sequence), W.shape[2]
    limits.allow((words, Sequence.shape[1] - window + 1, window * C.shape[1]), C.dtype)
    counts = np.where(Sequence[:, 0] > 0, (Sequence > 0).sum(axis=1), 0)
    views = np.lib.stride_tricks.sliding_window_view(C[Sequence], window, axis=1)
    rows = np.ascontiguousarray(views.swapaxes(-1, -2)).reshape(*views.shape[:2], -1)
    scores = np.tanh(products.matmul(rows, W.reshape(len(W), -1).T) + B)
    reached = np.maximum(counts, window) - window + 1
    beyond = np.arange(views.shape[1]) >= reached[:, None]
    largest = np.where(beyond[..., None], -np.inf, scores).max(axis=1)
    return np.where(counts[:, None] > 0, largest, 0).astype(C.dtype)


def check_tokens(given: Arguments) -> None:
    """Raises ModelError for scores of other sequences, and tokens without a score."""
    input_ids, scores = given.input_ids, given.scores
    if input_ids.ndim != 2 or scores.ndim != 2 or input_ids.shape[0] != scores.shape[0]:
        raise ModelError(
            f"input_ids {list(input_ids.shape)} and scores {list(scores.shape)} do not fit",
            "They are [sequences, tokens] and [sequences, vocabulary].",
        )
    if given.ngram_size < 1:
        raise ModelError(f"ngram_size is {given.ngram_size}, and must be at least 1")
    tokens, vocabulary = value_of(input_ids), scores.shape[1]
    if tokens is not None and not are_indices(tokens, vocabulary):
        raise ModelError(f"a token has no score: there are {vocabulary}, from 0")


@operator("NGramRepeatBlock", domain=MICROSOFT, copies=1, check=check_tokens)
def ngram_repeat_block(input_ids: Array, scores: Array, *, ngram_size: int) -> Array:
    """Returns the scores, -inf for each token that would repeat `ngram_size` tokens."""
    blocked = scores.copy()
    if input_ids.shape[1] < ngram_size:
        return blocked
    runs = np.lib.stride_tricks.sliding_window_view(input_ids, ngram_size, axis=1)
    last = input_ids[:, None, input_ids.shape[1] - ngram_size + 1 :]
    rows, places = np.nonzero((runs[..., :-1] == last).all(axis=-1))
    blocked[rows, runs[rows, places, -1]] = -np.inf
    return blocked
