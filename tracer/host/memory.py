"""Measures the bandwidth of main memory by the sum a = b + c, as STREAM does, and by reading.

J. D. McCalpin, "Memory Bandwidth and Machine Balance in Current High Performance Computers", IEEE
TCCA Newsletter, 1995. As there, an element of the sum counts 24 bytes, two reads and one write;
reading a cache line before writing it is not counted, so that reading alone may be faster.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle
from pathlib import Path

import numpy as np

from tracer.host.peak_timer import ALONE
from tracer.host.processors import places, staying_on
from tracer.records.environment import Peak
from tracer.support.types import FloatArray

_ARRAYS, _ELEMENT_BYTES = 3, 8
_LEAST_BYTES, _MOST_BYTES = 64 << 20, 512 << 20
"""Bytes of one array: the least if the cache size is unknown, the most to spare memory."""
_TIMES_CACHE = 2
_PIECE_BYTES = 2 << 20
"""Bytes of each array that a thread moves between two looks at the clock: a fraction of a ms."""
_SECONDS, _ROUNDS, _ENOUGH = 0.2, 3, 50
"""How long the threads run, how often at most, and the moments with all of them that are enough."""
_BEST_TENTH = 0.9
"""The quantile of the rates that counts: a few pieces may still be in a cache."""
_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def bandwidth(threads: int) -> tuple[Peak, float]:
    """Returns the bytes per second that all threads move, in arrays larger than the caches.

    The second value is the share of the threads that ran at the time.
    """
    size = array_bytes(_last_level_cache())
    cpus = [[cpu] for cpu in places(threads)] or [[]] * threads
    found: dict[str, tuple[float, float]] = {}
    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(partial(_arrays, size // _ELEMENT_BYTES // threads), cpus))
        for name, move in (("STREAM's sum", _add), ("reading", _read)):
            pieces = [np.empty((3, 0))] * threads
            for _ in range(_ROUNDS):
                more = pool.map(partial(_moved, move), parts, cpus)
                pieces = [np.hstack(pair) for pair in zip(pieces, more, strict=True)]
                rates = _rates(pieces)
                if rates.all(axis=0).sum() >= _ENOUGH:
                    break
            found[name] = _best_tenth(rates)
    name, (rate, cpu_share) = max(found.items(), key=lambda item: item[1])
    return Peak(rate, f"{name}, {_ARRAYS} x {size >> 20} MiB"), cpu_share


def _add(a: FloatArray, b: FloatArray, c: FloatArray) -> None:
    np.add(b, c, out=a)


def _read(a: FloatArray, b: FloatArray, c: FloatArray) -> None:
    for array in (a, b, c):
        array.view(np.int64).sum()


def _arrays(elements: int, cpus: Sequence[int]) -> list[FloatArray]:
    """Returns the arrays of one thread, in the memory next to its processor."""
    with staying_on(cpus):
        return [np.full(elements, value) for value in (0.0, 1.0, 2.0)]


def _moved(
    move: Callable[..., object], arrays: Sequence[FloatArray], cpus: Sequence[int]
) -> FloatArray:
    """Returns start, end and rate of each piece that this thread moves for some time.

    The rate of a piece whose thread did not have a processor all the time is 0.
    """
    step, deadline = _PIECE_BYTES // _ELEMENT_BYTES, time.perf_counter() + _SECONDS
    pieces = []
    with staying_on(cpus):
        for low in cycle(range(0, len(arrays[0]), step)):
            piece = [array[low : low + step] for array in arrays]
            cpu, start = time.thread_time(), time.perf_counter()
            move(*piece)
            end = time.perf_counter()
            pieces.append((start, end, time.thread_time() - cpu, _ARRAYS * piece[0].nbytes))
            if end > deadline:
                break
    start, end, cpu, size = np.array(pieces).T
    alone = cpu >= ALONE * (end - start)
    if not alone.any():  # the clock of CPU time is too coarse
        alone[:] = True
    return np.array((start, end, np.where(alone, size / (end - start), 0.0)))


def _rates(threads: Sequence[FloatArray]) -> FloatArray:
    """Returns the rate of each thread at the middle of every piece of any of them."""
    moments = np.concatenate([(start + end) / 2 for start, end, _ in threads])
    rates = np.zeros((len(threads), len(moments)))
    for own, (start, end, rate) in zip(rates, threads, strict=True):
        piece = np.searchsorted(start, moments, side="right") - 1
        inside = (piece >= 0) & (moments < end[piece])
        own[inside] = rate[piece[inside]]
    return rates


def _best_tenth(rates: FloatArray) -> tuple[float, float]:
    """Returns the rate of all threads together, and the share of them that ran meanwhile.

    Moments in which all threads ran count; without any, all moments do.
    """
    everyone = rates.all(axis=0)
    counted = rates[:, everyone] if everyone.any() else rates
    together = counted.sum(axis=0)
    most = float(np.quantile(together, _BEST_TENTH))
    return most, float((counted[:, together >= most] > 0).mean())


def array_bytes(cache: int) -> int:
    """Returns the bytes of one array, whole MiB, for a last-level cache of `cache` bytes."""
    return min(max(_LEAST_BYTES, _TIMES_CACHE * cache), _MOST_BYTES) >> 20 << 20


def _last_level_cache() -> int:
    """Returns the bytes of the largest cache, 0 if unknown."""
    folder = Path("/sys/devices/system/cpu/cpu0/cache")
    return max((_bytes(path) for path in folder.glob("index*/size")), default=0)


def _bytes(path: Path) -> int:
    """Parses `32768K`."""
    text = path.read_text(encoding="ascii").strip()
    return int(text[:-1]) * _SIZES[text[-1]] if text[-1:] in _SIZES else int(text or 0)
