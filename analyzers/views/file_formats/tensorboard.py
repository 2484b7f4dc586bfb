"""`.tfevents`, or a folder `tb/`: a graph with times, scalars and histograms, for TensorBoard.

A file of events is records of a length, a message `Event` and checksums. The messages are those of
TensorFlow: event.proto, graph.proto, summary.proto and step_stats.proto.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.exchange import Board, BoardNode, message_classes
from tracer.analyzers.views.file_formats import Format
from tracer.text import escaped, printable

_MESSAGES = {
    "AttrValue": ("bytes s 2",),
    "Attr": ("string key 1", "AttrValue value 2"),
    "NodeDef": ("string name 1", "string op 2", "string* input 3", "string device 4",
                "Attr* attr 5"),
    "VersionDef": ("int32 producer 1",),
    "GraphDef": ("NodeDef* node 1", "VersionDef versions 4"),
    "Memory": ("string allocator_name 1", "int64 total_bytes 2"),
    "NodeExecStats": (
        "string node_name 1", "int64 all_start_micros 2", "int64 op_start_rel_micros 3",
        "int64 op_end_rel_micros 4", "int64 all_end_rel_micros 5", "Memory* memory 6",
    ),
    "DeviceStepStats": ("string device 1", "NodeExecStats* node_stats 2"),
    "StepStats": ("DeviceStepStats* dev_stats 1",),
    "RunMetadata": ("StepStats step_stats 1",),
    "TaggedRunMetadata": ("string tag 1", "bytes run_metadata 2"),
    "HistogramProto": ("double min 1", "double max 2", "double num 3", "double sum 4",
                       "double sum_squares 5", "double* bucket_limit 6", "double* bucket 7"),
    "Value": ("string tag 1", "float simple_value 2", "HistogramProto histo 5"),
    "Summary": ("Value* value 1",),
    "Event": (
        "double wall_time 1", "int64 step 2", "string file_version 3", "bytes graph_def 4",
        "Summary summary 5", "TaggedRunMetadata tagged_run_metadata 8",
    ),
}  # fmt: skip
"""The fields that TensorBoard reads of these."""

_DEVICE = "/device:CPU:0"
_PRODUCER = 22
"""The version of graphs that have no older rules to follow."""

_STRANGE = re.compile(r"[^A-Za-z0-9_.\-]")
"""What a name of TensorFlow may not have; a slash begins an inner name."""

_KEY = "tracer_node"
"""The attribute that holds the node's key as the trace has it."""


def render(board: Board, options: ViewOptions) -> bytes:
    """The file of events; the same board gives the same bytes, so no event has a time."""
    return b"".join(_events(board))


def _events(board: Board) -> Iterator[bytes]:
    yield _event(file_version="brain.Event:2")
    names = _names(board.nodes)
    if board.nodes:
        graph = _new("GraphDef")
        graph.versions.producer = _PRODUCER
        for node, name in zip(board.nodes, names, strict=True):
            inputs = [names[position] for position in node.inputs]
            added = graph.node.add(
                name=name, op=printable(node.op_type), input=inputs, device=_DEVICE
            )
            added.attr.add(key=_KEY).value.s = escaped(node.key).encode()
        content: bytes = graph.SerializeToString()
        yield _event(graph_def=content)
    known = {node.key: name for node, name in zip(board.nodes, names, strict=True)}
    for label, times in board.times.items():
        told = _new("RunMetadata")
        device = told.step_stats.dev_stats.add(device=_DEVICE)
        begin = 0.0
        for key, (time, size) in times.items():
            if key in known:
                start, end = round(begin), round(begin + time)
                ran = device.node_stats.add(node_name=known[key], all_start_micros=start)
                ran.op_end_rel_micros = ran.all_end_rel_micros = end - start
                ran.memory.add(allocator_name="outputs", total_bytes=size)
            begin += time
        tagged = _new("TaggedRunMetadata")
        tagged.tag, tagged.run_metadata = printable(label), told.SerializeToString()
        if board.nodes:
            yield _event(tagged_run_metadata=tagged)
    for scalar in board.scalars:
        summary = _new("Summary")
        summary.value.add(tag=escaped(scalar.tag), simple_value=scalar.value)
        yield _event(step=scalar.step, summary=summary)
    for histogram in board.histograms:
        limits, counts = histogram.limits, histogram.counts
        summary = _new("Summary")
        drawn = summary.value.add(tag=escaped(histogram.tag)).histo
        drawn.min, drawn.max, drawn.num = histogram.low, histogram.high, sum(counts)
        pairs = list(zip(limits, counts, strict=True))  # every value is taken to be at its limit
        drawn.sum = sum(limit * count for limit, count in pairs)
        drawn.sum_squares = sum(limit**2 * count for limit, count in pairs)
        drawn.bucket_limit.extend(limits)
        drawn.bucket.extend(counts)
        yield _event(step=histogram.step, summary=summary)


def _names(nodes: Sequence[BoardNode]) -> list[str]:
    """Returns names as TensorFlow allows them, each once, and no name is the group of another."""
    groups = {"/".join(map(_valid, node.path[:depth])) for node in nodes
              for depth in range(1, len(node.path) + 1)}  # fmt: skip
    taken, names = set(groups), []
    for node in nodes:
        own = _valid(node.key)
        base = name = "/".join([*map(_valid, node.path), own])
        count = 0
        while name in taken:
            count += 1
            name = f"{base}_{count}"
        taken.add(name)
        names.append(name)
    return names


def _valid(name: str) -> str:
    plain = _STRANGE.sub("_", printable(name))
    return plain if plain[:1].isalnum() or plain[:1] == "." else f".{plain}"


@cache
def _classes() -> dict[str, Any]:
    return message_classes("tracer.tensorboard", _MESSAGES)


def _new(name: str) -> Any:
    return _classes()[name]()


def _event(step: int = 0, **content: Any) -> bytes:
    """Returns a record: its length, a checksum of that, the event, and its checksum."""
    data: bytes = _classes()["Event"](step=step, **content).SerializeToString()
    length = struct.pack("<Q", len(data))
    return b"".join((length, _checksum(length), data, _checksum(data)))


def _checksum(data: bytes) -> bytes:
    """Returns the CRC-32C of `data`, turned and shifted as TensorFlow's record_writer.cc does."""
    table, crc = _table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@cache
def _table() -> tuple[int, ...]:
    """Returns the remainders of all bytes for the polynomial of CRC-32C (RFC 3720, appendix B)."""
    remainders = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ 0x82F63B78 if byte & 1 else byte >> 1
        remainders.append(byte)
    return tuple(remainders)


FORMATS = (Format("tfevents", "board", render, is_binary=True),)
