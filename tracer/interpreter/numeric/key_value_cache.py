"""The cache of keys or values of GroupQueryAttention: how it is stored, extended and read.

onnxruntime's ContribOperators.md (GroupQueryAttention) defines the layouts.
"""

from dataclasses import dataclass

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.node_inputs import Input
from tracer.interpreter.numeric.block_weights import unpacked
from tracer.interpreter.numeric.half_types import widened
from tracer.support.types import Array

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

    `rows` are those of the present. With a `window`, the cache holds the last positions alone.
    """

    past: Array | None
    storage: Storage
    rows: int
    window: int

    def kept(self, total: int) -> int:
        """Returns how many of `total` positions are in the cache: ContribOperators.md, L(T)."""
        if not self.window or total <= self.rows:
            return total
        gap = self.rows - self.window + 1
        return total - gap * -(-(total - self.rows) // gap)

    def extended(self, entry: int, new: Array, past: int) -> Array:
        """Returns the past of an entry of the batch, `past` tokens, and `new` ones, as stored.

        With a window, it begins at position `past - kept(past)`.
        """
        added = self.storage.store(new)
        if self.past is None:
            return added
        return np.concatenate([self.past[entry, :, : self.kept(past)], added], axis=1)

    def present(self, extended: Array, past: int, total: int) -> Array:
        """Returns the cache of an entry after the run: its rows, then zeros."""
        present = np.zeros((len(extended), self.rows, extended.shape[-1]), extended.dtype)
        filled = extended
        if self.window:
            end = total - past + self.kept(past)
            filled = extended[:, end - self.kept(total) : end]
        present[:, : filled.shape[1]] = filled
        return present


def check_cache(past: Input | None, bits: int, heads: tuple[int, int, int], window: int) -> None:
    """Raises ModelError for a cache that does not have `heads`: batch, heads, size.

    `bits` are those of a stored number, 0 where it is stored as it is, `window` the tokens that
    the cache keeps, 0 for all.
    """
    batch, count, size = heads
    width = size // 2 if bits == 4 else size
    if past is not None and past.shape != (batch, count, *past.shape[2:3], width):
        raise ModelError(
            f"a cache of shape {list(past.shape)} is not [{batch}, {count}, tokens, {width}]",
            "That is batch, kv_num_heads, tokens and the size of a head.",
        )
    capacity = 0 if past is None else past.shape[2]
    if window and capacity < window:
        raise ModelError(f"a cache of {capacity} rows is smaller than its window, {window}")


def cache_of(
    past: Array | None, storage: Storage, heads: tuple[int, int, int], total: int, window: int
) -> Cache:
    """Returns the cache of `heads`: batch, heads, size; see `check_cache` for what it may be.

    `total` are the tokens of the longest entry, `window` those that the cache keeps, 0 for all.
    """
    batch, count, size = heads
    width = size // 2 if storage.bits == 4 else size
    capacity = 0 if past is None else past.shape[2]
    rows = capacity if window else max(total, capacity)
    limits.allow((batch, count, rows, width), np.float32 if past is None else past.dtype)
    return Cache(past, storage, rows, window)


def check_storage(
    kind: str, scale: Input | None, bits: int, heads: tuple[int, int], past: Input | None
) -> None:
    """Raises ModelError for a cache of `heads`, number and size, that cannot be stored so."""
    if kind not in KINDS:
        raise ModelError(f"the cache's quantisation is '{kind}'", f"Known: {', '.join(KINDS)}.")
    if kind == "NONE":
        if past is not None and past.dtype.kind in "iu":
            raise ModelError(f"a cache of {past.dtype} without k_quant_type and v_quant_type")
        return
    types = {8: np.dtype(np.int8), 4: np.dtype(np.uint8)}
    if bits not in types or (past is not None and past.dtype != types[bits]):
        raise ModelError(
            f"a cache of {bits} bits in {'no type' if past is None else past.dtype}",
            "It has 8 bits in int8, or 4 bits in uint8: kv_cache_bit_width says which.",
        )
    each = _scales(kind, heads)
    if scale is None or scale.size != each:
        found = "no scales" if scale is None else f"scales of shape {list(scale.shape)}"
        raise ModelError(f"{found} for a cache quantised {kind}", f"It has {each} scales.")


def storage_of(kind: str, scale: Array | None, bits: int, heads: tuple[int, int]) -> Storage:
    """Returns how a cache of `heads`, number and size, is stored; see `check_storage`."""
    if kind == "NONE" or scale is None:
        return Storage(None, 0)
    count, size = heads
    shape = (count, 1, size) if _scales(kind, heads) > 1 else (1, 1, 1)
    return Storage(scale.reshape(shape).astype(np.float32), bits)


def _scales(kind: str, heads: tuple[int, int]) -> int:
    """Returns how many scales a quantised cache has."""
    return heads[0] * heads[1] if kind == "PER_CHANNEL" else 1
