"""What an accelerator did in recorded runs: which operator launched it, and how busy it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tracer.executors.calls import Kind, Span, Work
from tracer.records.trace import BUSY
from tracer.text import plural

_COPIES = ("Memcpy", "Memset")
"""Begin the names of copies of memory and of writing a constant to it."""
_GRAPH = "GraphLaunch"
"""Is in the names of calls that launch a captured graph: `cudaGraphLaunch`, `hipGraphLaunch`."""
_LONGEST = 96
"""Letters of a kernel's name; the rest are arguments of templates."""
_NO_THREAD = -1
"""Thread of rows that no call of the host launched."""
_OVERLAPPING = 1.01
"""Sum of the kernels' times ÷ the time in which one ran, from which on it is told."""


def launched(works: Iterable[Work], operators: Mapping[int, Span]) -> Iterator[Span]:
    """Yields each work as a span at the start of the operator that launched it.

    What no operator launched, such as a captured graph, gets a row of its own: the call that
    launched it, on the module that is running then.
    """
    calls = set()
    for work in works:
        operator, call = operators.get(work.operator), work.launch
        name = brief_name(work.name)
        if operator is not None and operator.kind in (Kind.FORWARD, Kind.BACKWARD):
            at, thread = operator.start, operator.thread
        elif call is None:
            at, thread = work.start, _NO_THREAD
        else:
            at, thread = call.start, call.thread
            if call not in calls:
                calls.add(call)
                shown = call.name if _GRAPH in call.name else name.partition("<")[0]
                yield Span(Kind.FORWARD, shown, at, max(call.end, at + 1), thread)
        yield Span(Kind.FORWARD, name, at, at, thread, work=work)


def brief_name(name: str) -> str:
    """Returns the name of a kernel without its type and what comes late in its arguments."""
    name = name.removeprefix("void ")
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


@dataclass
class DeviceUse:
    """The work of all recorded runs on an accelerator; times in ns.

    `busy` is the time in which any stream worked, `total` the sum over all work. Between them lie
    `gaps`; the accelerator was `waiting` for the host in a gap that ended with work launched in it.
    """

    runs: int = 0
    busy: int = 0
    total: int = 0
    gaps: int = 0
    gap: int = 0
    waiting: int = 0
    kernels: int = 0
    streams: Counter[int] = field(default_factory=Counter)
    copies: Counter[str] = field(default_factory=Counter)
    copying: Counter[str] = field(default_factory=Counter)
    graphs: int = 0
    of_graphs: int = 0

    def add(self, spans: Iterable[Span]) -> None:
        """Adds a run."""
        works = sorted((span.work for span in spans if span.work), key=lambda work: work.start)
        self.runs += 1
        self.graphs += len({w.launch for w in works if w.launch and _GRAPH in w.launch.name})
        end = works[0].start if works else 0
        for work in works:
            time = work.end - work.start
            self.total += time
            self.streams[work.stream] += time
            if work.name.startswith(_COPIES):
                self.copies[work.name] += 1
                self.copying[work.name] += time
            else:
                self.kernels += 1
                self.of_graphs += work.launch is not None and _GRAPH in work.launch.name
            self.busy += max(work.end - max(work.start, end), 0)
            if work.start > end:
                self.gaps += 1
                self.gap += work.start - end
                if work.launch is not None and work.launch.start > end:
                    self.waiting += work.start - end
            end = max(end, work.end)

    def notes(self, wall_us: float) -> Iterator[str]:
        """Yields how busy the accelerator was in a run, which takes `wall_us` undisturbed."""
        if not self.total:
            yield (
                f"{BUSY}0 of {wall_us:,.1f} µs: torch recorded no work of it. The model runs on "
                "the host alone, or another profiler holds CUPTI"
            )
            return
        busy, total, gap, waiting = (
            each / self.runs / 1e3 for each in (self.busy, self.total, self.gap, self.waiting)
        )
        idle = max(wall_us - busy, 0.0)
        yield (
            f"{BUSY}{busy:,.1f} of {wall_us:,.1f} µs, and idle {idle / wall_us:.0%}: "
            f"{self._count(self.kernels)} kernels a run on {plural(len(self.streams), 'stream')}"
        )
        yield (
            f"{self._count(self.gaps)} gaps between kernels took {gap:,.1f} µs of a recorded run; "
            f"in {waiting:,.1f} µs of them the card waited for a launch, which recording slows"
        )
        yield (
            "time_us is the card's time for what an operator launched; the host's time for the "
            "operator is time_us_host, with the overhead of recording"
        )
        if len(self.streams) > 1:
            each = (f"{time / self.runs / 1e3:,.1f} µs" for time in self.streams.values())
            yield f"work of the streams, in the order of their first kernel: {', '.join(each)}"
        if total > busy * _OVERLAPPING:
            yield (
                f"kernels of several streams overlap: their times sum to {total:,.1f} µs, "
                f"{total - busy:,.1f} µs more than the card was busy"
            )
        if self.copies:
            each = (
                f"{self._count(count)} {name} {self.copying[name] / self.runs / 1e3:,.1f} µs"
                for name, count in self.copies.most_common()
            )
            yield f"copies and memory sets of a run: {', '.join(each)}"
        if self.graphs:
            yield (
                f"{self._count(self.of_graphs)} kernels of a run are in "
                f"{self._count(self.graphs)} launch{'es' * (self.graphs > self.runs)} of captured "
                "graphs, and count for it: a graph does not tell which operator it captured"
            )

    def _count(self, count: int) -> str:
        """Returns the mean count of a run, in whole numbers where runs agree."""
        return f"{count / self.runs:,.{int(count % self.runs != 0)}f}"
