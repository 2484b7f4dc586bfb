"""Joins the kernels of a profile to the graph that onnxruntime makes of the model here.

Which level of optimisation ran, a profile does not say: it is the one whose graph fits best.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tracer.executors.foreign.node_search import Match, NodeSearch
from tracer.executors.foreign.separate_kernels import SeparateKernel
from tracer.executors.onnxruntime import compiled_subgraphs, kernel_nodes, node_names, sessions
from tracer.executors.onnxruntime.kernel_nodes import SavedNodes
from tracer.executors.onnxruntime.profile_events import Label
from tracer.executors.onnxruntime.saved_graph import Folder
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph.encoding import encoded
from tracer.graph.model import Model, Node, expanded_keys
from tracer.records.trace import Kernel

_LEVELS = ("all", "extended", "basic", "none")
_COPIES = ("MemcpyFromHost", "MemcpyToHost")


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
    saved: SavedNodes
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
    needs = [_needs_node(*each) for each in zip(labels, listed, strict=True)]
    proto = node_names.with_safe_names(model)
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
    others = {(node_names.safe(node.index), node.op_type) for nodes in listed for node in nodes}
    joined = kernel_nodes.kernels(model, divided, named, calls, matches=nodes, others=others)
    kernels = [
        _place(search, *each) for each in zip(joined, separate, graph.matches, listed, strict=True)
    ]
    has_parts = any(kernel.parts for kernel in kernels)
    absent = () if has_parts else tuple(_absent_kernels(model, graph, listed))
    return Join(tuple(kernels), absent, tuple(_notes(graph.level, strange, len(kernels))))


def _needs_node(label: Label, listed: Sequence[Node]) -> bool:
    """Returns whether a kernel is one of the graph, not a copy or several nodes."""
    return not (listed or compiled_subgraphs.is_compiled(label) or label.op_type in _COPIES)


def _closest_graph(
    search: NodeSearch, renamed: Model, separate: Sequence[SeparateKernel], needed: int
) -> _Graph:
    """Returns the graph that most kernels are in, of which `needed` should be."""
    factory = sessions.Factory(search.model, encoded(renamed.proto, renamed.name), OrtSettings())
    compiles = any(compiled_subgraphs.is_compiled(each.label) for each in separate)
    tried: list[_Graph] = []
    folder = Folder()
    with folder:
        for level in _LEVELS[:1] if compiles else _LEVELS:
            settings = replace(factory.settings, optimization=level)
            if compiles:
                factory.save_on_cpu(folder.graph)
            else:
                replace(factory, settings=settings).open(optimized=folder.graph)
            saved = SavedNodes.read(folder.graph, elsewhere=True)
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
        made = {name for node in listed for name in node.outputs}
        read = dict.fromkeys(name for node in listed for name in node.inputs if name not in made)
        node, outputs = listed[0].key, listed[-1].outputs
        return replace(kernel, node=node, inputs=tuple(read), outputs=outputs)
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
        also = [names.get(node_names.safe(node.index)) for node in own if node is not None]
        for rank in [ranks[id(match.saved)]] if match.saved else also:
            if rank is not None:
                before[rank] = place
    left = [rank for rank in range(len(saved)) if before[rank] == len(listed)]
    for rank in reversed(range(len(saved))):
        before[rank] = min(before[rank], before[rank + 1])
    labels = [Label(saved[n].proto.name, 0, saved[n].op_type, "", (), (), None, None) for n in left]
    nodes = [saved[rank] for rank in left]
    kernels = kernel_nodes.kernels(model, graph.saved, labels, [0.0] * len(left), matches=nodes)
    return zip((before[rank] for rank in left), kernels, strict=True)


def _notes(level: str, strange: int, kernels: int) -> Iterator[str]:
    if level != _LEVELS[0]:
        yield (
            f"kernels are joined to the graph that onnxruntime makes with --optimization {level}: "
            f"in the one with --optimization {_LEVELS[0]} are fewer of them"
        )
    if strange:
        yield (
            f"{strange:,} of {kernels:,} kernels are not in the graph that onnxruntime makes of "
            "the model here: another version, level of optimisation or model may have run"
        )
