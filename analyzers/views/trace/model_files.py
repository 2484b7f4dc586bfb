"""What viewers of models show of a trace: an annotated model, values and colours of its nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import onnx
import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.timing import wall
from tracer.analyzers.views.exchange import NodeColors, NodeValues, Value
from tracer.analyzers.views.text import FORMATS, micros
from tracer.analyzers.views.trace.headline import Section, headline, sections
from tracer.analyzers.views.trace.run_tables import present, timed
from tracer.errors import InputError, UsageError
from tracer.graph import loading
from tracer.graph.model import expanded_keys, node_protos
from tracer.graph.stored_weights import has_external_data
from tracer.records.columns import BY_NAME, COLUMNS
from tracer.records.model_info import ModelInfo, Topology
from tracer.records.trace import Trace, distinctions
from tracer.text import brief

PREFIX = "tracer."

_OF_THE_NODE = ("node", "index", "domain", "module", "source", "input_shapes", "output_shapes")
"""Columns that the model itself says."""

_SHOWN = tuple(name for name in COLUMNS if name not in _OF_THE_NODE)


def annotated(trace: Trace, options: ViewOptions) -> bytes:
    """Returns the model with `tracer.<column>` in the `metadata_props` of its nodes.

    Nothing else changes: weights outside the file stay where they are, neither read nor copied. So
    such a model can only be written to its own folder. Nodes inside of functions have no metadata,
    as every call shares them. Raises InputError where the model's file is unknown, gone or another
    one, UsageError for another folder, ModelError for a file that is no valid model.
    """
    file = _file(trace.model, options)
    proto = loading.read(file)
    if has_external_data(proto):
        home = file.resolve().parent
        if options.folder is None or options.folder.resolve() != home:
            raise UsageError(
                f"{file}: weights lie in files beside it, and are not copied",
                f"Write the annotated model to {home}.",
            )
    whole: dict[str, str] = {}
    values: dict[str, dict[str, str]] = {}  # of each node, by key
    for section, mark in _marked_sections(trace):
        whole[f"{PREFIX}run{mark}"] = headline(trace, section)
        if section.run is not None:
            whole[f"{PREFIX}wall_us{mark}"] = str(wall(section.run)["mean"])
        for row in present(section.nodes, ("node", *_SHOWN)):
            own = values.setdefault(str(row["node"]), {f"{PREFIX}op_type": str(row.get("op_type"))})
            names = [name for name in row if name not in ("node", "op_type")]
            own |= {f"{PREFIX}{name}{mark}": str(row[name]) for name in names}
    _annotate(proto, whole)
    for node, key in zip(node_protos(proto.graph), expanded_keys(proto), strict=True):
        own = values.get(key, {})
        is_same = own.get(f"{PREFIX}op_type") == node.op_type
        _annotate(node, {k: v for k, v in own.items() if is_same and k != f"{PREFIX}op_type"})
    content: bytes = proto.SerializeToString()
    return content


def _file(info: ModelInfo, options: ViewOptions) -> Path:
    """Returns the file of the traced model. Raises InputError where there is no such file.

    A trace without its path has the name, which may be here or where the output goes.
    """
    here = [folder / Path(info.name).name for folder in (Path(), options.folder or Path())]
    place = options.model or info.path or next(filter(Path.is_file, here), None)
    if place is None:
        raise InputError(
            f"the trace of {brief(info.name)} does not say where the model's file is",
            "Name it with --model.",
        )
    file = loading.find(Path(place))
    if not file.is_file():
        raise InputError(f"{file}: not a file", "Name the model's file with --model.")
    if loading.sha256(file) != info.sha256:
        raise InputError(
            f"{file}: not the model that was traced, or it has changed since",
            "Name the file that was traced with --model, or trace this one.",
        )
    return file


def _marked_sections(trace: Trace) -> Iterator[tuple[Section, str]]:
    """Yields each section, and what its values are marked with: of which of several runs it is."""
    shown = sections(trace)
    runs = [section.run for section in shown if section.run is not None]
    labels = distinctions(runs) if len(runs) == len(shown) else ("",) * len(shown)
    for section, label in zip(shown, labels, strict=True):
        yield section, f" ({label})" if label else ""


def _annotate(proto: onnx.ModelProto | onnx.NodeProto, values: Mapping[str, str]) -> None:
    """Replaces the entries that tracer made before."""
    others = [e for e in proto.metadata_props if not e.key.startswith(PREFIX)]
    if values or len(others) < len(proto.metadata_props):
        copies = [onnx.StringStringEntryProto(key=e.key, value=e.value) for e in others]
        del proto.metadata_props[:]
        proto.metadata_props.extend(copies)
        for key, value in values.items():
            proto.metadata_props.add(key=key, value=value)


_COLUMNS = (
    "time_us", "time_share", "macs", "flops", "params", "bound", "roof_fraction", "bits_observed",
    "bits_guaranteed", "bits", "overflow_outputs", "energy", "peak_bytes", "timed_in",
)  # fmt: skip


def node_values(trace: Trace, options: ViewOptions) -> NodeValues:
    """Returns the values as texts, as a table shows them; those of several runs say of which.

    Nodes without a name of their own are left out.
    """
    model: dict[str, Value] = {}
    nodes: dict[str, dict[str, Value]] = {}
    topology, names = trace.model.topology, None
    if topology is not None and topology.names is not None:
        counts = Counter(topology.names)
        pairs = zip(topology.nodes, topology.names, strict=True)
        names = {key: name for key, name in pairs if name and counts[name] == 1}
    for section, mark in _marked_sections(trace):
        if section.run is not None:
            model[f"wall{mark}"] = f"{micros(wall(section.run)['mean'])} µs"
            model[f"sum of nodes{mark}"] = f"{micros(float(section.nodes['time_us'].sum()))} µs"
        for row in present(section.nodes, ("node", *_COLUMNS)):
            name = names.get(str(row["node"]), "") if names is not None else str(row["node"])
            if name:
                values = {
                    f"{BY_NAME[c].header or c}{mark}": FORMATS[BY_NAME[c].format](row[c])
                    for c in _COLUMNS
                    if c in row
                }
                nodes.setdefault(name, {}).update(values)
    return NodeValues(model, nodes)


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
    return _colored(trace, "time µs", times, lambda time: _mix_colors(_AMOUNTS, time / longest))


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
        trace,
        "head-room bits",
        room,
        lambda bits: _mix_colors(_DIFFERENCES, (bits / widest + 1) / 2),
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
        body = (
            "" if owner is None else key.removeprefix(f"{topology.nodes[owner]}.").partition("/")[0]
        )
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


def _mix_colors(stops: tuple[str, ...], part: float) -> str:
    """Returns the colour at `part` (0 to 1) of a scale."""
    place = min(max(part, 0.0), 1.0) * (len(stops) - 1)
    low = min(int(place), len(stops) - 2)
    ends = [_channels(stops[low]), _channels(stops[low + 1])]
    mixed = (round(a + (b - a) * (place - low)) for a, b in zip(*ends, strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _channels(color: str) -> list[int]:
    return [int(color[at : at + 2], 16) for at in (1, 3, 5)]
