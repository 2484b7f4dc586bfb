"""Times kernels and nodes alone, without the profiler: a check of the corrected times.

A graph of many copies of a kernel takes longer than a graph of few copies, by the time of the
extra copies. The two alternate with each other and with undisturbed runs of the whole model, so
that changes in the machine's speed cancel out. A large model runs before and after all kernels: its
session leaves the memory meanwhile. The result is the share of a whole run. With several
threads, those of the session before sleep by then, and those of the next are awake as in the model.

Copies share their inputs, which are warm in the cache, as in the model they were just written.
Copies have weights of their own until the copies hold as many bytes as the weights of the model:
so many bytes pass between two uses of a weight in the model.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import onnxruntime as ort

from tracer.errors import InputError, ModelError
from tracer.executors.onnxruntime import feeding, node_names, sessions
from tracer.executors.onnxruntime.kernel_models import Copies, Piece
from tracer.executors.onnxruntime.plain_session import PlainSession
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph import footprint
from tracer.graph.encoding import encoded
from tracer.graph.model import Model, expanded_keys
from tracer.inputs.feedset import FeedSet
from tracer.support.progress import Progress
from tracer.support.timing import SPINNING_S, times_us
from tracer.support.types import FloatArray

_SECONDS = 0.4
"""Time spent on each piece."""

_LEAST_ROUNDS = 9
_RUNS = 3
"""Timed runs of each graph in a round, after one that is not timed."""

_FEW = 1
_LEAST_MORE, _MOST_MORE = 4, 60
"""Limits of the extra copies. The long graph takes about as long as a whole run: runs of equal
length are equally likely to be interrupted."""

_MOST_BYTES, _MOST_BESIDE_A_LARGE_MODEL = 1 << 30, 1 << 28
"""Bytes of the weights of all copies: more than caches hold. They are in memory twice: a session
packs them for its kernels."""


def shares(
    model: Model,
    pieces: Sequence[Piece | None],
    feedset: FeedSet,
    settings: OrtSettings,
    progress: Progress,
) -> FloatArray:
    """Returns the time of one call of each piece of `model` ÷ the time of a whole run.

    NaN stands for what is no piece, or onnxruntime refuses to run alone.
    """
    factory = sessions.Factory(model, node_names.serialize(model), settings)
    plain = PlainSession(factory, feedset)
    rest_s = 0.0 if settings.threads == 1 else SPINNING_S

    def whole_us() -> float:
        with sessions.running(model):
            return _block_us(plain.run, rest_s)

    if not plain.gives_way:
        return _shares(model, pieces, whole_us, settings, progress)
    before = whole_us()
    plain.close()
    shares = _shares(model, pieces, lambda: before, settings, progress)
    return shares * before / (before + whole_us()) * 2


def _shares(
    model: Model,
    pieces: Sequence[Piece | None],
    whole_us: Callable[[], float],
    settings: OrtSettings,
    progress: Progress,
) -> FloatArray:
    shares = np.full(len(pieces), np.nan)
    for index, piece in enumerate(pieces):
        progress(index, len(pieces), "replaying")
        if piece is not None:
            with sessions.running(model):
                shares[index] = _share(piece, whole_us, footprint.stored_bytes(model), settings)
    progress(len(pieces), len(pieces), "replaying")
    return shares


def runner(
    piece: Piece, count: int, distinct: int, settings: OrtSettings
) -> Callable[[], list[object]]:
    """Returns a function that runs `count` copies once and returns the output of the last."""
    copies = piece.copies(count, distinct)
    unoptimized = OrtSettings(
        threads=settings.threads, optimization="none", provider=settings.provider
    )
    model = Model(copies.proto, None, "", expanded_keys(copies.proto))
    stored = {name: ort.OrtValue.ortvalue_from_numpy(v) for name, v in copies.values.items()}
    session = sessions.Factory(model, encoded(copies.proto, model.name), unoptimized, stored).open()
    return partial(_run, feeding.runner(model, session, dict(piece.feeds)), copies)


def _run(run: Callable[[], list[object]], copies: Copies) -> list[object]:
    """Runs a session, which reads weights where they are: `copies` must live as long."""
    return run()


def _share(
    piece: Piece, whole_us: Callable[[], float], model_bytes: int, settings: OrtSettings
) -> float:
    """Returns the median over rounds; NaN where onnxruntime refuses the piece."""
    distinct, most_more = 1, _MOST_MORE
    if piece.weight_bytes:
        is_much = footprint.is_much(model_bytes)
        most = _MOST_BESIDE_A_LARGE_MODEL if is_much else _MOST_BYTES
        fitting = max(1, most // piece.weight_bytes)
        # weights that are nodes, not initializers, are no bytes of the model
        distinct = max(1, min(-(-model_bytes // piece.weight_bytes), fitting))
        if is_much:  # each copy packs its weights
            most_more = max(1, model_bytes // piece.weight_bytes // 2)
    try:
        few = runner(piece, _FEW, distinct, settings)
        more = min(_extra_copies(few, whole_us()), most_more)
        many = runner(piece, _FEW + more, distinct, settings)
        many()
    except (InputError, ModelError):
        return float("nan")
    rest_s = 0.0 if settings.threads == 1 else SPINNING_S
    rounds: list[float] = []
    end = time.monotonic() + _SECONDS
    before = whole_us()
    while len(rounds) < _LEAST_ROUNDS or time.monotonic() < end:
        long, short = (_block_us(run, rest_s) for run in (many, few))
        after = whole_us()
        rounds.append((long - short) / more / (before + after) * 2)
        before = after
    return float(np.median(rounds))


def _extra_copies(few: Callable[[], object], whole_us: float) -> int:
    copies = whole_us / max(_block_us(few, 0) / _FEW, 1e-9)
    return max(_LEAST_MORE, min(_MOST_MORE, int(copies)))


def _block_us(run: Callable[[], object], rest_s: float) -> float:
    """Returns the median time of a few runs, after a run that wakes threads and fills caches."""
    time.sleep(rest_s)
    return sorted(times_us(run, _RUNS, warmup=1))[_RUNS // 2]
