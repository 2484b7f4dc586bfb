"""Count the bytes that are alive while a node runs, by liveness analysis of the user's graph.

A tensor lives from the node that computes it to the last node that reads it. Inputs of the model
live from the start, its outputs to the end. Nothing is computed in place, so inputs and outputs of
a node are alive together. A view has no bytes. Weights, constants and tensors computed from them
alone live all the time and are not counted (see `param_bytes`). Nodes have the order of the run, or
of the file.

While a body runs, everything around its node is alive, except the outputs of this node.
"""

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from graphlib import TopologicalSorter

import pandas as pd

from tracer.analyzers.cost.count import LARGEST, Bytes
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.graph.model import Address, Dataflow, Node, Scope
from tracer.records.trace import Run


def memory(
    typed: TypedModel, groups: Sequence[tuple[str, ...]] = (), idle: Collection[str] = ()
) -> pd.DataFrame:
    """Returns `output_bytes` and `peak_bytes` (alive while the node runs) by node key, Int64.

    Both are of one execution, and missing if the size of a tensor is unknown. `groups` are the
    nodes of the kernels of a run, in the order they ran. Nodes that do not run, `idle`, take 0.
    """
    ran = {key: index for index, key in enumerate(dict.fromkeys(k for g in groups for k in g))}
    nodes_of = typed.model.nodes_by_graph
    graphs = {path: _schedule(nodes, typed.flow, ran) for path, nodes in nodes_of.items()}
    last = _last_needed(typed, graphs)
    around: dict[str, Bytes] = {"": 0}
    live: dict[str, Bytes] = {}
    for scope in typed.model.scopes:  # a body after the one around it
        if scope.owner is not None:
            written = typed.facts.nbytes(scope.owner.outputs, scope.owner.scope)
            beside = live[scope.owner.key]
            around[scope.path] = None if beside is None or written is None else beside - written
        live |= _live(typed, scope, graphs.get(scope.path, ()), last, around[scope.path])
    nodes, nbytes = typed.model.nodes, typed.facts.nbytes
    outputs = [nbytes(node.outputs, node.scope) for node in nodes]
    keys = [node.key for node in nodes]
    table = pd.DataFrame(
        {
            "output_bytes": pd.array(outputs, dtype="Int64"),
            "peak_bytes": pd.array([live[key] for key in keys], dtype="Int64"),
        },
        index=pd.Index(keys, dtype="object"),
    )
    if idle:
        table.loc[list(idle)] = 0
    return table


def arena(run: Run, groups: Sequence[tuple[str, ...]]) -> pd.DataFrame:
    """Returns `arena_bytes`, in use in the runtime's arena, by the main node of each kernel.

    A node with several kernels has their maximum. The table is empty if the runtime has no figures.
    """
    in_use: dict[str, int] = {}
    for kernel, group in zip(run.kernels, groups, strict=True):
        if group and kernel.arena_bytes is not None:
            in_use[group[0]] = max(in_use.get(group[0], 0), kernel.arena_bytes)
    return pd.DataFrame({"arena_bytes": pd.Series(in_use, dtype="Int64")})


def _last_needed(typed: TypedModel, graphs: Mapping[str, Sequence[Node]]) -> dict[Address, int]:
    """Returns, for each tensor with bytes of its own, the position of the last node of its graph
    that needs them.

    A node also needs what its bodies read. The results of a graph are needed to its end.
    """
    position = {node.key: at for nodes in graphs.values() for at, node in enumerate(nodes)}
    last: dict[Address, int] = {}
    viewed = typed.aliases.viewed
    for tensor, nodes in typed.flow.readers.items():
        root, end = viewed.get(tensor, tensor), -1
        for node in nodes:
            while node.scope.path != root[0] and node.scope.owner is not None:
                node = node.scope.owner
            at = position[node.key]
            end = at if at > end else end
        last[root] = max(last.get(root, -1), end)
    for result in typed.flow.results:
        root = viewed.get(result, result)
        last[root] = len(graphs.get(root[0], ())) - 1
    return last


def _live(
    typed: TypedModel,
    scope: Scope,
    nodes: Sequence[Node],
    last: Mapping[Address, int],
    outside: Bytes,
) -> dict[str, Bytes]:
    """Returns the bytes that are alive at each node of one graph, by key.

    `outside` are those around the graph.
    """
    if not nodes:
        return {}
    born = {(scope.path, value.name): 0 for value in scope.graph.input}
    born |= {(scope.path, name): at for at, node in enumerate(nodes) for name in node.outputs}
    constant, viewed = typed.sources.of_tensors, typed.aliases.viewed
    change, unknown = [0] * (len(nodes) + 1), [0] * (len(nodes) + 1)
    for tensor, first in born.items():
        if not tensor[1] or tensor in constant or tensor in viewed:
            continue  # it has no bytes of its own
        size = typed.facts.nbytes((tensor[1],), scope)
        which, amount = (unknown, 1) if size is None else (change, size)
        which[first] += amount
        which[max(first, last.get(tensor, first)) + 1] -= amount
    alive: dict[str, Bytes] = {}
    total, missing = outside or 0, int(outside is None)
    for node, delta, gap in zip(nodes, change, unknown, strict=False):
        total, missing = total + delta, missing + gap
        alive[node.key] = None if missing or total > LARGEST else total
    return alive


def _schedule(nodes: Iterable[Node], flow: Dataflow, ran: Mapping[str, int]) -> tuple[Node, ...]:
    """Returns the nodes of one graph as they ran; `ran` has the position of each key.

    A folded or removed node has no position and comes as early as possible. If no node has a
    position, the nodes keep the order of the file.
    """
    if not ran:
        return tuple(nodes)
    by_key = {node.key: node for node in nodes}
    positions = [ran.get(key, -1) for key in by_key]
    if ran.keys().isdisjoint(by_key) or (-1 not in positions and positions == sorted(positions)):
        return tuple(by_key.values())
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(by_key, ()))
    for node in by_key.values():
        for tensor in flow.outputs_of(node):
            for reader in flow.readers.get(tensor, ()):
                while reader.key not in by_key:  # a reader in a body is read by the body's owner
                    assert reader.scope.owner is not None
                    reader = reader.scope.owner
                sorter.add(reader.key, node.key)
    sorter.prepare()
    ready: list[tuple[int, int, str]] = []
    schedule = []
    while sorter.is_active():
        for key in sorter.get_ready():
            heapq.heappush(ready, (ran.get(key, -1), by_key[key].index, key))
        key = heapq.heappop(ready)[2]
        schedule.append(by_key[key])
        sorter.done(key)
    return tuple(schedule)
