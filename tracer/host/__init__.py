"""The peak rates of this machine, the roofs of a roofline: measured once, and stored.

There is a file for each processor, thread count and versions in the user's cache folder.

A rate is the best of many tries: disturbances only slow a try down. Arithmetic is products of
square matrices that fit in the caches. A try is to be shorter than the time that the system gives a
program at a stretch (some ms): then some tries have their processors for themselves, however busy
the machine is.

Memory is the sum a = b + c, as STREAM does, and reading. As there, an element of the sum counts 24
bytes, two reads and one write; reading a cache line before writing it is not counted, so that
reading alone may be faster (J. D. McCalpin, "Memory Bandwidth and Machine Balance in Current High
Performance Computers", IEEE TCCA Newsletter, 1995).
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from importlib import metadata
from itertools import cycle
from pathlib import Path

import msgspec
import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from tracer.executors.onnxruntime import sessions
from tracer.executors.settings import OrtSettings, SessionSettings
from tracer.graph import loading
from tracer.graph.model import encoded
from tracer.interpreter.compiled_code import loaded
from tracer.interpreter.numeric import parallel
from tracer.records import environment
from tracer.records.environment import CompiledCode, Peak, Peaks
from tracer.support.files import cached_file, read_cached, store_in_cache
from tracer.support.measurements import Moment, times_us
from tracer.support.types import FloatArray

_SIZES = (128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
_LEAST_US, _MOST_US = 200, 2000
"""A shorter product has too little work per core; a longer one is interrupted on a busy machine."""
_SIZING_TRIES, _SIZING_S = 5, 1.0
"""Tries that tell about how long a product takes, and how long after the first to begin others."""
_AFFINITIES = "session.intra_op_thread_affinities"
"""Processors of onnxruntime's own threads, counted from 1."""
_ARRAYS, _ELEMENT_BYTES = 3, 8
_LEAST_BYTES, _MOST_BYTES = 64 << 20, 512 << 20
"""Bytes of one array: the least if the cache size is unknown, the most to spare memory."""
_TIMES_CACHE = 2
_PIECE_BYTES = 2 << 20
"""Bytes of each array that a thread moves between two looks at the clock: a fraction of a ms."""
_MOVING_S, _MOST_ROUNDS, _ENOUGH_MOMENTS = 0.2, 3, 50
"""How long the threads run, how often at most, and the moments with all of them that are enough."""
_BEST_TENTH = 0.9
"""The quantile of the rates that counts: a few pieces may still be in a cache."""
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_ALONE = 0.95
"""Work that got this share of its processors was not disturbed."""
_MOST_S = 0.6
_SETTLED_S = 0.15
"""Time without a better try after which the best one stands, if others confirm it."""
_GAIN = 1.005
_NEAR = 0.95
"""Tries this near to the best confirm it, and count for the share: clocks may be coarse."""
_CONFIRMING = 4
_THREADS = Path("/proc/self/task")
_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
_INT8_INSTRUCTIONS = frozenset(
    {"avx2", "avx512bw", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"}
)
"""Instruction sets that multiply 8-bit integers and add up the products."""
_SECONDS = 3
"""About how long measuring takes."""
_MEASURED_BY = ("numpy", "onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino")
_METHOD = 2
"""Increase it when the measurement changes."""


def peaks(
    threads: int = 0,
    *,
    anew: bool = False,
    folder: Path | None = None,
    announce: Callable[[str], None] = lambda text: None,
) -> Peaks:
    """Returns the peaks of this machine at `threads` threads; 0 is one per physical core.

    Measures them, which takes some seconds, if none are stored for this processor and these
    versions of numpy, numba and onnxruntime, or if `anew`. `announce` is called with a message
    before and after measuring. `folder` defaults to the user's cache folder. Values measured while
    other programs run never lower stored ones.
    """
    count = threads or cores()
    file = peaks_file(count, folder)
    stored = read_peaks(file)
    if stored is not None and not anew:
        return stored
    workers = "1 thread" if count == 1 else f"{count} threads"
    announce(f"measuring what this machine can do with {workers}, about {_SECONDS} s")
    measured = measure(count)
    if stored is not None and measured.is_busy:
        measured = measured.at_least(stored)
    if write_peaks(file, measured):
        announce(f"stored in {file}")
    else:
        announce(f"{file} cannot be written: the next command will measure again")
    return measured


def stored_peaks(threads: int = 0, folder: Path | None = None) -> Peaks | None:
    """Returns the stored peaks, or None."""
    return read_peaks(peaks_file(threads or cores(), folder))


def correct(stored: Peaks, right: Peaks | None, folder: Path | None = None) -> None:
    """Stores the `right` peaks in place of `stored`; of None, the next command measures again.

    Peaks that are not those that are stored here change nothing.
    """
    file = peaks_file(stored.threads, folder)
    if read_peaks(file) != stored:
        return
    if right is None:
        with suppress(OSError):
            file.unlink()
    else:
        write_peaks(file, right)


def peaks_file(threads: int, folder: Path | None = None) -> Path:
    """Returns the file for the peaks of this machine at `threads` threads."""
    cpu, flags = environment.cpu_model(), environment.cpu_flags()
    key = (_METHOD, cpu, flags, threads, *map(_version, _MEASURED_BY))
    return cached_file("peaks", key, folder)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def read_peaks(path: Path) -> Peaks | None:
    """Returns the peaks stored in a file; None if it is missing or damaged."""
    data = read_cached(path)
    try:
        return None if data is None else msgspec.json.decode(data, type=Peaks)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def write_peaks(path: Path, peaks: Peaks) -> bool:
    """Stores the peaks; returns whether it succeeded."""
    return store_in_cache(path, msgspec.json.encode(peaks))


def compiled_code() -> CompiledCode:
    """Returns what the code that tracer compiles for its sums uses here.

    That is the instructions, the threads of a run by default, and the folder.
    """
    folder = loaded("machine_code").place()
    with parallel.threads(None):
        threads = parallel.allowed()
    return CompiledCode(
        loaded("machine_code").instruction_set(), threads, None if folder is None else str(folder)
    )


def measure(threads: int) -> Peaks:
    """Measures all peaks of this machine with `threads` threads."""
    begun = Moment.now()
    float32, *shares = peak("MatMul", threads)
    int8: Peak | None = None
    if _INT8_INSTRUCTIONS.intersection(environment.cpu_flags()):
        int8, share = peak("MatMulInteger", threads)
        shares.append(share)
    memory, share = bandwidth(threads)
    alone, load = min(*shares, share), begun.until_now()
    return Peaks(threads, float32, memory, int8, alone, load, cache=_last_level_cache())


def peak(operator: str, threads: int) -> tuple[Peak, float]:
    """Returns the rate, operations/s, of float32 `MatMul` or uint8 x int8 `MatMulInteger`.

    It is that of the fastest of all sizes that take a fraction of a ms to some ms here, with the
    share of CPU time that this one got.
    """
    cpus = places(threads)
    found: dict[int, tuple[float, float]] = {}
    deadline = time.perf_counter() + _SIZING_S
    with staying_on(cpus[:1]):
        for size in _SIZES:
            run = _product(operator, size, threads, cpus[1:])
            shortest = min(times_us(run, _SIZING_TRIES, warmup=1))
            if found and (shortest > _MOST_US or time.perf_counter() > deadline):
                break
            if shortest >= _LEAST_US or size == _SIZES[-1]:
                seconds, cpu_share = best(run, threads)
                found[size] = 2.0 * size**3 / seconds, cpu_share
            del run  # ends its threads, which would wait for work on the processors
    size, (rate, cpu_share) = max(found.items(), key=lambda item: item[1])
    return Peak(rate, f"onnxruntime {ort.__version__} {operator}, {size} x {size}"), cpu_share


def _product(operator: str, size: int, threads: int, cpus: Sequence[int]) -> Callable[[], object]:
    """Returns a run of a product; `cpus` are those of onnxruntime's threads but the caller's."""
    is_integer = operator == "MatMulInteger"
    input_type, weight_type = (np.uint8, np.int8) if is_integer else (np.float32, np.float32)
    a, b = np.ones((size, size), input_type), np.ones((size, size), weight_type)
    result_type = TensorProto.INT32 if is_integer else TensorProto.FLOAT
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(operator, ["a", "b"], ["y"], "product")],
        "product",
        [value("a", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)],
        [value("y", result_type, a.shape)],
        [numpy_helper.from_array(b, "b")],  # an initializer, which the runtime may prepack
    )
    # An opset that every supported onnxruntime reads.
    opset = [helper.make_opsetid("", 13)]
    model = loading.from_proto(helper.make_model(graph, opset_imports=opset, ir_version=7))
    entries = {_AFFINITIES: ";".join(str(cpu + 1) for cpu in cpus)} if cpus else {}
    settings = OrtSettings(threads=threads, session=SessionSettings(entries=entries))
    session = sessions.Factory(model, encoded(model.proto, model.name), settings).open()
    return partial(session.run, None, {"a": a})


def bandwidth(threads: int) -> tuple[Peak, float]:
    """Returns the bytes per second that all threads move, in arrays larger than the caches.

    The second value is the share of the threads that ran at the time.
    """
    size = array_bytes(_last_level_cache())
    cpus = [[cpu] for cpu in places(threads)] or [[]] * threads
    found: dict[str, tuple[float, float]] = {}
    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(partial(_arrays, size // _ELEMENT_BYTES // threads), cpus))
        for name, move in (("STREAM's sum", _add_arrays), ("reading", _read_arrays)):
            pieces = [np.empty((3, 0))] * threads
            for _ in range(_MOST_ROUNDS):
                more = pool.map(partial(_move_pieces, move), parts, cpus)
                pieces = [np.hstack(pair) for pair in zip(pieces, more, strict=True)]
                rates = _rates(pieces)
                if rates.all(axis=0).sum() >= _ENOUGH_MOMENTS:
                    break
            found[name] = _best_tenth(rates)
    name, (rate, cpu_share) = max(found.items(), key=lambda item: item[1])
    return Peak(rate, f"{name}, {_ARRAYS} x {size >> 20} MiB"), cpu_share


def _add_arrays(a: FloatArray, b: FloatArray, c: FloatArray) -> None:
    np.add(b, c, out=a)


def _read_arrays(a: FloatArray, b: FloatArray, c: FloatArray) -> None:
    for array in (a, b, c):
        array.view(np.int64).sum()


def _arrays(elements: int, cpus: Sequence[int]) -> list[FloatArray]:
    """Returns the arrays of one thread, in the memory next to its processor."""
    with staying_on(cpus):
        return [np.full(elements, value) for value in (0.0, 1.0, 2.0)]


def _move_pieces(
    move: Callable[..., object], arrays: Sequence[FloatArray], cpus: Sequence[int]
) -> FloatArray:
    """Returns start, end and rate of each piece that this thread moves for some time.

    The rate of a piece whose thread did not have a processor all the time is 0.
    """
    step, deadline = _PIECE_BYTES // _ELEMENT_BYTES, time.perf_counter() + _MOVING_S
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
    alone = cpu >= _ALONE * (end - start)
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


def cores() -> int:
    """Returns the physical cores that this process may use, onnxruntime's default threads."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    return len({_siblings(cpu) for cpu in os.sched_getaffinity(0)})


def places(threads: int) -> Sequence[int]:
    """Returns a processor for each thread, on as many cores as there are; () if too few are known.

    Left to the system, two threads often share a processor while another program has the other one.
    """
    if not hasattr(os, "sched_setaffinity"):
        return ()
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, allowed)
    except OSError:  # a sandbox that does not let a thread choose
        return ()
    by_core: dict[str, list[int]] = {}
    for cpu in sorted(allowed):
        by_core.setdefault(_siblings(cpu), []).append(cpu)
    ranked = sorted((rank, cpu) for cpus in by_core.values() for rank, cpu in enumerate(cpus))
    return [cpu for _, cpu in ranked[:threads]] if len(ranked) >= threads else ()


@contextmanager
def staying_on(cpus: Sequence[int]) -> Iterator[None]:
    """Keeps the calling thread on some processors; on any of them if there are none."""
    before = os.sched_getaffinity(0) if cpus else ()
    try:
        if cpus:
            os.sched_setaffinity(0, cpus)
        yield
    finally:
        if cpus:
            os.sched_setaffinity(0, before)


def _siblings(cpu: int) -> str:
    """Returns the hardware threads of the core of `cpu`; `cpu` itself if unknown."""
    try:
        return Path(_SIBLINGS.format(cpu)).read_text(encoding="ascii").strip()
    except OSError:
        return str(cpu)


def array_bytes(cache: int) -> int:
    """Returns the bytes of one array, whole MiB, for a last-level cache of `cache` bytes."""
    return min(max(_LEAST_BYTES, _TIMES_CACHE * cache), _MOST_BYTES) >> 20 << 20


def _last_level_cache() -> int:
    """Returns the bytes of the largest cache, 0 if unknown; Linux writes `32768K`."""
    folder = Path("/sys/devices/system/cpu/cpu0/cache")
    texts = [path.read_text(encoding="ascii").strip() for path in folder.glob("index*/size")]
    sizes = [int(text.rstrip("KMG") or 0) * _UNITS.get(text[-1:], 1) for text in texts]
    return max(sizes, default=0)


def best(run: Callable[[], object], threads: int) -> tuple[float, float]:
    """Returns the shortest time of `run`, in seconds, and the share of CPU time that it got."""
    run()
    # A clock of the CPU time of each thread that there is now; none but on Linux. The clock of the
    # process has the time of other threads as of the last tick, up to 10 ms ago. The numbers are
    # those of pthread_getcpuclockid(3), which Python has for its own threads alone.
    clocks = [~int(each.name) << 3 | 6 for each in _THREADS.iterdir()] if _THREADS.is_dir() else []
    tries: list[tuple[float, float]] = []
    shortest, begun = float("inf"), time.perf_counter()
    improved = now = begun
    while not tries or now - begun < _MOST_S:
        before, start = _cpu_seconds(clocks), time.perf_counter()
        run()
        now = time.perf_counter()
        tries.append((now - start, _cpu_of_try(before, _cpu_seconds(clocks), now - start)))
        if shortest > _GAIN * (now - start):
            shortest, improved = now - start, now
        if now - improved > _SETTLED_S:
            near = _near(tries)
            if len(near) >= _CONFIRMING and _share(near, threads) >= _ALONE:
                break
    return min(tries)[0], _share(_near(tries), threads)


def _near(tries: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    shortest = min(tries)[0]
    return [(wall, cpu) for wall, cpu in tries if shortest >= _NEAR * wall]


def _share(tries: Sequence[tuple[float, float]], threads: int) -> float:
    return sum(cpu for _, cpu in tries) / (threads * sum(wall for wall, _ in tries))


def _cpu_seconds(clocks: Sequence[int]) -> list[float]:
    seconds = [0.0] * len(clocks)
    for place, clock in enumerate(clocks):
        with suppress(OSError):  # the thread has ended
            seconds[place] = time.clock_gettime(clock)
    return seconds or [time.process_time()]


def _cpu_of_try(before: Sequence[float], after: Sequence[float], wall: float) -> float:
    """Returns the CPU time of a try; what a clock of one thread is late with is no part of it."""
    spent = [end - start for start, end in zip(before, after, strict=True)]
    return sum(spent) if len(spent) == 1 else sum(max(0.0, min(each, wall)) for each in spent)
