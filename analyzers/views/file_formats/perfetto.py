"""`.perfetto.json`: a timeline for Perfetto and chrome://tracing.

The format is "Trace Event Format" of Chromium, with times in µs. Begins and ends are events of
their own (`B`, `E`), whose order says what is inside what, however a viewer rounds the times.
"""

from typing import Any

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.exchange import Timeline, boundaries
from tracer.analyzers.views.file_formats import Format
from tracer.analyzers.views.file_formats.json import compact
from tracer.text import escaped, printable

_Event = dict[str, Any]


def render(timeline: Timeline, options: ViewOptions) -> bytes:
    """One JSON object in ASCII, where each process of the timeline and each track has a number."""
    events = []
    for number, process in enumerate(timeline.processes, 1):
        events += [
            _about("process_name", number, 0, {"name": printable(process.name)}),
            _about("process_sort_index", number, 0, {"sort_index": number}),
        ]
        for thread, track in enumerate(process.tracks, 1):
            events += [
                _about("thread_name", number, thread, {"name": printable(track.name)}),
                _about("thread_sort_index", number, thread, {"sort_index": thread}),
            ]
            for time, begun in boundaries(track.slices):
                event: _Event = {"ph": "E", "pid": number, "tid": thread, "ts": time / 1000}
                if begun is not None:
                    values = begun.values.items()
                    args = {k: escaped(v) if isinstance(v, str) else v for k, v in values}
                    name = printable(begun.name)
                    event |= {"ph": "B", "cat": track.name, "name": name, "args": args}
                events.append(event)
        for counter in process.counters:
            same = {"ph": "C", "name": counter.name, "pid": number, "tid": 0}
            events += [
                {**same, "ts": time / 1000, "args": {"bytes": value}}
                for time, value in counter.points
            ]
    about = {"title": printable(timeline.title), "notes": list(map(escaped, timeline.notes))}
    return compact({"displayTimeUnit": "ns", "otherData": about, "traceEvents": events})


def _about(name: str, pid: int, tid: int, args: dict[str, str | int]) -> _Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}


FORMATS = (Format("perfetto.json", "timeline", render),)
