"""Reads the profile that onnxruntime wrote in any program, as a Run without a correction.

Runs that are not whole are left out, and durations that cannot be. With the model, kernels are
joined to the graph that onnxruntime makes of it here, whose tensors say which nodes they stand for.
A profile does not say which level of optimisation ran: it is the one whose graph fits best. Without
the model, kernels are only names.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tracer.errors import InputError, ModelError
from tracer.executors.foreign import node_search, origin_notes
from tracer.executors.foreign.node_search import Match, NodeSearch, SeparateKernel
from tracer.executors.onnxruntime import kernel_nodes, profile_events, sessions
from tracer.executors.onnxruntime.executor import Folder
from tracer.executors.settings import OrtSettings
from tracer.graph.model import Model, Node, encoded, expanded_keys
from tracer.records.environment import COPIES
from tracer.records.trace import Kernel, Run
from tracer.support.types import BoolArray, IntArray
from tracer.text import agree, plural

_LEVELS = ("all", "extended", "basic", "none")

_ROUNDING_US = 1
"""Times are whole µs, so an event may seem to end so much after the one around it."""

_NAMED = 3
"""Kernels that a note names."""

_STALL_US = 1_000_000
"""A program may wait so long for a processor, at the end of a file as well."""

_TICK_US = 1.0

_LATEST_US = 1 << 60
"""Sums of two times before it are no overflow; 36,000 years."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The runs in a profile; `absent` are kernels that it does not name (see `Join`)."""

    run: Run
    absent: tuple[tuple[int, Kernel], ...]


def read(path: Path, model: Model | None) -> Profile:
    """Returns the runs in a profile, with the times as the profiler wrote them.

    `wall_us` are the same runs, as others were not timed. Runs that are not whole are left out, and
    the first of several. Raises InputError for a file without a whole run, and for one that is no
    such profile.
    """
    table, separate, notes = _read_runs(path)
    calls = table.calls.mean(axis=0).tolist()
    if model is None:
        note = "rows are kernels: --model FILE joins them to nodes, and counts their work"
        unjoined = (
            replace(kernel_nodes.unjoined(each.label, count), name=each.name)
            for each, count in zip(separate, calls, strict=True)
        )
        joined = Join(tuple(unjoined), notes=(note,))
    else:
        joined = join_kernels(model, separate, calls)
    kernels = _with_own_names(joined.kernels)
    if table.device_us is not None:
        kernels = kernel_nodes.timed_on_device(kernels, table.device_us.mean(axis=0))
    took = table.dur.astype(np.float64)
    run = Run(
        executor="onnxruntime",
        batch=None,
        inputs={},
        wall_us=took,
        instrumented_us=took,
        samples=table.self_us.astype(np.float32),
        bias_us=np.zeros(len(kernels)),
        kernels=kernels,
        notes=(
            *notes,
            *joined.notes,
            *kernel_nodes.device_notes(kernels, table.apart_us, here=False),
        ),
        tick_us=_TICK_US,
    )
    return Profile(run, joined.absent)


def _with_own_names(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """Returns the kernels; those with the name of another are called after their node."""
    taken: set[str] = set()
    named = []
    for index, kernel in enumerate(kernels):
        name = kernel.name
        if name in taken and kernel.node is not None:
            name = kernel.node
        while name in taken:
            name = f"{name}#{index}"
        taken.add(name)
        named.append(replace(kernel, name=name))
    return tuple(named)


def input_shapes(model: Model, run: Run) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the model's inputs, as the kernels that read them had them."""
    names = {value.name for value in model.inputs}
    shapes: dict[str, tuple[int, ...]] = {}
    for kernel in run.kernels:
        # events of the subgraphs that were looked at list the types of what their parts read
        read = kernel.inputs if any(kernel.inputs) else _read_from_outside(kernel.parts)
        present = [name for name in read if name]
        if len(present) != len(kernel.input_types):
            continue
        for name, kind in zip(present, kernel.input_types, strict=True):
            if name in names and kind.concrete is not None:
                shapes.setdefault(name, kind.concrete)
    return shapes


def _read_from_outside(parts: Sequence[Node | Kernel]) -> tuple[str, ...]:
    """Returns the tensors that these nodes read and none of them computes, in their order."""
    made = {name for part in parts for name in part.outputs}
    read = dict.fromkeys(name for part in parts for name in part.inputs if name not in made)
    return tuple(read)


def _read_runs(
    path: Path,
) -> tuple[profile_events.RunTable, tuple[SeparateKernel, ...], tuple[str, ...]]:
    """Returns the runs of a file that count, its kernels in the order they ran, and notes."""
    labels = profile_events.Labels(by_types=True)
    try:
        events = profile_events.read(path, labels, may_be_cut=True)
        if (np.maximum(events.ts, -events.ts - 1) > _LATEST_US).any():
            raise OverflowError("an event is ages away")
    except (ModelError, OverflowError) as error:
        raise InputError(
            f"{path}: not a profile of onnxruntime", "Name the .json file that it wrote."
        ) from error
    if not len(profile_events.run_events(events)) or not labels.kernels:
        raise InputError(
            f"{path}: holds no run of a model", "Run the model before you end the profile."
        )
    events, is_spoiled, impossible = bound_durations(events, labels.kernels)
    events, outside = keep_inside(events)
    events, kernels = node_search.tell_apart(events, labels.kernels)
    table = profile_events.tabulate(events, len(kernels))
    is_whole, unfinished = find_whole(events, kernels, table)
    if not kernels or not is_whole.any():
        raise InputError(
            f"{path}: holds no whole run of a model", "Take a file that was not cut off."
        )
    if (is_whole & ~is_spoiled).any():
        is_whole &= ~is_spoiled
    runs = np.flatnonzero(is_whole)
    counted = runs[1:] if runs[0] == 0 and len(runs) > 1 else runs
    cut = (f"{path.name} is cut off, and was read as far as it goes",) if events.is_cut else ()
    notes = origin_notes(path, "onnxruntime's profiler", "MODEL.onnx")
    if len(counted) < len(runs):
        first = f"the first of {len(runs):,} runs"
        notes.append(f"{first} is left out: it allocates memory and fills caches")
    elif len(runs) == 1:
        notes.append(
            "the only run is the first, in which memory is allocated and caches are filled"
        )
    return table.take(counted), kernels, (*notes, *cut, *outside, *unfinished, *impossible)


def bound_durations(
    events: profile_events.Events, labels: Sequence[profile_events.Label]
) -> tuple[profile_events.Events, BoolArray, tuple[str, ...]]:
    """Returns the events without impossible durations, which runs had some, and a note on them.

    A duration is impossible if it is negative, or longer than what is around it: for a node its
    run, for a run the time until the next one of its thread, for the last one the file and a stall.
    Such a node gets the duration 0, such a run the longest that is possible.
    """
    runs = profile_events.run_events(events)
    ts, tid = events.ts[runs], events.tid[runs]
    span = int(np.ptp(events.ts)) if len(events) else 0
    others = events.label != profile_events.MODEL_RUN
    ends = events.ts[others] + np.clip(events.dur[others], 0, span)
    longest = int(ends.max(initial=0)) + max(span, _STALL_US) - ts  # that each run can be, µs
    if len(runs) == 1:  # nothing else tells how long it can be
        longest = np.maximum(longest, events.dur[runs])
    for thread in np.unique(tid):
        own = np.flatnonzero(tid == thread)
        longest[own[:-1]] = np.diff(ts[own]) + _ROUNDING_US
    bounded = events.dur.copy()
    bounded[runs] = np.where(events.dur[runs] < 0, longest, np.minimum(events.dur[runs], longest))
    events, given = replace(events, dur=bounded), events.dur
    around = profile_events.runs_around(events, runs, np.arange(len(events)))
    left = events.ts[runs[around]] + bounded[runs[around]] - events.ts + _ROUNDING_US
    wrong = (given != bounded) | (given < 0) | ((around >= 0) & (bounded > left))
    spoiled = np.isin(np.arange(len(runs)), around[wrong])
    events = replace(
        events, dur=np.where(wrong & (events.label != profile_events.MODEL_RUN), 0, bounded)
    )
    return events, spoiled, _impossible(events.label[wrong], given[wrong], labels)


def _impossible(
    wrong: IntArray, durations: IntArray, labels: Sequence[profile_events.Label]
) -> tuple[str, ...]:
    """Returns a note on events with impossible durations, by their labels."""
    if not len(wrong):
        return ()
    kinds = [*profile_events.ENCLOSING, *(label.name or label.op_type for label in labels)]
    names = [kinds[number] for number in wrong]
    counts = Counter(names)
    first = {name: int(took) for name, took in zip(reversed(names), durations[::-1], strict=True)}
    told = [f"{n:,} of {name} ({first[name]:,} µs)" for name, n in counts.most_common(_NAMED)]
    more = f" and {plural(len(counts) - _NAMED, 'more kernel')}" if len(counts) > _NAMED else ""
    return (
        f"durations that cannot be, negative or longer than the run: {', '.join(told)}{more}. Runs "
        "with one are left out; if no others remain, it counts as 0",
    )


def keep_inside(events: profile_events.Events) -> tuple[profile_events.Events, tuple[str, ...]]:
    """Returns the events without nodes that are in no run, and a note that counts these."""
    nodes = np.flatnonzero(events.label > profile_events.EXECUTE)
    around = profile_events.runs_around(events, profile_events.run_events(events), nodes)
    kept = np.full(len(events), True)
    kept[nodes[around < 0]] = False
    lost = int((~kept).sum())
    note = (
        f"{plural(lost, 'event')} of kernels {agree(lost, 'is', 'are')} in no whole run, and left "
        "out: the last run did not finish, or the file was cut off in it"
    )
    return events.take(kept), (note,) if lost else ()


def find_whole(
    events: profile_events.Events, kernels: Sequence[SeparateKernel], table: profile_events.RunTable
) -> tuple[BoolArray, tuple[str, ...]]:
    """Returns which runs of `table` are whole, and a note on the others.

    A run that failed has only the first kernels that another one has in the main graph. If the file
    begins with what begins first, and is cut off, the last run may lack kernels of a body as well.
    """
    runs = profile_events.run_events(events)
    main = np.array([kernel.owner is None for kernel in kernels], np.bool_)
    nodes = np.flatnonzero(events.label > profile_events.EXECUTE)
    nodes = nodes[main[events.label[nodes] - profile_events.EXECUTE - 1]]
    around = profile_events.runs_around(events, runs, nodes)
    order = np.lexsort((events.ts[nodes], around))
    ends = np.searchsorted(around[order], np.arange(1, len(runs)))
    ran = np.split(events.label[nodes[order]], ends)
    longest = max(ran, key=len)
    whole = np.array([len(r) == len(longest) or (r != longest[: len(r)]).any() for r in ran])
    last = int(np.argmax(runs))
    if events.is_cut and runs[0] < min(nodes, default=0):
        others = np.delete(table.calls, last, axis=0)
        whole[last] &= bool((others == table.calls[last]).all(axis=1).any())
    broken = int((~whole).sum())
    note = f"{broken:,} of {plural(len(runs), 'run')} did not finish: left out"
    return whole, (note,) if broken else ()


@dataclass(frozen=True, slots=True)
class Join:
    """The kernels of a profile in the order they ran, and notes on what fits no node.

    `absent` are kernels of the graph that the profile does not name, each with the position of the
    kernel that it would have run before.
    """

    kernels: tuple[Kernel, ...]
    absent: tuple[tuple[int, Kernel], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Graph:
    """The graph of one level of optimisation, and what each kernel is in it."""

    level: str
    saved: kernel_nodes.SavedNodes
    matches: Sequence[Match]

    @property
    def fitting(self) -> int:
        """How many kernels it has."""
        return sum(match.saved is not None for match in self.matches)


def join_kernels(model: Model, separate: Sequence[SeparateKernel], calls: Sequence[float]) -> Join:
    """Returns a kernel for each of `separate`, joined to its node of the closest graph."""
    search = NodeSearch.of(model)
    labels = [each.label for each in separate]
    listed = [search.listed_nodes(label) for label in labels]
    needs = [
        # a kernel of the graph, not a copy or several nodes
        not (nodes or kernel_nodes.is_compiled(label) or label.op_type in COPIES)
        for label, nodes in zip(labels, listed, strict=True)
    ]
    proto = kernel_nodes.with_safe_names(model)
    renamed = replace(model, proto=proto, keys=expanded_keys(proto))
    graph = _closest_graph(search, renamed, separate, sum(needs))
    nodes = [
        renamed.nodes[each.node.index] if each.node and not each.saved else each.saved
        for each in graph.matches
    ]
    named = [
        replace(label, name=node.proto.name) if node else label
        for label, node in zip(labels, nodes, strict=True)
    ]
    strange = sum(node is None and need for node, need in zip(nodes, needs, strict=True))
    # a compiled subgraph has the nodes without an event, unless a strange kernel may have them
    divided = replace(graph.saved, nodes=()) if strange else graph.saved
    others = {(kernel_nodes.safe(node.index), node.op_type) for nodes in listed for node in nodes}
    joined = kernel_nodes.kernels(model, divided, named, calls, matches=nodes, others=others)
    kernels = [
        _place(search, *each) for each in zip(joined, separate, graph.matches, listed, strict=True)
    ]
    has_parts = any(kernel.parts for kernel in kernels)
    absent = () if has_parts else tuple(_absent_kernels(model, graph, listed))
    notes = []
    if graph.level != _LEVELS[0]:
        notes.append(
            "kernels are joined to the graph that onnxruntime makes with --optimization "
            f"{graph.level}: in the one with --optimization {_LEVELS[0]} are fewer of them"
        )
    if strange:
        notes.append(
            f"{strange:,} of {len(kernels):,} kernels are not in the graph that onnxruntime makes "
            "of the model here: another version, level of optimisation or model may have run"
        )
    return Join(tuple(kernels), absent, tuple(notes))


def _closest_graph(
    search: NodeSearch, renamed: Model, separate: Sequence[SeparateKernel], needed: int
) -> _Graph:
    """Returns the graph that most kernels are in, of which `needed` should be."""
    factory = sessions.Factory(search.model, encoded(renamed.proto, renamed.name), OrtSettings())
    compiles = any(kernel_nodes.is_compiled(each.label) for each in separate)
    tried: list[_Graph] = []
    folder = Folder()
    with folder:
        for level in _LEVELS[:1] if compiles else _LEVELS:
            settings = replace(factory.settings, optimization=level)
            if compiles:
                factory.save_on_cpu(folder.graph)
            else:
                replace(factory, settings=settings).open(optimized=folder.graph)
            saved = kernel_nodes.SavedNodes.read(folder.graph, elsewhere=True)
            tried.append(_Graph(level, saved, search.matches(saved, separate)))
            if tried[-1].fitting >= needed:
                break
    return max(tried, key=lambda each: each.fitting)


def _place(
    search: NodeSearch,
    kernel: Kernel,
    separate: SeparateKernel,
    match: Match,
    listed: Sequence[Node],
) -> Kernel:
    """Returns a kernel with the name in the profile, its graph, and its node by name alone."""
    kernel = replace(kernel, name=separate.name, scope=kernel.scope or match.path or "")
    if listed:
        node, outputs = listed[0].key, listed[-1].outputs
        return replace(kernel, node=node, inputs=_read_from_outside(listed), outputs=outputs)
    if kernel.outputs or kernel.parts:
        return kernel
    return replace(kernel, node=search.nearest_node(separate.label, match.path))


def _absent_kernels(
    model: Model, graph: _Graph, listed: Sequence[Sequence[Node]]
) -> Iterator[tuple[int, Kernel]]:
    """Yields the kernels of the graph that none of the profile is, or has the nodes of."""
    saved = graph.saved.nodes
    names = {node.proto.name: rank for rank, node in enumerate(saved)}
    ranks = {id(node): rank for rank, node in enumerate(saved)}
    before = [len(listed)] * (len(saved) + 1)
    for place, (match, nodes) in enumerate(zip(graph.matches, listed, strict=True)):
        own = nodes or (match.node,)
        also = [names.get(kernel_nodes.safe(node.index)) for node in own if node is not None]
        for rank in [ranks[id(match.saved)]] if match.saved else also:
            if rank is not None:
                before[rank] = place
    left = [rank for rank in range(len(saved)) if before[rank] == len(listed)]
    for rank in reversed(range(len(saved))):
        before[rank] = min(before[rank], before[rank + 1])
    nodes = [saved[rank] for rank in left]
    labels = [profile_events.Label(node.proto.name, 0, node.op_type, "") for node in nodes]
    kernels = kernel_nodes.kernels(model, graph.saved, labels, [0.0] * len(left), matches=nodes)
    return zip((before[rank] for rank in left), kernels, strict=True)
