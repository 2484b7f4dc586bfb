"""Measures peak memory bandwidth by the triad a = b + s c, as STREAM does.

J. D. McCalpin, "Memory Bandwidth and Machine Balance in Current High Performance Computers", IEEE
TCCA Newsletter, 1995. As there, an element counts 24 bytes, two reads and one write; reading a
cache line before writing it is not counted.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np

from tracer.host.peak_timer import PeakTimer
from tracer.interpreter.kernel_loading import loaded
from tracer.records.environment import Peak

_ARRAYS, _ELEMENT_BYTES = 3, 8
_LEAST_BYTES, _MOST_BYTES = 64 << 20, 512 << 20
"""Bytes of one array: the least if the cache size is unknown, the most to spare memory."""
_TIMES_CACHE = 2
_KERNELS = "tracer.host.kernels"
_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def bandwidth(timer: PeakTimer) -> Peak:
    """Returns the bytes per second that all threads move, in arrays larger than the caches."""
    triad, size = loaded("triad", _KERNELS).triad, array_bytes(_last_level_cache())
    b, c = (np.full(size // _ELEMENT_BYTES, value) for value in (1.0, 2.0))
    a = np.empty_like(b)
    edges = np.linspace(0, len(a), timer.threads + 1).astype(int)
    parts = [slice(low, high) for low, high in pairwise(edges)]
    with ThreadPoolExecutor(timer.threads) as pool:

        def run() -> None:
            tasks = [pool.submit(triad, a[part], b[part], c[part], 3.0) for part in parts]
            for task in tasks:
                task.result()

        seconds = timer.best(run)
    return Peak(_ARRAYS * size / seconds, f"triad over {_ARRAYS} x {size >> 20} MiB")


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
