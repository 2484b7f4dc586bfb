"""Masks of onnxruntime's Attention and MultiHeadAttention, as what is added to the scores."""

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.node_inputs import Input
from tracer.support.types import Array


def added_mask(
    mask: Array | None, shape: tuple[int, int, int], past: int | None, hides_by: float
) -> Array | None:
    """Returns what a mask and causality add to scores: float32 [batch or 1, 1, L or 1, T], or None.

    `shape` is batch, queries, keys. A mask hides a key by adding `hides_by`. Causal attention has
    `past` keys before the first query, and hides later keys by the least float32, but none from the
    last query, as onnxruntime does where there are more keys than queries; None is no causal
    attention. The forms of a mask are those of ContribOperators.md (see `check_mask`):

    - [batch]: keys of each entry, the rest is padding at the end;
    - [2 * batch]: ends, then starts, of the keys of each entry;
    - [3 * batch + 2]: keys of each entry, then cumulated lengths, which padding makes redundant;
    - [batch, T], [batch, L, T]: not 0 for keys that are seen;
    - [batch, 1, M, M] for M >= T: as the last, of which the rows of these queries are read.
    """
    batch, queries, keys = shape
    added = None
    if mask is not None:
        seen = _seen(mask, batch, queries, keys)
        added = np.where(seen, np.float32(0), np.float32(hides_by))
    if past is None:
        return added
    later = np.arange(keys) > np.arange(past, past + queries)[:, None]
    later[-1:] = False
    before = np.float32(0) if added is None else added
    return np.where(later, np.finfo(np.float32).min, before).reshape(-1, 1, queries, keys)


def _seen(mask: Array, batch: int, queries: int, keys: int) -> Array:
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


def check_mask(mask: Input | None, shape: tuple[int, int, int]) -> None:
    """Raises ModelError for a mask of none of the forms of `added_mask`, for the same `shape`."""
    batch, queries, keys = shape
    if mask is None or mask.shape in (
        (batch,), (2 * batch,), (3 * batch + 2,), (batch, keys), (batch, queries, keys),
    ):  # fmt: skip
        return
    if mask.ndim == 4 and mask.shape[:2] == (batch, 1) and min(mask.shape[2:]) >= keys:
        return
    raise ModelError(
        f"a mask of shape {list(mask.shape)} for {batch} entries, {queries} queries, {keys} keys",
        f"It is [{batch}], [{2 * batch}], [{batch}, {keys}] or [{batch}, {queries}, {keys}].",
    )
