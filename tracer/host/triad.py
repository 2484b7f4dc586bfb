"""The most bytes a second between the cores and main memory: a = b + s c, as in STREAM.

J. D. McCalpin, "Memory Bandwidth and Machine Balance in Current High Performance Computers", IEEE
TCCA Newsletter, 1995. As there, an element counts 24 bytes: two read and one written; that a cache
may read a line before it is written is not counted.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np

from tracer.host.kernels import triad
from tracer.host.watch import Watch
from tracer.records.environment import Peak

_ARRAYS, _ELEMENT_BYTES = 3, 8
_LEAST_BYTES, _MOST_BYTES = 64 << 20, 512 << 20
"""Of one array: the least where the cache's size is not known, the most for the memory's sake."""
_TIMES_CACHE = 2
_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def bandwidth(watch: Watch) -> Peak:
    """Bytes a second that the threads move together, in arrays that no cache holds."""
    size = array_bytes(_last_level_cache())
    b, c = (np.full(size // _ELEMENT_BYTES, value) for value in (1.0, 2.0))
    a = np.empty_like(b)
    edges = np.linspace(0, len(a), watch.threads + 1).astype(int)
    parts = [slice(low, high) for low, high in pairwise(edges)]
    with ThreadPoolExecutor(watch.threads) as pool:

        def run() -> None:
            tasks = [pool.submit(triad, a[part], b[part], c[part], 3.0) for part in parts]
            for task in tasks:
                task.result()

        seconds = watch.best(run)
    return Peak(_ARRAYS * size / seconds, f"triad over {_ARRAYS} x {size >> 20} MiB")


def array_bytes(cache: int) -> int:
    """Bytes of one array for a last-level cache of `cache` bytes, whole MiB."""
    wanted = max(_LEAST_BYTES, _TIMES_CACHE * cache)
    return min(wanted, _MOST_BYTES) >> 20 << 20


def _last_level_cache() -> int:
    """Bytes of the largest cache, 0 where the system does not tell."""
    folder = Path("/sys/devices/system/cpu/cpu0/cache")
    return max((_bytes(path) for path in folder.glob("index*/size")), default=0)


def _bytes(path: Path) -> int:
    """`32768K` as a number."""
    text = path.read_text(encoding="ascii").strip()
    return int(text[:-1]) * _SIZES[text[-1]] if text[-1:] in _SIZES else int(text or 0)
