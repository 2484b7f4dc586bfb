"""The runs of a trace as stacks: a node below its modules, with its time and its work."""

from collections.abc import Mapping

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.stacks import Frame, Profile, Sample, Stacks
from tracer.analyzers.views.timeline import Value
from tracer.analyzers.views.trace.headline import headline
from tracer.analyzers.views.trace.sections import sections
from tracer.analyzers.views.trace.timed_rows import SHOWN, module_path, ordered, present
from tracer.records.trace import Trace

_WEIGHTS = ("time_us", "macs", "bytes_read", "bytes_written")


def stacks(trace: Trace, options: ViewOptions) -> Stacks:
    """Returns a profile for each run; of a count, a profile of its work without times."""
    profiles = []
    for section in sections(trace):
        rows = present(ordered(section.nodes, section.run), SHOWN)
        samples = [_sample(row) for row in rows if any(row.get(name) for name in _WEIGHTS)]
        profiles.append(Profile(headline(trace, section), samples))
    return Stacks(trace.model.name, tuple(profiles), trace.notes)


def _sample(row: Mapping[str, Value]) -> Sample:
    time, macs, read, written = (row.get(name, 0) for name in _WEIGHTS)
    path = module_path(str(row.get("module", "")))
    modules = (Frame(".".join(path[: depth + 1])) for depth in range(len(path)))
    return Sample(
        (*modules, Frame(str(row["node"]), *_location(str(row.get("source", ""))))),
        float(time),
        int(macs),
        int(read) + int(written),
    )


def _location(source: str) -> tuple[str, int]:
    """Returns the file and the line of `file.py:7`; the whole text and 0 where there is no line."""
    file, _, line = source.rpartition(":")
    return (file, int(line)) if file and line.isdecimal() else (source, 0)
