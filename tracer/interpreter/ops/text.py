"""Tokenizer and MurmurHash3, domain com.microsoft: pieces of texts, and hashes."""

import re
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.registry import operator
from tracer.support.types import Array

_START, _END = "\x02", "\x03"
"""Tokens around those of a text, where they are asked for."""

_FIRST, _SECOND = 0xCC9E2D51, 0x1B873593
_LAST_FIRST, _LAST_SECOND = 0x85EBCA6B, 0xC2B2AE35
_MASK = 0xFFFFFFFF


@operator("Tokenizer", domain=DOMAIN)
def tokenizer(
    X: Array,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: Sequence[str] | None = None,
    tokenexp: str | None = None,
) -> Array:
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
        for separator in map(_separator, separators):
            pieces = [part for piece in pieces for part in _between(separator, piece)]
            pieces = [part for part in pieces if len(part) >= least]
    return [piece for piece in pieces if piece and len(piece) >= least]


def _between(separator: re.Pattern[str], text: str) -> list[str]:
    """Returns what lies between the matches, without what groups in them match."""
    spans = [match.span() for match in separator.finditer(text)]
    starts = [0, *(end for _, end in spans)]
    ends = [*(start for start, _ in spans), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def _separator(expression: str) -> re.Pattern[str]:
    compiled = _compiled(expression)
    if compiled.match(""):
        raise ModelError(f"the separator '{expression}' matches an empty text, and separates none")
    return compiled


def _compiled(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except re.error as error:
        raise ModelError(f"'{expression}' is no regular expression: {error}") from error


@operator("MurmurHash3", domain=DOMAIN)
def murmur_hash_3(X: Array, *, positive: int = 1, seed: int = 0) -> Array:
    """Returns the 32-bit hash of each number or text (UTF-8), uint32, or int32 if not `positive`.

    The algorithm is MurmurHash3_x86_32 of Austin Appleby, in the public domain.
    """
    hashes = np.array([_hash(_octets(each), seed & _MASK) for each in X.reshape(-1)], np.uint32)
    return hashes.reshape(X.shape).view(np.uint32 if positive else np.int32)


def _octets(value: object) -> bytes:
    return value.tobytes() if isinstance(value, np.generic) else str(value).encode()


def _hash(octets: bytes, seed: int) -> int:
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
