"""`.pprof`: stacks of modules with time, MACs and bytes, for `go tool pprof` and services.

The format is that of google/pprof's `proto/profile.proto`, compressed with gzip.
"""

from __future__ import annotations

import gzip
from typing import Any

from analyzers.options import ViewOptions
from analyzers.views.format import Format
from analyzers.views.profile_proto import profile_class
from analyzers.views.stacks import Frame, Profile, Sample, Stacks
from tracer.text import escaped, printable

_TYPES = (("time", "nanoseconds"), ("macs", "count"), ("moved", "bytes"))
_MAPPING = 1
"""All functions are of one binary: the model."""


def render(stacks: Stacks, options: ViewOptions) -> bytes:
    """The profile as bytes, the same for the same stacks.

    Several runs share a file, where all is summed: each then has a frame of its own at the bottom.
    """
    writer = _Writer(stacks)
    for profile in stacks.profiles:
        root = (Frame(profile.name),) if len(stacks.profiles) > 1 else ()
        for sample in profile.samples:
            writer.sample(profile, sample, (*root, *sample.stack))
    return gzip.compress(writer.message.SerializeToString(), mtime=0)


class _Writer:
    """Fills the message; texts, functions and locations have numbers, each once."""

    def __init__(self, stacks: Stacks) -> None:
        self.message: Any = profile_class()()
        self._texts: dict[str, int] = {}
        self._locations: dict[Frame, int] = {}
        self._text("")
        for name, unit in _TYPES:
            self.message.sample_type.add(type=self._text(name), unit=self._text(unit))
        self.message.mapping.add(
            id=_MAPPING, filename=self._text(printable(stacks.title)),
            has_functions=True, has_filenames=True, has_line_numbers=True,
        )  # fmt: skip
        times = (sample.time_us for each in stacks.profiles for sample in each.samples)
        self.message.duration_nanos = round(sum(times) * 1000)
        has_times = self.message.duration_nanos > 0
        self.message.default_sample_type = self._text(_TYPES[0 if has_times else 1][0])
        self.message.comment.extend(self._text(escaped(note)) for note in stacks.notes)

    def sample(self, profile: Profile, sample: Sample, stack: tuple[Frame, ...]) -> None:
        """Adds a sample; in the file the innermost frame comes first."""
        places = [self._location(frame) for frame in reversed(stack)]
        values = (round(sample.time_us * 1000), sample.macs, sample.moved_bytes)
        added = self.message.sample.add(location_id=places, value=values)
        added.label.add(key=self._text("run"), str=self._text(printable(profile.name)))

    def _location(self, frame: Frame) -> int:
        if frame not in self._locations:
            number = self._locations[frame] = len(self._locations) + 1
            name = self._text(printable(frame.name))
            file = self._text(escaped(frame.file))
            self.message.function.add(id=number, name=name, system_name=name, filename=file)
            place = self.message.location.add(id=number, mapping_id=_MAPPING)
            place.line.add(function_id=number, line=frame.line)
        return self._locations[frame]

    def _text(self, text: str) -> int:
        if text not in self._texts:
            self._texts[text] = len(self._texts)
            self.message.string_table.append(text)
        return self._texts[text]


FORMATS = (Format("pprof", "stacks", render, is_binary=True),)
