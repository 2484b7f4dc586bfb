"""The texts that a program reads from each format, by extension."""

import json


def _perfetto(content):
    events = json.loads(content)["traceEvents"]
    return {event["name"] for event in events if event["ph"] == "B"}


def _pftrace(content):
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    trace = Trace()
    trace.ParseFromString(content)
    return {packet.track_event.name for packet in trace.packet}


READERS = {"perfetto.json": _perfetto, "pftrace": _pftrace}
