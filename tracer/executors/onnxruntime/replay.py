"""Time kernels alone, without the profiler: an independent check of what is corrected.

A graph of many copies of a kernel takes longer than one of few by just the copies it has more. The
two take turns, with each other and with whole undisturbed runs of the model, so that how fast the
machine was at the moment cancels out: what is told is the share of a whole run.

Copies share their inputs, which in the model were written just before, and are as warm. They do
not share their weights, unless enough bytes lie between two uses: as many as the model has weights,
for so many pass between two uses in the model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tracer.errors import InputError, ModelError
from tracer.executors.onnxruntime import feeding, kernel_models, node_names, sessions
from tracer.executors.onnxruntime.kernel_models import Piece
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph.loading import from_proto
from tracer.graph.model import Model
from tracer.inputs.feedset import FeedSet
from tracer.records.trace import Kernel
from tracer.support.progress import Progress
from tracer.support.timing import times_us
from tracer.support.types import FloatArray

_SECONDS = 0.4
"""Spent on each kernel."""

_LEAST_ROUNDS = 9
_RUNS = 3
"""Timed of each in a round, after one that is not."""

_FEW = 1
_LEAST_MORE, _MOST_MORE = 4, 60
"""A long graph has about as many copies as take as long as a whole run: what is as long is as
likely to be interrupted."""

_MOST_BYTES = 1 << 30


def shares(
    model: Model,
    saved: Path,
    feedset: FeedSet,
    kernels: Sequence[Kernel],
    options: OrtSettings,
    report: Progress,
) -> FloatArray:
    """Returns the time of one call of each kernel of the graph `saved` ÷ the time of a whole run.

    NaN stands for a kernel with a body or inside one, or of element types that numpy lacks.
    """
    factory = sessions.Factory(model, node_names.serialize(model), options)
    whole = feeding.runner(model, factory.open(), feedset.feeds)
    found = np.full(len(kernels), np.nan)
    cut = kernel_models.cut(model, saved, feedset.feeds, kernels)
    for place, piece in enumerate(cut):
        report(place, len(cut), "replaying")
        if piece is not None:
            found[place] = _share(piece, whole, kernel_models.total_bytes(model), options)
    report(len(cut), len(cut), "replaying")
    return found


def runner(piece: Piece, count: int, distinct: int, options: OrtSettings) -> Callable[[], object]:
    """One run of so many copies as a function that returns the result of the last."""
    proto = piece.model(count, distinct)
    unoptimized = OrtSettings(
        threads=options.threads, optimization="none", provider=options.provider
    )
    model = from_proto(proto)
    session = sessions.Factory(model, proto.SerializeToString(), unoptimized).open()
    return feeding.runner(model, session, dict(piece.feeds))


def _share(
    piece: Piece, whole: Callable[[], object], model_bytes: int, options: OrtSettings
) -> float:
    """Median over rounds; NaN where onnxruntime refuses the piece."""
    distinct = 1
    if piece.weight_bytes:
        fitting = max(1, _MOST_BYTES // piece.weight_bytes)
        distinct = min(-(-model_bytes // piece.weight_bytes), fitting)
    try:
        few = runner(piece, _FEW, distinct, options)
        more = _more(few, whole)
        many = runner(piece, _FEW + more, distinct, options)
        many()
    except (InputError, ModelError):
        return float("nan")
    rounds: list[float] = []
    end = time.monotonic() + _SECONDS
    while len(rounds) < _LEAST_ROUNDS or time.monotonic() < end:
        before, long, short, after = (_seconds(run) for run in (whole, many, few, whole))
        rounds.append((long - short) / more / (before + after) * 2)
    return float(np.median(rounds))


def _more(few: Callable[[], object], whole: Callable[[], object]) -> int:
    """How many copies more the long graph has."""
    copies = _seconds(whole) / max(_seconds(few) / _FEW, 1e-9)
    return max(_LEAST_MORE, min(_MOST_MORE, int(copies)))


def _seconds(run: Callable[[], object]) -> float:
    """Median seconds of a few runs, after one that wakes threads and fills caches."""
    return sorted(times_us(run, _RUNS, warmup=1))[_RUNS // 2] / 1e6
