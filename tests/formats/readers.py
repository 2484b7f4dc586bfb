"""The texts that a program reads from each format, by extension."""

import gzip
import io
import json
from collections import defaultdict

import pytest


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


def _xlsx(content):
    sheet = pytest.importorskip("openpyxl").load_workbook(io.BytesIO(content))["table"]
    return {row[0] for row in sheet.iter_rows(values_only=True)}


def _ipynb(content):
    names = {}
    exec(json.loads(content)["cells"][1]["source"], names)
    return set(names["table"]["node"])


def _tensorboard(content):
    return {name.removeprefix("final sums/") for name in histograms(content)}


def histograms(content):
    """tag -> histogram message (decoded) of a file of events."""
    found = {}
    for event in map(decoded, records(content)):
        for value in decoded(event[5][0])[1] if event[5] else ():
            fields = decoded(value)
            if fields[5]:
                found[fields[1][0].decode()] = fields[5][0]
    return found


def records(content):
    """The records of a file of events, without checking their sums."""
    at = 0
    while at < len(content):
        size = int.from_bytes(content[at : at + 8], "little")
        yield content[at + 12 : at + 12 + size]
        at += 16 + size


def decoded(message):
    """The fields of a protobuf message by number: integers, and bytes of everything else."""
    fields, at = defaultdict(list), 0
    while at < len(message):
        tag, at = _varint(message, at)
        if tag & 7 == 0:
            value, at = _varint(message, at)
        elif tag & 7 in (1, 5):
            size = 8 if tag & 7 == 1 else 4
            value, at = message[at : at + size], at + size
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
    "ipynb": _ipynb,
    "xlsx": _xlsx,
    "model-explorer.json": _model_explorer,
    "headroom.model-explorer.json": _model_explorer,
    "netron.json": _netron,
    "perfetto.json": _perfetto,
    "pftrace": _pftrace,
    "pprof": _pprof,
    "speedscope.json": _speedscope,
    "tfevents": _tensorboard,
}
