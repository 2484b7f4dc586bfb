"""The view of an Environment: the machine, the versions of packages, and the machine's peaks."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.page import Page, facts
from tracer.analyzers.views.text import plural
from tracer.records.environment import Environment


def page(result: Environment, options: ViewOptions) -> Page:
    """One table of names and values."""
    return facts("", table(result, options))


def table(result: Environment, options: ViewOptions) -> pd.DataFrame:
    """`name` and `value`, a row for each fact."""
    return pd.DataFrame(_facts(result), columns=["name", "value"])


def machine_fields(result: Environment) -> tuple[tuple[str, str], ...]:
    """The facts of the table, for a report."""
    return tuple(_facts(result))


def document(result: Environment, options: ViewOptions) -> dict[str, Any]:
    """The fields of `Environment`."""
    return asdict(result)


def _facts(observed: Environment) -> Iterator[tuple[str, str]]:
    yield "CPU", f"{observed.cpu} ({observed.cpu_count} available)"
    yield "instructions", " ".join(observed.cpu_flags) or "unknown"
    memory = observed.memory_bytes
    yield "memory", f"{memory / 2**30:.1f} GiB" if memory else "unknown"
    yield (
        "GPU",
        "; ".join(f"{n} x {name}" if n > 1 else name for name, n in Counter(observed.gpus).items())
        or "none",
    )
    yield "CUDA", observed.cuda or "none"
    yield "OS", ", ".join(filter(None, (observed.distribution, observed.os)))
    yield "Python", observed.python
    yield from observed.packages.items()
    if observed.compiled is not None:
        code = observed.compiled
        yield "narrow sums", f"{code.instructions}; {plural(code.threads, 'thread')}"
        kept = code.folder or "not kept: set NUMBA_CACHE_DIR to a writable folder"
        yield "compiled code", kept
    if observed.fence is not None:
        yield "fence", observed.fence or "none: the kernel has neither Landlock nor seccomp"
    if observed.peaks is None:
        yield "peaks", "not measured: tracer env --peaks"
        return
    peaks = observed.peaks
    threads = plural(peaks.threads, "thread")
    yield "float32 peak", f"{_giga(peaks.float32.rate)} GFLOP/s with {threads} ({peaks.float32.by})"
    if peaks.int8 is not None:
        yield "int8 peak", f"{_giga(peaks.int8.rate)} GOP/s ({peaks.int8.by})"
    yield "memory peak", f"{_giga(peaks.memory.rate)} GB/s ({peaks.memory.by})"
    if peaks.is_busy:
        yield "", f"too low: other programs took {1 - peaks.cpu_share:.0%} of the CPU in all tries"
    load, meanwhile = peaks.load, []
    if load is None:
        return
    if load.others is not None:
        meanwhile.append(f"other programs used {load.others:.0%} of the CPU")
    if load.stolen:
        meanwhile.append(f"the host of this virtual machine kept {load.stolen:.1%}")
    if load.interruptions is not None:
        meanwhile.append(f"{plural(load.interruptions, 'interruption')} of the measurement")
    yield "meanwhile", ", ".join(meanwhile)


def _giga(rate: float) -> str:
    return f"{rate / 1e9:.3g}"
