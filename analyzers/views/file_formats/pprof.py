"""`.pprof`: stacks of modules with time, MACs and bytes, for `go tool pprof` and services.

The format is that of google/pprof's `proto/profile.proto`, compressed with gzip.
"""

import gzip
from typing import Any

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.exchange import Frame, Profile, Sample, Stacks, message_classes
from tracer.analyzers.views.file_formats import Format
from tracer.text import escaped, printable

_TYPES = (("time", "nanoseconds"), ("macs", "count"), ("moved", "bytes"))
_MESSAGES = {
    "ValueType": ("int64 type 1", "int64 unit 2"),
    "Label": ("int64 key 1", "int64 str 2", "int64 num 3", "int64 num_unit 4"),
    "Sample": ("uint64* location_id 1", "int64* value 2", "Label* label 3"),
    "Mapping": (
        "uint64 id 1", "uint64 memory_start 2", "uint64 memory_limit 3", "uint64 file_offset 4",
        "int64 filename 5", "int64 build_id 6", "bool has_functions 7", "bool has_filenames 8",
        "bool has_line_numbers 9", "bool has_inline_frames 10",
    ),
    "Line": ("uint64 function_id 1", "int64 line 2", "int64 column 3"),
    "Location": (
        "uint64 id 1", "uint64 mapping_id 2", "uint64 address 3", "Line* line 4",
        "bool is_folded 5",
    ),
    "Function": (
        "uint64 id 1", "int64 name 2", "int64 system_name 3", "int64 filename 4",
        "int64 start_line 5",
    ),
    "Profile": (
        "ValueType* sample_type 1", "Sample* sample 2", "Mapping* mapping 3",
        "Location* location 4", "Function* function 5", "string* string_table 6",
        "int64 drop_frames 7",
        "int64 keep_frames 8", "int64 time_nanos 9", "int64 duration_nanos 10",
        "ValueType period_type 11", "int64 period 12", "int64* comment 13",
        "int64 default_sample_type 14", "int64 doc_url 15",
    ),
}  # fmt: skip
"""The messages of profile.proto."""

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
        self.message: Any = message_classes("perftools.profiles", _MESSAGES)["Profile"]()
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
        for frame in reversed(stack):
            if frame not in self._locations:
                number = self._locations[frame] = len(self._locations) + 1
                name = self._text(printable(frame.name))
                file = self._text(escaped(frame.file))
                self.message.function.add(id=number, name=name, system_name=name, filename=file)
                place = self.message.location.add(id=number, mapping_id=_MAPPING)
                place.line.add(function_id=number, line=frame.line)
        places = [self._locations[frame] for frame in reversed(stack)]
        values = (round(sample.time_us * 1000), sample.macs, sample.moved_bytes)
        added = self.message.sample.add(location_id=places, value=values)
        added.label.add(key=self._text("run"), str=self._text(printable(profile.name)))

    def _text(self, text: str) -> int:
        if text not in self._texts:
            self._texts[text] = len(self._texts)
            self.message.string_table.append(text)
        return self._texts[text]


FORMATS = (Format("pprof", "stacks", render, is_binary=True),)
