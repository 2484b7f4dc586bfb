"""Converts partial sums to the JSON and .npz bytes that a .trace file holds, and back."""

import io
from collections.abc import Mapping
from typing import Annotated, TypeAlias

import msgspec
import numpy as np

from tracer.accumulators.spec import plain_values
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.accumulators.statistics.tally import Tally
from tracer.errors import InputError
from tracer.storage.stored_file import decoded
from tracer.support.types import Array

_BY_CHANNEL = ("guaranteed_channels", "guaranteed_inner_channels")
"""Arrays of widths, beside those of the tally."""
_MOST_BITS = 1_000
"""Sums of 64-bit products over any tensor need fewer bits."""

_Bits: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_MOST_BITS)]
_Property: TypeAlias = int | str | None


class _Record(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of partial sums that are no arrays."""

    node: str
    accumulator: dict[str, _Property]
    guaranteed: _Bits | None
    guaranteed_any_order: _Bits | None
    datatype: _Bits | None
    guaranteed_inner: _Bits | None = None


def dumped(sums: PartialSums) -> tuple[str, bytes]:
    """JSON of the scalar fields, and an .npz of the arrays."""
    record = _Record(
        node=sums.node,
        accumulator=plain_values.dumped(sums.tally.accumulator),
        guaranteed=sums.guaranteed,
        guaranteed_any_order=sums.guaranteed_any_order,
        datatype=sums.datatype,
        guaranteed_inner=sums.guaranteed_inner,
    )
    arrays = sums.tally.arrays()
    widths = {name: getattr(sums, name) for name in _BY_CHANNEL}
    arrays |= {name: bits for name, bits in widths.items() if bits is not None}
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **arrays)
    return msgspec.json.encode(record).decode(), stream.getvalue()


def loaded(text: str, arrays: Mapping[str, Array]) -> PartialSums:
    """The inverse of `dumped`. Raises ValueError, TypeError or KeyError for malformed data."""
    record = decoded(text, _Record)
    accumulator = plain_values.loaded(record.accumulator)
    quantities = {name: array for name, array in arrays.items() if name not in _BY_CHANNEL}
    try:
        tally = Tally.from_arrays(quantities, accumulator)
    except InputError as error:  # the reader of the file adds its name
        raise ValueError(error.what) from error
    widths = {name: arrays[name] for name in _BY_CHANNEL if name in arrays}
    shape = tally.outputs.shape
    if not len(tally.outputs) or any(bits.shape != shape for bits in widths.values()):
        raise ValueError("the statistics have no channels, or widths of other channels")
    return PartialSums(
        node=record.node,
        tally=tally,
        guaranteed=record.guaranteed,
        guaranteed_any_order=record.guaranteed_any_order,
        datatype=record.datatype,
        guaranteed_inner=record.guaranteed_inner,
        **widths,
    )
