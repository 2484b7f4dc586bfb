"""The texts that a program reads from each format, by extension."""

import gzip
import json
from collections import defaultdict


def _perfetto(content):
    events = json.loads(content)["traceEvents"]
    return {event["name"] for event in events if event["ph"] == "B"}


def _pftrace(content):
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    trace = Trace()
    trace.ParseFromString(content)
    return {packet.track_event.name for packet in trace.packet}


def _speedscope(content):
    return {frame["name"] for frame in json.loads(content)["shared"]["frames"]}


def _netron(content):
    return {item["target"] for item in json.loads(content)["metrics"]}


def _model_explorer(content):
    return set(json.loads(content)["results"])


def _pprof(content):
    profile = decoded(gzip.decompress(content))
    texts = [text.decode() for text in profile[6]]
    return {texts[decoded(function)[2][0]] for function in profile[5]}


def decoded(message):
    """The fields of a protobuf message by number: integers, and bytes of everything else."""
    fields, at = defaultdict(list), 0
    while at < len(message):
        tag, at = _varint(message, at)
        if tag & 7 == 0:
            value, at = _varint(message, at)
        else:
            assert tag & 7 == 2, "neither a number nor a text"
            size, at = _varint(message, at)
            value, at = message[at : at + size], at + size
        fields[tag >> 3].append(value)
    return fields


def numbers(packed):
    """The integers of a packed field."""
    values, at = [], 0
    while at < len(packed):
        value, at = _varint(packed, at)
        values.append(value)
    return values


def _varint(message, at):
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


READERS = {
    "model-explorer.json": _model_explorer,
    "headroom.model-explorer.json": _model_explorer,
    "netron.json": _netron,
    "perfetto.json": _perfetto,
    "pftrace": _pftrace,
    "pprof": _pprof,
    "speedscope.json": _speedscope,
}
