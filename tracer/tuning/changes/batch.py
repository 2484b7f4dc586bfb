"""More samples in a run, for a throughput of more samples per second."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tracer.errors import InputError
from tracer.inputs.dims import batch_of
from tracer.inputs.feedset import FeedSet
from tracer.tuning.changes import Change
from tracer.tuning.findings import THROUGHPUT, Findings
from tracer.tuning.setup import Setup

_FACTORS = (2, 4, 8, 16, 32)


def _applies(findings: Findings) -> str | None:
    if findings.feedset.batch is None or not _has_open_batch(findings):
        return None
    empty = findings.trace.runs[0].empty_us
    overhead = 0.0 if empty is None else float(np.median(empty)) / findings.wall_us
    return (
        f"the batch of {findings.feedset.batch} is open, and {overhead:.0%} of a run is spent "
        "outside of its nodes"
    )


def _values(findings: Findings) -> Sequence[str]:
    assert findings.feedset.batch is not None  # `_applies` says so
    return [str(factor * findings.feedset.batch) for factor in _FACTORS]


def _apply(setup: Setup, value: str) -> Setup:
    before = setup.feedset.batch
    if before is None or int(value) % before:
        raise InputError(f"{setup.model.name}: no batch of {value} is made of one of {before}")
    factor = int(value) // before
    feeds = {name: _repeated(array, before, factor) for name, array in setup.feedset.feeds.items()}
    feedset = FeedSet(feeds, int(value), setup.feedset.notes)
    return replace(setup, feedset=feedset, samples=setup.samples * factor)


def _has_open_batch(findings: Findings) -> bool:
    """Returns whether the first dimension of every input is open, and the same one."""
    shapes = [value.type.tensor_type.shape.dim for value in findings.model.inputs]
    if not shapes or any(not dims or dims[0].HasField("dim_value") for dims in shapes):
        return False
    return batch_of(findings.model, findings.feedset.shapes) is not None


def _repeated(array: Any, batch: int, factor: int) -> Any:
    """Returns `factor` copies of an array one after the other, along its batch."""
    if not array.ndim or array.shape[0] != batch:
        raise InputError(f"an input of shape {array.shape} has no batch of {batch}")
    return np.concatenate([array] * factor)


CHANGE = Change("batch", "rounding", 20, _applies, _values, _apply, goals=(THROUGHPUT,))
