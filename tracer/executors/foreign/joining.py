"""Joins the kernels of a profile to the graph that onnxruntime makes of the model here.

Which level of optimisation ran, a profile does not say: it is the one whose graph fits best.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tracer.executors.foreign.node_search import Known, NodeSearch
from tracer.executors.foreign.separate_kernels import Separate
from tracer.executors.onnxruntime import compiled_subgraphs, kernel_nodes, node_names, sessions
from tracer.executors.onnxruntime.kernel_nodes import SavedNodes
from tracer.executors.onnxruntime.saved_graph import Folder
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph.encoding import encoded
from tracer.graph.model import Model, Node, expanded_keys
from tracer.records.trace import Kernel

_LEVELS = ("all", "extended", "basic", "none")
_COPIES = ("MemcpyFromHost", "MemcpyToHost")


@dataclass(frozen=True, slots=True)
class _Graph:
    """The graph of one level of optimisation, and its node for each kernel."""

    level: str
    saved: SavedNodes
    matches: Sequence[Node | None]


def join_kernels(
    model: Model, separate: Sequence[Separate], calls: Sequence[float]
) -> tuple[tuple[Kernel, ...], tuple[str, ...]]:
    """Returns a kernel for each of `separate`, and notes on what fits no node."""
    search = NodeSearch.of(model)
    known = search.known(separate)
    listed = [search.listed(each.label) for each in separate]
    needs = [_needs_node(*each) for each in zip(separate, listed, strict=True)]
    proto = node_names.renamed(model)
    renamed = replace(model, proto=proto, keys=expanded_keys(proto))
    graph = _closest(search, renamed, separate, known, sum(needs))
    matches = [
        renamed.nodes[told.node.index] if match is None and told.node else match
        for match, told in zip(graph.matches, known, strict=True)
    ]
    labels = [
        replace(each.label, name=node.proto.name) if node else each.label
        for each, node in zip(separate, matches, strict=True)
    ]
    strange = sum(node is None and need for node, need in zip(matches, needs, strict=True))
    # a subgraph has the nodes without events, unless they may be in other kernels
    divided = replace(graph.saved, nodes=()) if strange or any(listed) else graph.saved
    joined = kernel_nodes.kernels(model, divided, labels, calls, matches=matches)
    kernels = [_placed(search, *each) for each in zip(joined, separate, known, listed, strict=True)]
    return tuple(kernels), tuple(_notes(graph.level, strange, len(kernels)))


def _needs_node(kernel: Separate, listed: Sequence[Node]) -> bool:
    """Returns whether a kernel is one of the graph, not a copy or several nodes."""
    label = kernel.label
    return not (listed or compiled_subgraphs.is_compiled(label) or label.op_type in _COPIES)


def _closest(
    search: NodeSearch,
    renamed: Model,
    separate: Sequence[Separate],
    known: Sequence[Known],
    needed: int,
) -> _Graph:
    """Returns the graph that most kernels are in, of which at most `needed` are in any."""
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
            tried.append(_Graph(level, saved, search.matches(saved, separate, known)))
            if len(separate) - tried[-1].matches.count(None) >= needed:
                break
    return min(tried, key=lambda each: each.matches.count(None))


def _placed(
    search: NodeSearch, kernel: Kernel, separate: Separate, known: Known, listed: Sequence[Node]
) -> Kernel:
    """Returns a kernel with the name in the profile, its graph, and its node by name alone."""
    kernel = replace(kernel, name=separate.name, scope=kernel.scope or known.path or "")
    if listed:
        made = {name for node in listed for name in node.outputs}
        read = dict.fromkeys(name for node in listed for name in node.inputs if name not in made)
        node, outputs = listed[0].key, listed[-1].outputs
        return replace(kernel, node=node, inputs=tuple(read), outputs=outputs)
    if kernel.outputs or kernel.parts:
        return kernel
    return replace(kernel, node=search.nearest(separate.label, known.path))


def _notes(level: str, strange: int, kernels: int) -> Iterator[str]:
    if level != _LEVELS[0]:
        yield f"kernels are joined to the graph of the optimisation level {level}, which fits best"
    if strange:
        yield (
            f"{strange:,} of {kernels:,} kernels are not in the graph that onnxruntime makes of "
            "the model here: another version, level of optimisation or model may have run"
        )
