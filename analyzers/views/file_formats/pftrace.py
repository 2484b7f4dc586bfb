"""`.pftrace`: a timeline in Perfetto's own format (needs the `perfetto` extra).

Packets of `TrackEvent`, as perfetto.dev describes under "Writing custom trace events"; times in ns.
"""

from typing import Any

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.exchange import Process, Timeline, boundaries
from tracer.analyzers.views.file_formats import Extra, Format
from tracer.text import escaped, printable

_SEQUENCE = 1
"""All packets are of one writer."""


def render(timeline: Timeline, options: ViewOptions) -> bytes:
    """The trace as bytes; every track and counter has a number of its own."""
    writer = _Writer()
    for number, process in enumerate(timeline.processes, 1):
        writer.process(number, process)
    return writer.content()


class _Writer:
    def __init__(self) -> None:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos
        from perfetto.trace_builder.proto_builder import TraceProtoBuilder

        self._protos = protos
        self._builder = TraceProtoBuilder()
        self._tracks = 0

    def content(self) -> bytes:
        content: bytes = self._builder.serialize()
        return content

    def process(self, number: int, process: Process) -> None:
        around = self._track()
        around.process.pid = number
        around.process.process_name = printable(process.name)
        around.child_ordering = self._protos.TrackDescriptor.EXPLICIT
        kinds = self._protos.TrackEvent
        for rank, track in enumerate(process.tracks):
            described = self._track()
            described.parent_uuid = around.uuid
            described.name = printable(track.name)
            described.sibling_order_rank = rank
            for time, begun in boundaries(track.slices):
                if begun is None:
                    self._event(time, described.uuid, kinds.TYPE_SLICE_END)
                    continue
                event = self._event(time, described.uuid, kinds.TYPE_SLICE_BEGIN)
                event.name = printable(begun.name)
                for name, value in begun.values.items():
                    annotation = event.debug_annotations.add(name=name)
                    if isinstance(value, str):
                        annotation.string_value = escaped(value)
                    elif isinstance(value, int):
                        annotation.int_value = value
                    else:
                        annotation.double_value = value
        for counter in process.counters:
            described = self._track()
            described.parent_uuid = around.uuid
            described.name = counter.name
            described.counter.unit = self._protos.CounterDescriptor.UNIT_SIZE_BYTES
            for time, value in counter.points:
                event = self._event(time, described.uuid, kinds.TYPE_COUNTER)
                event.counter_value = value

    def _track(self) -> Any:
        self._tracks += 1
        described = self._builder.add_packet().track_descriptor
        described.uuid = self._tracks
        return described

    def _event(self, time: int, track: int, kind: int) -> Any:
        packet = self._builder.add_packet()
        packet.timestamp = time
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.track_event.track_uuid = track
        packet.track_event.type = kind
        return packet.track_event


FORMATS = (
    Format("pftrace", "timeline", render, is_binary=True, needs=Extra("perfetto", "perfetto")),
)
