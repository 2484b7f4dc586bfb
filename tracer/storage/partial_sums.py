"""Converts partial sums to the JSON and .npz bytes that a .trace file holds, and back."""

import io
from typing import Any

import msgspec
import numpy as np

from tracer.accumulators.spec import plain_values
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.accumulators.statistics.tally import Tally
from tracer.errors import InputError

_CHANNELS = "guaranteed_channels"


def dumped(sums: PartialSums) -> tuple[str, bytes]:
    """JSON of the scalar fields, and an .npz of the arrays."""
    record = {
        "node": sums.node,
        "accumulator": plain_values.dumped(sums.tally.accumulator),
        "guaranteed": sums.guaranteed,
        "guaranteed_any_order": sums.guaranteed_any_order,
        "datatype": sums.datatype,
    }
    arrays = sums.tally.arrays()
    if sums.guaranteed_channels is not None:
        arrays[_CHANNELS] = sums.guaranteed_channels
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **arrays)
    return msgspec.json.encode(record).decode(), stream.getvalue()


def loaded(record: str, blob: bytes) -> PartialSums:
    """The inverse of `dumped`. Raises ValueError, TypeError or KeyError for malformed data."""
    values = msgspec.json.decode(record, type=dict[str, Any])
    with np.load(io.BytesIO(blob), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    channels = arrays.pop(_CHANNELS, None)
    try:
        tally = Tally.from_arrays(arrays, plain_values.loaded(values.pop("accumulator")))
    except InputError as error:  # the reader of the file adds its name
        raise ValueError(error.what) from error
    return PartialSums(tally=tally, guaranteed_channels=channels, **values)
