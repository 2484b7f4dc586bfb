"""A number and a colour for each node of a trace: its time, or the head-room of its accumulator."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.node_values import NodeColors
from tracer.analyzers.views.trace.sections import sections
from tracer.analyzers.views.trace.timed_rows import timed
from tracer.errors import UsageError
from tracer.records.topology import Topology
from tracer.records.trace import Trace

_AMOUNTS = ("#00224e", "#414d6b", "#7c7b78", "#bcae6c", "#fee838")
"""The map cividis (Nuñez and others, 2018), which colour-blind readers see alike."""

_DIFFERENCES = ("#b35806", "#f7f7f7", "#2166ac")
"""Below zero, zero, above zero."""

_UNNAMED = "node"
"""What Model Explorer calls a node without a name."""


def node_times(trace: Trace, options: ViewOptions) -> NodeColors:
    """Returns the times of the first run in µs. Raises UsageError for a trace without times."""
    section = timed(trace, "a colour by time")[0][0]
    times = section.nodes.set_index("node")["time_us"].dropna()
    longest = times.max()
    return _colored(trace, "time µs", times, lambda time: _between(_AMOUNTS, time / longest))


def head_room(trace: Trace, options: ViewOptions) -> NodeColors:
    """Returns the bits that each accumulator has beyond those that its sums need on this data.

    A negative number says how many bits are missing. Raises UsageError without accumulators.
    """
    rows = sections(trace)[0].nodes.set_index("node")
    room = (rows["bits"] - rows["bits_observed"]).dropna()
    if room.empty:
        raise UsageError(
            "head-room needs accumulators, and this trace has none",
            "Make a trace with: tracer interpret MODEL.onnx --accumulator 16 -o run.trace.",
        )
    widest = max(room.abs().max(), 1)
    return _colored(
        trace, "head-room bits", room, lambda bits: _between(_DIFFERENCES, (bits / widest + 1) / 2)
    )


def _colored(
    trace: Trace, name: str, values: pd.Series[float], color: Callable[[float], str]
) -> NodeColors:
    topology = trace.model.topology
    ids = {str(key): str(key) for key in values.index} if topology is None else node_ids(topology)
    return NodeColors(
        name,
        {
            ids[key]: (value, color(value))
            for key, value in zip(values.index, values.astype(float).tolist(), strict=True)
            if key in ids
        },
    )


def node_ids(topology: Topology) -> Mapping[str, str]:
    """Returns the id that Model Explorer's ONNX adapter gives each node of its main graph, by key.

    It names nodes without a name, renames the second of a name, and shows the bodies of If in the
    graph around it. Bodies of other nodes are graphs of their own, whose nodes have no entry.
    """
    names = topology.nodes if topology.names is None else topology.names
    used: defaultdict[tuple[int | None, str], set[str]] = defaultdict(set)
    again: Counter[str] = Counter()
    ids: dict[int, str] = {}
    for position, (key, owner) in enumerate(zip(topology.nodes, topology.owners, strict=True)):
        body = "" if owner is None else _body(key, topology.nodes[owner])
        preferred = name = names[position] or _UNNAMED
        while name in used[owner, body]:
            again[preferred] += 1
            name = f"{preferred}_{again[preferred]}"
        used[owner, body].add(name)
        if owner is None:
            ids[position] = name
        elif owner in ids and topology.op_types[owner] == "If":
            ids[position] = f"{ids[owner]}/{body}/{name}"
    return {topology.nodes[position]: name for position, name in ids.items()}


def _body(key: str, owner: str) -> str:
    """Returns the attribute with the body that holds a node: keys are `OWNER.ATTRIBUTE/…`."""
    return key.removeprefix(f"{owner}.").partition("/")[0]


def _between(stops: tuple[str, ...], part: float) -> str:
    """Returns the colour at `part` (0 to 1) of a scale."""
    place = min(max(part, 0.0), 1.0) * (len(stops) - 1)
    low = min(int(place), len(stops) - 2)
    ends = [_channels(stops[low]), _channels(stops[low + 1])]
    mixed = (round(a + (b - a) * (place - low)) for a, b in zip(*ends, strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _channels(color: str) -> list[int]:
    return [int(color[at : at + 2], 16) for at in (1, 3, 5)]
