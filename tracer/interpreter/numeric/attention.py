"""What the attention operators share: heads, masks of scores, the cache of keys and values.

onnxruntime's ContribOperators.md defines the forms of masks (Attention, MultiHeadAttention) and the
layouts of the cache (GroupQueryAttention).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.numeric import products
from tracer.interpreter.numeric.tensors import unpacked, widened
from tracer.support.types import Array

Shape3 = tuple[int, int, int]
"""A shape of scores: batch, queries, keys."""


def split_heads(x: Array, count: int | None) -> Array:
    """Reshapes (N, L, heads * size) to (N, heads, L, size). Raises ModelError."""
    if x.ndim != 3:
        raise ModelError(f"a tensor of shape {list(x.shape)} is not [batch, tokens, channels]")
    if not count or count < 0 or x.shape[2] % count:
        raise ModelError(f"{x.shape[2]} channels do not fall into {count} heads")
    return x.reshape(*x.shape[:2], count, x.shape[2] // count).transpose(0, 2, 1, 3)


def check_groups(heads: int, groups: int) -> None:
    """Raises ModelError where the heads of keys and values do not divide those of queries."""
    if groups < 1 or heads % groups:
        raise ModelError(f"{heads} query heads are no multiple of {groups} of keys and values")


def check_past(past: Array, new: Array, name: str) -> None:
    """Raises ModelError for a past of other heads than the new tokens."""
    batch, heads, _, size = new.shape
    if past.ndim != 4 or past.shape != (batch, heads, past.shape[2], size):
        raise ModelError(
            f"{name} is {list(past.shape)}, not [{batch}, {heads}, tokens, {size}]",
            "That is batch, heads, tokens and the size of a head.",
        )


def check_pasts(past_key: Array | None, past_value: Array | None, key: Array, value: Array) -> int:
    """Returns the tokens of a past, 0 without one. Raises ModelError if it does not fit the new."""
    if (past_key is None) != (past_value is None):
        raise ModelError("past_key and past_value are both given, or neither")
    if past_key is None or past_value is None:
        return 0
    check_past(past_key, key, "past_key")
    check_past(past_value, value, "past_value")
    tokens = past_key.shape[2]
    if past_value.shape[2] != tokens:
        raise ModelError(f"past_key has {tokens} tokens, and past_value {past_value.shape[2]}")
    return tokens


def joined_heads(x: Array) -> Array:
    """Reshapes (N, heads, L, size) to (N, L, heads * size)."""
    batch, heads, tokens, size = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, tokens, heads * size)


def grouped_product(a: Array, b: Array) -> Array:
    """Multiplies the matrices of heads; several heads of `a` may share one of `b`.

    `a` is (N, heads, M, K), `b` (N, groups, K, P). Raises ModelError where the groups do not divide
    the heads.
    """
    if a.shape[1] == b.shape[1]:
        return products.matmul(a, b)
    check_groups(a.shape[1], b.shape[1])
    shared = a.reshape(len(a), b.shape[1], a.shape[1] // b.shape[1], *a.shape[2:])
    product = products.matmul(shared, b[:, :, None])
    return product.reshape(*a.shape[:3], b.shape[-1])


def visible_shares(scores: Array, visible: Array | None, sink: Array | None = None) -> Array:
    """Returns the softmax of each row over what is visible; a row that sees nothing is 0.

    `sink` is a further score of each row, whose share goes to no one.
    """
    hidden = scores if visible is None else np.where(visible, scores, -np.inf)
    largest = hidden.max(axis=-1, keepdims=True, initial=-np.inf)
    if sink is not None:
        largest = np.maximum(largest, sink)
    parts = np.exp(hidden - np.where(np.isneginf(largest), 0, largest).astype(scores.dtype))
    total = parts.sum(axis=-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - largest)
    return np.divide(parts, total, out=np.zeros_like(parts), where=total > 0)


def added_to_scores(
    mask: Array | None, bias: Array | None, shape: Shape3, past: int | None, hides_by: float
) -> Array | None:
    """Returns what a mask, causality and a bias add to scores, or None.

    `shape` is batch, queries, keys. The result is float32, [batch or 1, 1, L or 1, T] without bias.
    A mask hides a key by adding `hides_by`. Causal attention has `past` keys before the first
    query, and hides later keys by the least float32, but none from the last query, as onnxruntime
    does where there are more keys than queries; None is no causal attention. The forms of a mask
    are those of ContribOperators.md (see `check_added`):

    - [batch]: keys of each entry, the rest is padding at the end;
    - [2 * batch]: ends, then starts, of the keys of each entry;
    - [3 * batch + 2]: keys of each entry, then cumulated lengths, which padding makes redundant;
    - [batch, T], [batch, L, T]: not 0 for keys that are seen;
    - [batch, 1, M, M] for M >= T: as the last, of which the rows of these queries are read.
    """
    batch, queries, keys = shape
    added = None
    if mask is not None:
        seen = _unmasked(mask, batch, queries, keys)
        added = np.where(seen, np.float32(0), np.float32(hides_by))
    if past is not None:
        later = np.arange(keys) > np.arange(past, past + queries)[:, None]
        later[-1:] = False
        before = np.float32(0) if added is None else added
        added = np.where(later, np.finfo(np.float32).min, before).reshape(-1, 1, queries, keys)
    if bias is None:
        return added
    return widened(bias) if added is None else added + widened(bias)


def _unmasked(mask: Array, batch: int, queries: int, keys: int) -> Array:
    """Returns which keys are seen, as bool [batch, 1, L or 1, T]."""
    places = np.arange(keys)
    if mask.shape in ((batch,), (3 * batch + 2,)):
        return (places < mask[:batch, None])[:, None, None]
    if mask.shape == (2 * batch,):
        ends, starts = mask[:batch, None], mask[batch:, None]
        return ((places >= starts) & (places < ends))[:, None, None]
    if mask.shape == (batch, keys):
        return (mask > 0)[:, None, None]
    if mask.shape == (batch, queries, keys):
        return (mask > 0)[:, None]
    return mask[:, :, keys - queries : keys, :keys] > 0


def check_added(mask: Array | None, bias: Array | None, scores: Sequence[int]) -> None:
    """Raises ModelError for a mask or a bias of other scores than [batch, heads, queries, keys].

    The forms of a mask are those of `added_to_scores`.
    """
    batch, heads, queries, keys = scores
    forms = (batch,), (2 * batch,), (3 * batch + 2,), (batch, keys), (batch, queries, keys)
    is_square = (
        mask is not None and mask.ndim == 4 and mask.shape[:2] == (batch, 1)
        and min(mask.shape[2:]) >= keys
    )  # fmt: skip
    if mask is not None and mask.shape not in forms and not is_square:
        raise ModelError(
            f"a mask of shape {list(mask.shape)} for {batch} entries, {queries} queries, "
            f"{keys} keys",
            f"It is [{batch}], [{2 * batch}], [{batch}, {keys}] or [{batch}, {queries}, {keys}].",
        )
    if bias is not None and (
        bias.ndim != 4
        or bias.shape[2:] != (queries, keys)
        or (bias.shape[0] not in (1, batch) or bias.shape[1] not in (1, heads))
    ):
        raise ModelError(
            f"attention_bias is {list(bias.shape)}, not {[batch, heads, queries, keys]}"
        )


KINDS = ("NONE", "PER_TENSOR", "PER_CHANNEL")
"""How a cache may be quantised."""


@dataclass(frozen=True, slots=True)
class Storage:
    """How keys or values are stored: as they are, or as round(x / scale) in `bits` bits.

    `scale` is broadcast to [heads, tokens, size]; None stores the values as they are. Codes of 4
    bits are stored with 8 added, two in a byte, the first in the low bits.
    """

    scale: Array | None
    bits: int

    def store(self, x: Array) -> Array:
        """Returns [heads, tokens, size] as it is stored."""
        if self.scale is None:
            return x
        most = 1 << (self.bits - 1)
        codes = np.clip(np.rint(widened(x) / self.scale), -most, most - 1)
        if self.bits == 8:
            return codes.astype(np.int8)
        pairs = (codes + most).astype(np.uint8)
        return pairs[..., ::2] | pairs[..., 1::2] << 4

    def read(self, stored: Array) -> Array:
        """Returns what is stored as floats [heads, tokens, size]; halves in float32."""
        if self.scale is None:
            return widened(stored)
        if self.bits == 8:
            return stored.astype(np.float32) * self.scale
        codes = unpacked(stored, 4, 2 * stored.shape[-1]).astype(np.float32) - 8
        return codes * self.scale


@dataclass(frozen=True, slots=True)
class Cache:
    """The past keys or values [batch, heads, capacity, stored size] of a node; None for no past.

    `shape` is that of the present. With a `window`, the cache holds the last positions alone.
    """

    past: Array | None
    storage: Storage
    shape: tuple[int, int, int, int]
    window: int

    @property
    def rows(self) -> int:
        """The positions that the present has room for."""
        return self.shape[2]

    def rows_kept(self, total: int) -> int:
        """Returns how many of `total` positions are in the cache: ContribOperators.md, L(T)."""
        if not self.window or total <= self.rows:
            return total
        gap = self.rows - self.window + 1
        return total - gap * -(-(total - self.rows) // gap)

    def extended(self, entry: int, new: Array, past: int) -> Array:
        """Returns the past of an entry of the batch, `past` tokens, and `new` ones, as stored.

        With a window, it begins at position `past - rows_kept(past)`.
        """
        added = self.storage.store(new)
        if self.past is None:
            return added
        return np.concatenate([self.past[entry, :, : self.rows_kept(past)], added], axis=1)

    def present(self, extended: Array, past: int, total: int) -> Array:
        """Returns the cache of an entry after the run: its rows, then zeros."""
        present = np.zeros((len(extended), self.rows, extended.shape[-1]), extended.dtype)
        filled = extended
        if self.window:
            end = total - past + self.rows_kept(past)
            filled = extended[:, end - self.rows_kept(total) : end]
        present[:, : filled.shape[1]] = filled
        return present


def cache_of(
    past: Array | None, storage: Storage, heads: tuple[int, int, int], total: int, window: int
) -> Cache:
    """Returns the cache of `heads`: batch, heads, size. Raises ModelError for another past.

    `total` are the tokens of the longest entry, `window` those that the cache keeps, 0 for all.
    """
    batch, count, size = heads
    width = size // 2 if storage.bits == 4 else size
    if past is not None and past.shape != (batch, count, *past.shape[2:3], width):
        raise ModelError(
            f"a cache of shape {list(past.shape)} is not [{batch}, {count}, tokens, {width}]",
            "That is batch, kv_num_heads, tokens and the size of a head.",
        )
    capacity = 0 if past is None else past.shape[2]
    if window and capacity < window:
        raise ModelError(f"a cache of {capacity} rows is smaller than its window, {window}")
    rows = capacity if window else max(total, capacity)
    return Cache(past, storage, (batch, count, rows, width), window)


def storage_of(
    kind: str, scale: Array | None, bits: int, heads: tuple[int, int], past: Array | None
) -> Storage:
    """Returns how a cache of `heads`, number and size, is stored.

    Raises ModelError for a past that is not stored so, and for other scales.
    """
    if kind not in KINDS:
        raise ModelError(f"the cache's quantisation is '{kind}'", f"Known: {', '.join(KINDS)}.")
    if kind == "NONE":
        if past is not None and past.dtype.kind in "iu":
            raise ModelError(f"a cache of {past.dtype} without k_quant_type and v_quant_type")
        return Storage(None, 0)
    types = {8: np.dtype(np.int8), 4: np.dtype(np.uint8)}
    if bits not in types or (past is not None and past.dtype != types[bits]):
        raise ModelError(
            f"a cache of {bits} bits in {'no type' if past is None else past.dtype}",
            "It has 8 bits in int8, or 4 bits in uint8: kv_cache_bit_width says which.",
        )
    count, size = heads
    shape = (count, 1, size) if kind == "PER_CHANNEL" else (1, 1, 1)
    if scale is None or scale.size != math.prod(shape):
        found = "no scales" if scale is None else f"scales of shape {list(scale.shape)}"
        each = math.prod(shape)
        raise ModelError(f"{found} for a cache quantised {kind}", f"It has {each} scales.")
    return Storage(scale.reshape(shape).astype(np.float32), bits)
