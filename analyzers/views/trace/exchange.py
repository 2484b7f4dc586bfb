"""The runs of a trace for programs that draw timelines, stacks and boards, and viewers of models.

A trace has the time of each kernel in each run, and no points in time. So slices follow each other
without gaps, in the order in which the kernels ran, and what is in no kernel is at the end.
"""

from __future__ import annotations

import collections
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pandas as pd

from tracer.accumulators.statistics.partial_sums import bin_edges
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.timing import coverage, wall
from tracer.analyzers.views import exchange
from tracer.analyzers.views.text import FORMATS, micros
from tracer.analyzers.views.trace import run_tables
from tracer.analyzers.views.trace.headline import Section, headline, sections
from tracer.errors import InputError, UsageError
from tracer.graph import loading
from tracer.graph.model import expanded_keys, node_protos
from tracer.graph.stored_weights import has_external_data
from tracer.records.columns import BY_NAME, COLUMNS
from tracer.records.model_info import ModelInfo, Topology
from tracer.records.trace import Kernel, Run, Trace, distinctions
from tracer.text import brief

_RECORDED_RUNS = 10
_RECORDED_SLICES = 20_000
"""Most runs, and about the most slices, that are shown as they were recorded."""

_MEMORY = (("peak_bytes", "memory (bytes alive)"), ("arena_bytes", "arena (bytes in use)"))


def timeline(trace: Trace, options: ViewOptions) -> exchange.Timeline:
    """Returns two processes for each run: its mean, and the first inferences as recorded.

    Raises UsageError for a trace without times.
    """
    processes = []
    for section, run in run_tables.timed(trace, "a timeline"):
        title = headline(trace, section)
        rows = run_tables.rows_with_times(section, run)
        ends = _ends([row.time_us for row in rows])
        slices = [
            exchange.Slice(row.name, begin, end, row.values)
            for row, begin, end in zip(rows, [0, *ends], ends, strict=False)
        ]
        total = max(_ns(wall(run)["mean"]), ends[-1] if ends else 0)
        whole = exchange.Slice(
            "mean run", 0, total, {"wall_us": wall(run)["mean"], "runs": len(run.wall_us)}
        )
        tracks = (
            exchange.Track("runs", [whole]),
            exchange.Track("modules and nodes", _module_slices(rows, slices)),
            *_kernel_tracks(run, rows, slices),
        )
        begins = {each.values["node"]: each.begin_ns for each in slices}
        counters = []
        for column, name in _MEMORY:
            known = run_tables.present(
                section.nodes[section.nodes[column].notna()], ("node", column)
            )
            points = [
                (begins[row["node"]], int(row[column])) for row in known if row["node"] in begins
            ]
            if points:
                counters.append(exchange.Counter(name, sorted([*points, (slices[-1].end_ns, 0)])))
        processes.append(
            exchange.Process(
                f"{title}: mean run, without profiler overhead", tracks, tuple(counters)
            )
        )
        if len(run.samples) and run.kernels:
            processes.append(_recorded(title, run, rows))
    return exchange.Timeline(trace.model.name, tuple(processes), trace.notes)


def _module_slices(
    rows: Sequence[run_tables.TimedRow], slices: Sequence[exchange.Slice]
) -> list[exchange.Slice]:
    """Returns the slices of the rows inside those of their modules, as deep as their paths."""
    top: list[exchange.Slice] = []
    stack: list[exchange.Slice] = []
    path: tuple[str, ...] = ()
    for row, own in zip(rows, slices, strict=True):
        pairs = zip(path, row.path, strict=False)
        shorter = min(len(path), len(row.path))
        common = next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
        del stack[common:]
        for depth in range(common, len(row.path)):
            module = ".".join(row.path[: depth + 1])
            opened = exchange.Slice(row.path[depth], own.begin_ns, own.end_ns, {"module": module})
            (stack[-1].inner if stack else top).append(opened)
            stack.append(opened)
        for module_slice in stack:
            module_slice.end_ns = own.end_ns
        (stack[-1].inner if stack else top).append(own)
        path = row.path
    return top


def _kernel_tracks(
    run: Run, rows: Sequence[run_tables.TimedRow], slices: Sequence[exchange.Slice]
) -> list[exchange.Track]:
    """Returns a track for each provider, with the kernels that each row is the time of."""
    kernels = {kernel.name: kernel for kernel in run.kernels}
    means = run.samples.mean(axis=0).tolist() if len(run.samples) else [0.0] * len(run.kernels)
    weight: dict[str, float] = {}
    for kernel, mean in zip(run.kernels, means, strict=True):
        weight[kernel.name] = weight.get(kernel.name, 0.0) + mean
    tracks: dict[str, list[exchange.Slice]] = {}
    for row, own in zip(rows, slices, strict=True):
        known = [kernels[name] for name in row.kernels if name in kernels]
        begin, done = own.begin_ns, 0.0
        total = sum(weight[kernel.name] for kernel in known)
        for kernel in known:  # each has its part of the row's time, in proportion to its samples
            done += weight[kernel.name]
            part = done / total if total else 1.0
            end = own.begin_ns + round((own.end_ns - own.begin_ns) * min(part, 1.0))
            values = _kernel_values(kernel, row.values)
            tracks.setdefault(kernel.provider, []).append(
                exchange.Slice(kernel.name, begin, end, values)
            )
            begin = end
    return [
        exchange.Track(_track_name(run, provider), inside) for provider, inside in tracks.items()
    ]


def _recorded(title: str, run: Run, rows: Sequence[run_tables.TimedRow]) -> exchange.Process:
    """Returns the process of the first profiled inferences, with the profiler's overhead."""
    count = max(1, min(_RECORDED_RUNS, len(run.samples), _RECORDED_SLICES // len(run.kernels)))
    of_kernel = {name: row.values for row in rows for name in row.kernels}
    values = [_kernel_values(kernel, of_kernel.get(kernel.name, {})) for kernel in run.kernels]
    inferences: list[exchange.Slice] = []
    tracks: dict[str, list[exchange.Slice]] = {kernel.provider: [] for kernel in run.kernels}
    start = 0
    for inference in range(count):
        ends = _ends(run.samples[inference].tolist(), start)
        for place, (kernel, begin) in enumerate(zip(run.kernels, [start, *ends], strict=False)):
            inside = exchange.Slice(kernel.name, begin, ends[place], values[place])
            tracks[kernel.provider].append(inside)
        whole = float(run.instrumented_us[inference])
        end = max(start + _ns(whole), ends[-1])
        inferences.append(
            exchange.Slice(f"run {inference + 1}", start, end, {"profiled_us": whole})
        )
        start = end
    named = (
        exchange.Track(_track_name(run, provider), inside) for provider, inside in tracks.items()
    )
    what = f"the first {count:,} of {len(run.samples):,} profiled runs, with profiler overhead"
    return exchange.Process(f"{title}: {what}", (exchange.Track("runs", inferences), *named))


def _track_name(run: Run, provider: str) -> str:
    return f"kernels on {provider or run.executor}"


def _kernel_values(
    kernel: Kernel, of_row: Mapping[str, exchange.Value]
) -> dict[str, exchange.Value]:
    """Returns the operator of a kernel, and the node, module and source line that it runs."""
    origin = {name: of_row[name] for name in ("node", "module", "source") if name in of_row}
    return {"op_type": kernel.op_type, **origin, "calls": kernel.calls}


def _ends(times_us: Sequence[float], start: int = 0) -> list[int]:
    """Returns when each of consecutive times ends, in ns; rounding errors do not add up."""
    return [start + end for end in pd.Series(times_us).cumsum().mul(1000).round().astype("int64")]


def _ns(time_us: float) -> int:
    return round(time_us * 1000)


_WEIGHTS = ("time_us", "macs", "bytes_read", "bytes_written")


def stacks(trace: Trace, options: ViewOptions) -> exchange.Stacks:
    """Returns a profile for each run; of a count, a profile of its work without times."""
    profiles = []
    for section in sections(trace):
        rows = run_tables.present(
            run_tables.in_graph_order(section.nodes, section.run), run_tables.SHOWN
        )
        samples = []
        for row in rows:
            time, macs, read, written = (row.get(name, 0) for name in _WEIGHTS)
            if not any((time, macs, read, written)):
                continue
            path = run_tables.module_path(str(row.get("module", "")))
            modules = (exchange.Frame(".".join(path[: depth + 1])) for depth in range(len(path)))
            source = str(row.get("source", ""))
            file, _, line = source.rpartition(":")
            place = (file, int(line)) if file and line.isdecimal() else (source, 0)
            frames = (*modules, exchange.Frame(str(row["node"]), *place))
            samples.append(
                exchange.Sample(frames, float(time), int(macs), int(read) + int(written))
            )
        profiles.append(exchange.Profile(headline(trace, section), samples))
    return exchange.Stacks(trace.model.name, tuple(profiles), trace.notes)


_SUMS = ("macs", "flops", "params", "overflow_outputs", "energy")
_GREATEST = ("peak_bytes", "bits_observed", "bits_guaranteed")


def board(trace: Trace, options: ViewOptions) -> exchange.Board:
    """Returns what TensorBoard shows. A trace of a framework has no graph."""
    shown = sections(trace)
    ran = [(section, section.run) for section in shown if section.run is not None]
    labels = distinctions([run for _, run in ran], always=("executor", "batch"))
    graph, nodes = trace.model.topology, []
    if graph is not None:
        columns = (graph.nodes, graph.modules, graph.op_types, graph.producers)
        nodes = [
            exchange.BoardNode(run_tables.module_path(module), key, op_type, producers)
            for key, module, op_type, producers in zip(*columns, strict=True)
        ]
    return exchange.Board(
        nodes=nodes,
        times={
            label: {
                str(row["node"]): (float(row["time_us"]), int(row.get("output_bytes", 0)))
                for row in run_tables.present(section.nodes, ("node", "time_us", "output_bytes"))
                if "time_us" in row
            }
            for label, (section, _) in zip(labels, ran, strict=True)
            if section.nodes["time_us"].notna().any()
        },
        scalars=[each for own in shown for each in _scalars(trace, own)],
        histograms=[histogram for run in trace.runs for histogram in _histograms(run)],
    )


def _scalars(trace: Trace, section: Section) -> Iterator[exchange.Scalar]:
    """Yields the totals of a section; a tag begins with what tells runs of the same batch apart."""
    keys = [{n: v for n, v in each.key.items() if n != "batch"} for each in sections(trace)]
    own = {n: v for n, v in section.key.items() if n != "batch"}
    differing = [n for n in own if any(key[n] != own[n] for key in keys)]
    series = "".join(f"{n} {own[n]}/" for n in differing)
    step, nodes, run = section.batch or 0, section.nodes, section.run
    if run is not None:
        yield exchange.Scalar(f"{series}time/wall_us", step, wall(run)["mean"])
        if nodes["time_us"].notna().any():
            yield exchange.Scalar(f"{series}time/nodes_us", step, float(nodes["time_us"].sum()))
            yield exchange.Scalar(f"{series}time/coverage", step, coverage(run, nodes))
    for name in _SUMS:
        if nodes[name].notna().any():
            total = trace.model.params if name == "params" else None  # shared weights count once
            value = nodes[name].sum() if total is None else total
            yield exchange.Scalar(f"{series}total/{name}", step, float(value))
    for name in _GREATEST:
        if nodes[name].notna().any():
            yield exchange.Scalar(f"{series}greatest/{name}", step, float(nodes[name].max()))


def _histograms(run: Run) -> Iterator[exchange.Histogram]:
    """Yields the final sums of each node, in the bins of the trace that hold any."""
    for sums in run.sums:
        counts, ends = sums.tally.final_histogram, bin_edges()
        filled = np.flatnonzero(counts)
        if not len(filled):
            continue
        first, last = int(filled[0]), int(filled[-1])
        yield exchange.Histogram(
            tag=f"final sums/{sums.node}",
            step=run.batch or 0,
            low=float(sums.tally.final_min.min()),
            high=float(sums.tally.final_max.max()),
            limits=[float(end) for end in ends[first + 1 : last + 2]],
            counts=counts[first : last + 1].tolist(),
        )


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
        for row in run_tables.present(section.nodes, ("node", *_SHOWN)):
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


def node_values(trace: Trace, options: ViewOptions) -> exchange.NodeValues:
    """Returns the values as texts, as a table shows them; those of several runs say of which.

    Nodes without a name of their own are left out.
    """
    model: dict[str, exchange.Value] = {}
    nodes: dict[str, dict[str, exchange.Value]] = {}
    topology, names = trace.model.topology, None
    if topology is not None and topology.names is not None:
        counts = collections.Counter(topology.names)
        pairs = zip(topology.nodes, topology.names, strict=True)
        names = {key: name for key, name in pairs if name and counts[name] == 1}
    for section, mark in _marked_sections(trace):
        if section.run is not None:
            model[f"wall{mark}"] = f"{micros(wall(section.run)['mean'])} µs"
            model[f"sum of nodes{mark}"] = f"{micros(float(section.nodes['time_us'].sum()))} µs"
        for row in run_tables.present(section.nodes, ("node", *_COLUMNS)):
            name = names.get(str(row["node"]), "") if names is not None else str(row["node"])
            if name:
                values = {
                    f"{BY_NAME[c].header or c}{mark}": FORMATS[BY_NAME[c].format](row[c])
                    for c in _COLUMNS
                    if c in row
                }
                nodes.setdefault(name, {}).update(values)
    return exchange.NodeValues(model, nodes)


_AMOUNTS = ("#00224e", "#414d6b", "#7c7b78", "#bcae6c", "#fee838")
"""The map cividis (Nuñez and others, 2018), which colour-blind readers see alike."""

_DIFFERENCES = ("#b35806", "#f7f7f7", "#2166ac")
"""Below zero, zero, above zero."""

_UNNAMED = "node"
"""What Model Explorer calls a node without a name."""


def node_times(trace: Trace, options: ViewOptions) -> exchange.NodeColors:
    """Returns the times of the first run in µs. Raises UsageError for a trace without times."""
    section = run_tables.timed(trace, "a colour by time")[0][0]
    times = section.nodes.set_index("node")["time_us"].dropna()
    longest = times.max()
    return _colored(trace, "time µs", times, lambda time: _mix_colors(_AMOUNTS, time / longest))


def head_room(trace: Trace, options: ViewOptions) -> exchange.NodeColors:
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
) -> exchange.NodeColors:
    topology = trace.model.topology
    ids = {str(key): str(key) for key in values.index} if topology is None else node_ids(topology)
    return exchange.NodeColors(
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
    again = collections.Counter[str]()
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
