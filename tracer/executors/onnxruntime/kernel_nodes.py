"""Names nodes for onnxruntime, and joins profiled kernels to nodes of the graph that it saved.

onnxruntime reports times by node name. Names may be empty or repeated, or contain characters that
older releases do not escape in the profile. So nodes get safe names by index, and what it reports,
names that it derived included, is translated to the keys of nodes.

A compiling provider takes parts of the graph that onnxruntime has optimised up to the level `basic`
(graph_partitioner.cc), and runs them as kernels. A profile names each part
`<provider>_<its name>_<number>`, and no nodes. onnxruntime from 1.24 on can tell the nodes of each
part. Of older versions, and of profiles of other programs, they are derived: a node without an
event of its own is in a part.
"""

import os
import re
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import onnx

from tracer.executors.onnxruntime.profile_events import Label
from tracer.graph.model import IR_WITH_UNLISTED_WEIGHTS, Model, Node, encoded, graphs, node_protos
from tracer.records import environment
from tracer.records.trace import Kernel
from tracer.support.types import FloatArray
from tracer.text import plural

_NUMBERED = re.compile(r"_token_\d+$")
_SAFE = re.compile(r"__tracer_(\d+)__")
_INLINED = re.compile(r"_inlfunc_[^_]*_(?=__tracer_(\d+)__)")
RECORD = "session.record_ep_graph_assignment_info"
"""The entry of a session's configuration that makes it record who runs which node."""
_SUBGRAPH_NUMBER = re.compile(r"_(\d+)$")
Name: TypeAlias = tuple[str, str]
"""Name and operator of a node in the graph that a provider divided."""
_BLOCKING = "CUDA_LAUNCH_BLOCKING"
_LEAST_US = 0.05
"""Less is shown as 0, and may be the rounding of sums."""
_NAMED = 8
"""Nodes that a note names."""


def saved_proto(path: Path, with_weights: bool = False) -> onnx.ModelProto:
    """Returns a graph that onnxruntime saved.

    With its weights in a file of their own, it saves constants of bodies in bodies both as nodes
    and as stored values, and would not load them: the nodes are left out.
    """
    proto = onnx.load(path, load_external_data=with_weights)
    for graph in graphs(proto.graph):
        stored = {tensor.name for tensor in graph.initializer}
        for node in [each for each in graph.node if stored.intersection(each.output)]:
            graph.node.remove(node)
    return proto


@dataclass(frozen=True)
class SavedNodes:
    """The nodes of the saved graph; their order in the file is the order in which they run.

    `later` are nodes of the graph that the CPU runs, where another provider divided `nodes`. With
    `elsewhere`, it was saved by another session than the one that is profiled.
    """

    nodes: tuple[Node, ...]
    later: tuple[Node, ...] = ()
    elsewhere: bool = False

    @classmethod
    def read(cls, path: Path, elsewhere: bool = False) -> "SavedNodes":
        """Reads the saved graph without its weights."""
        proto = saved_proto(path)
        return cls(Model.of(proto, path).nodes, elsewhere=elsewhere)

    @property
    def repeated(self) -> frozenset[str]:
        """Event names shared by several nodes, which differ only by index in the profile."""
        counts = Counter(node.proto.name for node in self.nodes)
        return frozenset(f"{name}_kernel_time" for name, n in counts.items() if n > 1)

    def lacks(self, labels: Sequence[Label]) -> bool:
        """Returns whether a kernel of the CPU has the name and the operator of no node."""
        names = {(self.name(node.proto.name), node.op_type) for node in self.nodes}
        own = (label for label in labels if environment.is_cpu(label.provider))
        return any((self.name(label.name), label.op_type) not in names for label in own)

    def name(self, name: str) -> str:
        """Returns what a name has in common with that of the same node in the session profiled."""
        return unnumbered(name) if self.elsewhere else name


def kernels(
    model: Model,
    graph: SavedNodes,
    labels: Sequence[Label],
    calls: Sequence[float],
    parts: "Sequence[Part]" = (),
    matches: Sequence[Node | None] | None = None,
    others: Collection[Name] = (),
) -> tuple[Kernel, ...]:
    """Returns a Kernel for each label, joined to its node of `graph` where there is a match.

    `parts` are who runs which nodes of `graph`, as the session recorded it; `matches` are the nodes
    of the labels, where they are known [default: found by name and order]. `others` are in kernels
    with another name.
    """
    queues, later = _queues(graph, graph.nodes), _queues(graph, graph.later)
    if matches is None:
        matches = [_take(graph, queues, each) or _take(graph, later, each) for each in labels]
    joined = [_kernel(model, *each) for each in zip(labels, matches, calls, strict=True)]
    subgraphs = nodes_of_subgraphs(labels, parts, graph.nodes, others)
    for place, names in subgraphs.items():
        joined[place] = replace(
            joined[place], parts=_parts(model, graph, queues, labels[place], names, calls[place])
        )
    return tuple(joined)


def _queues(graph: SavedNodes, nodes: Sequence[Node]) -> Mapping[tuple[str, str], deque[Node]]:
    """Returns queues of nodes by (name, operator); nameless nodes have the name ''."""
    queues: dict[tuple[str, str], deque[Node]] = defaultdict(deque)
    for node in nodes:
        queues[graph.name(node.proto.name), node.op_type].append(node)
    return queues


def _take(
    graph: SavedNodes, queues: Mapping[tuple[str, str], deque[Node]], label: Label
) -> Node | None:
    """Takes the next node of this name in order of execution, else the next nameless node.

    The profile names nameless nodes `OpType_<index>`, an index that the saved graph lacks.
    """
    for key in ((graph.name(label.name), label.op_type), ("", label.op_type)):
        queue = queues.get(key)
        if queue:
            return queue.popleft()
    return None


def _parts(
    model: Model,
    graph: SavedNodes,
    queues: Mapping[tuple[str, str], deque[Node]],
    subgraph: Label,
    names: Sequence[Name],
    calls: float,
) -> tuple[Kernel, ...]:
    """Returns the nodes `names` of a compiled subgraph as kernels, in the order of `graph`."""
    places = {id(node): place for place, node in enumerate(graph.nodes)}
    found = []
    for name, op_type in names:
        label = Label(name, subgraph.first_us, op_type, subgraph.provider)
        node = _take(graph, queues, label)
        place = len(places) if node is None else places[id(node)]
        found.append((place, _kernel(model, label, node, calls)))
    return tuple(kernel for _, kernel in sorted(found, key=lambda each: each[0]))


def _kernel(model: Model, label: Label, node: Node | None, calls: float) -> Kernel:
    kernel = replace(
        unjoined(label, calls),
        name=original(model, label.name),
        node=named_node(model, label.name),
    )
    if node is None:
        return kernel
    return replace(
        kernel,
        domain=node.domain,
        scope=scope_path(model, node),
        inputs=tuple(node.proto.input),
        outputs=tuple(node.proto.output),
        attributes=tuple(a.name for a in node.proto.attribute),
    )


def unjoined(label: Label, calls: float) -> Kernel:
    """Returns what the profile alone says of a kernel."""
    return Kernel(
        name=label.name,
        op_type=label.op_type,
        domain="",
        provider=label.provider,
        node=None,
        scope="",
        inputs=(),
        outputs=(),
        attributes=(),
        input_types=label.input_types,
        output_types=label.output_types,
        calls=calls,
        arena_bytes=label.arena_bytes,
        arena_peak_bytes=label.arena_peak_bytes,
        varying=label.varying,
    )


def scope_path(model: Model, node: Node) -> str:
    """Returns the path, in the user's model, of the body that contains `node`."""
    owner = node.scope.owner
    if owner is None:
        return ""
    attribute = node.scope.path.rpartition(".")[2]
    for inner in node.scope.graph.node:  # the Loop of a SequenceMap has no name
        inlined = _INLINED.match(inner.name)
        if inlined and int(inlined[1]) < len(model.nodes):
            return model.nodes[int(inlined[1])].scope.path
    return f"{original(model, owner.proto.name)}.{attribute}"


def timed_on_device(kernels: Sequence[Kernel], device_us: FloatArray) -> tuple[Kernel, ...]:
    """Returns the kernels with their times on the device, µs per run.

    A kernel of the CPU launches nothing there.
    """
    return tuple(
        kernel if environment.is_cpu(kernel.provider) else replace(kernel, device_us=float(time))
        for kernel, time in zip(kernels, device_us, strict=True)
    )


def fallback_notes(kernels: Sequence[Kernel], asked: str) -> Iterator[str]:
    """Yields a note on the kernels that ran on the CPU where another provider was `asked` for."""
    ran = [kernel for kernel in kernels if kernel.op_type not in environment.COPIES]
    left = [kernel for kernel in ran if environment.is_cpu(kernel.provider)]
    if left and not environment.is_cpu(asked):
        names = [f"{kernel.node or kernel.name} ({kernel.op_type})" for kernel in left]
        if len(names) > _NAMED:
            names[_NAMED:] = ["…"]
        yield (
            f"{len(left)} of {plural(len(ran), 'kernel')} ran on the CPU, not on "
            f"{environment.short_name(asked)}: {', '.join(names)}"
        )


def device_notes(
    kernels: Sequence[Kernel], apart_us: float = 0.0, here: bool = True, why: str | None = None
) -> Iterator[str]:
    """Yields notes on providers that queue kernels, and return before they are done.

    `apart_us` is the time on the device that belongs to no node. A profile that was not recorded
    `here` does not say whether launches waited. `why` says why the time on the device was not
    recorded, or what to know of it.
    """
    queueing = sorted({k.provider for k in kernels if environment.queues(k.provider)})
    for name in queueing:
        if not here:
            meaning = (
                f"its kernels have the times of their launch, unless {_BLOCKING}=1 made each "
                "launch wait for its kernel"
            )
        elif name.startswith("CUDA") and os.environ.get(_BLOCKING) == "1":
            meaning = f"{_BLOCKING}=1 made each launch wait, so its kernels have the times of both"
        else:
            meaning = "its kernels have the times of their launch"
        yield f"{name} runs asynchronously: {meaning}"
    measured = sum(kernel.device_us for kernel in kernels if kernel.device_us is not None)
    if any(kernel.device_us is not None for kernel in kernels):
        yield (
            f"kernels took {measured:,.1f} µs per run on the device itself (time_us_device), which "
            "overlaps with the launches and is no part of their times"
        )
        if why:
            yield why
    elif queueing:
        yield "the time on the device was not recorded: " + (
            why or "builds of onnxruntime with CUDA or ROCm profiling write it"
        )
    if apart_us >= _LEAST_US:
        yield (
            f"{apart_us:,.1f} µs on the device, in all recorded runs, belong to no node: copies of "
            "inputs and outputs, and kernels whose launch the profile does not name"
        )


@dataclass(frozen=True, slots=True)
class Part:
    """Nodes that one provider took together; a single one may be a kernel, or compiled as well."""

    provider: str
    nodes: tuple[Name, ...]


def recorded_parts(session: Any) -> tuple[Part, ...]:
    """Returns the parts of the graph in the order they were taken; none before onnxruntime 1.24."""
    ask = getattr(session, "get_provider_graph_assignment_info", None)
    if ask is None:
        return ()
    return tuple(
        Part(part.ep_name, tuple((node.name, node.op_type) for node in part.get_nodes()))
        for part in ask()
    )


def is_compiled(label: Label) -> bool:
    """Returns whether a kernel of a profile is a subgraph that a provider compiled."""
    return environment.is_compiled(label.provider, label.op_type, label.name)


def nodes_of_subgraphs(
    labels: Sequence[Label],
    parts: Sequence[Part],
    graph: Sequence[Node],
    others: Collection[Name] = (),
) -> Mapping[int, tuple[Name, ...]]:
    """Returns the nodes of each compiled subgraph by its position in `labels`.

    `parts` are those that the session recorded; `graph` is what providers divided, in the order in
    which it runs. `others` are in no subgraph, though no label has their name. Subgraphs whose
    nodes cannot be told apart are missing.
    """
    compiled = [place for place, label in enumerate(labels) if is_compiled(label)]
    compiled.sort(key=lambda place: _subgraph_number(labels[place]))
    own = {_unnumbered(label.name, label.op_type) for label in labels} | {*others}
    if not compiled:
        return {}
    if parts:
        return _by_parts(labels, compiled, parts, own)
    nodes = [node for node in graph if node.scope.owner is None]
    derived = _derive_parts(nodes, own)
    if len(compiled) == 1:
        derived = [tuple(name for part in derived for name in part)]
    if len(derived) != len(compiled):
        return {}
    return dict(zip(compiled, derived, strict=True))


def _by_parts(
    labels: Sequence[Label], compiled: Sequence[int], parts: Sequence[Part], own: set[Name]
) -> Mapping[int, tuple[Name, ...]]:
    """Pairs subgraphs with the parts of their provider that have no event of their own.

    onnxruntime numbers the parts that it compiles in the order in which it records them. A subgraph
    that never ran, in a branch that was not taken, has no event.
    """
    found: dict[int, tuple[Name, ...]] = {}
    for provider in {labels[place].provider for place in compiled}:
        places = [place for place in compiled if labels[place].provider == provider]
        taken = [
            part.nodes
            for part in parts
            if part.provider == provider
            and not (len(part.nodes) == 1 and _unnumbered(*part.nodes[0]) in own)
        ]
        numbers = [_subgraph_number(labels[place]) for place in places]
        if len(taken) == len(places):
            found |= dict(zip(places, taken, strict=True))
        elif numbers[-1] < len(taken):
            found |= {place: taken[n] for place, n in zip(places, numbers, strict=True)}
    return found


def _subgraph_number(label: Label) -> int:
    match = _SUBGRAPH_NUMBER.search(label.name)
    return int(match[1]) if match else 0


def _derive_parts(nodes: Sequence[Node], own: set[Name]) -> list[tuple[Name, ...]]:
    """Returns the nodes without an event of their own, by what they wait for.

    A part runs at once, so nothing of it waits for a kernel that itself waits for the part. The
    nodes behind the same number of kernels in a row, and connected, are taken for one part.
    """
    depths: dict[str, int] = defaultdict(int)
    members: dict[int, list[Node]] = defaultdict(list)
    for node in nodes:
        depth = max((depths[name] for name in node.inputs), default=0)
        if _unnumbered(node.proto.name, node.op_type) in own:
            depth += 1
        else:
            members[depth].append(node)
        depths.update(dict.fromkeys(node.outputs, depth))
    return [
        tuple(_unnumbered(node.proto.name, node.op_type) for node in part)
        for depth in sorted(members)
        for part in _connected_parts(members[depth])
    ]


def _unnumbered(name: str, op_type: str) -> Name:
    return unnumbered(name), op_type


def _connected_parts(nodes: Sequence[Node]) -> list[list[Node]]:
    """Returns the nodes that tensors connect, in their order."""
    part_of: dict[str, list[Node]] = {}
    parts: list[list[Node]] = []
    for node in nodes:
        touched = {id(part_of[name]): part_of[name] for name in node.inputs if name in part_of}
        merged = [each for part in touched.values() for each in part] + [node]
        parts = [part for part in parts if id(part) not in touched] + [merged]
        part_of |= {name: merged for each in merged for name in each.outputs}
    return parts


def serialize(model: Model) -> bytes:
    """Returns the model with safe node names; external data stay in their files."""
    return encoded(with_safe_names(model), model.name)


def list_inputs(proto: onnx.ModelProto, names: Collection[str]) -> None:
    """Takes inputs with other names, which are weights, out of the list of inputs."""
    proto.ir_version = max(proto.ir_version, IR_WITH_UNLISTED_WEIGHTS)
    kept = [deepcopy(value) for value in proto.graph.input if value.name in names]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)


def with_safe_names(model: Model) -> onnx.ModelProto:
    """Returns a copy of the model with safe node names.

    The metadata are left out: every session would read them again, and nothing asks for them.
    """
    proto = deepcopy(model.proto)
    proto.ClearField("metadata_props")
    for index, node in enumerate(node_protos(proto.graph)):
        node.name = safe(index)
    return proto


def safe(index: int) -> str:
    """Returns the safe name of the node with this index."""
    return f"__tracer_{index}__"


def original(model: Model, name: str) -> str:
    """Returns a text of onnxruntime with the keys of the user's nodes instead of safe names."""
    return _SAFE.sub(lambda match: _key(model, match) or match[0], name)


def in_file(model: Model, name: str) -> str:
    """Returns a text of onnxruntime with the names that the user's nodes have in their file."""
    return _SAFE.sub(lambda match: model.nodes[int(match[1])].proto.name, name)


def named_node(model: Model, name: str) -> str | None:
    """Returns the key of the node named `name`, or with a derived name (`…_token_1`).

    onnxruntime writes `_inlfunc_SequenceMap_` before a node of a body that it makes a Loop's.
    """
    match = _SAFE.match(_INLINED.sub("", name, 1))
    return _key(model, match) if match else None


def unnumbered(name: str) -> str:
    """Returns a name without the number that onnxruntime adds to make it unique.

    Which of several nodes has which number differs from session to session. Without it they share a
    name, and are joined in the order in which they run.
    """
    return _NUMBERED.sub("", name)


def _key(model: Model, match: re.Match[str]) -> str | None:
    index = int(match[1])
    return model.keys[index] if index < len(model.keys) else None  # else a name of the user's
