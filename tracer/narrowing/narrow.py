"""Changes the sums of a quantised graph until they fit, one node after the other.

Two runs of all calibration batches stop at each node that is to be changed: one of the model as it
is, which tells what the node should return, and one of the model with all changes so far, which
tells what the node will read. The changed node then computes its output for the second run. So each
layer makes up for what those before it have lost, as in GPTQ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import onnx

from tracer.containment.activity import Progress
from tracer.graph.model import Model, Node
from tracer.inputs.feedset import Feeds
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.numeric import parallel
from tracer.interpreter.observers import Observer
from tracer.interpreter.values import Value
from tracer.narrowing import fitting, samples
from tracer.narrowing.fragment import Fragment
from tracer.narrowing.layers import Layer, PlainSum
from tracer.narrowing.measures import Measure, Proposal, measures, operands
from tracer.narrowing.requirement import Need
from tracer.quantization.graph_editor import GraphEditor
from tracer.support.types import Array

Sum = Layer | PlainSum
SumT = TypeVar("SumT", bound=Sum)
Alive = Mapping[str, Value]
"""The tensors of a batch that later nodes read, by name."""


def walk(
    model: Model,
    sums: Mapping[str, SumT],
    batches: Iterable[Feeds],
    change: Callable[[SumT, Node, Sequence[samples.Batch]], Fragment | None],
    report: Progress,
) -> None:
    """Calls `change` for the nodes of `sums`, by key, in the order of the graph.

    It returns what takes the place of the node, or None for a node that stays.
    """
    seen = _Seen()
    interpreter = Interpreter(model, observers=[seen])
    wide: list[Alive] = [interpreter.begin(feeds) for feeds in batches]
    narrow, at, done = wide, 0, 0
    total = sum(each.cost for each in sums.values())
    for index, node in enumerate(interpreter.steps):
        if node.key not in sums:
            continue
        seen.key = node.key
        stop = index + 1
        is_changed = narrow is not wide
        wide = [interpreter.advance(alive, at, stop) for alive in wide]
        wanted = seen.take_calls()
        narrow = [interpreter.advance(a, at, stop) for a in narrow] if is_changed else wide
        read = seen.take_calls() if is_changed else wanted
        at, done = stop, done + sums[node.key].cost
        parts = [
            samples.Batch(inputs, read_inputs, output)
            for (inputs, output), (read_inputs, _) in zip(wanted, read, strict=True)
        ]
        fragment = change(sums[node.key], node, parts)
        if fragment is not None:
            run = fragment.runner(model.proto, parts[0].read)
            narrow = [
                {**alive, node.outputs[0]: run(part.read)}
                for alive, part in zip(narrow, parts, strict=True)
            ]
        report(100 * done // total, 100, "fitting nodes, % of the work")


@dataclass
class _Seen(Observer):
    """Keeps what a node reads and returns, batch after batch."""

    key: str = ""
    calls: list[tuple[Sequence[Value], Array]] = field(default_factory=list)

    def take_calls(self) -> list[tuple[Sequence[Value], Array]]:
        """Returns the computations so far, and forgets them."""
        calls, self.calls = self.calls, []
        return calls

    def before(self, node: Node, inputs: Sequence[Value]) -> None:
        """Does nothing."""

    def after(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Keeps a computation of the node."""
        if node.key == self.key:
            self.calls.append((tuple(inputs), np.asarray(outputs[0])))


_ENOUGH_DB = 0.5
"""A measure that changes less is kept where a better one gains no more than this."""


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a node: the measure and what it costs; the new nodes that sum, by name.

    A node that fits already has no measure and no proposal; a node that cannot fit has `reason`.
    """

    need: Need
    measure: str = ""
    proposal: Proposal | None = None
    sums: tuple[str, ...] = ()
    reason: str = ""


@dataclass
class _Narrowing:
    """The changes of a graph so far."""

    model: Model
    needs: Mapping[str, Need]
    dear: bool
    editor: GraphEditor = field(init=False)
    taken: set[str] = field(init=False)
    changes: dict[str, Change] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.editor = GraphEditor(self.model.proto)
        self.taken = self.editor.names()

    def change(self, sum_: Sum, node: Node, batches: Sequence[samples.Batch]) -> Fragment | None:
        """Changes a node in the graph, and returns what takes its place."""
        need = self.needs[node.key]
        seen: samples.LayerSamples | samples.SumSamples
        if isinstance(sum_, Layer):
            seen = samples.layer_samples(sum_, batches)
            fits = fitting.fits_already(seen, need)
        else:
            same = Fragment(node.proto, node.key, set())
            same.finish(same.copy(node.proto.input, "sum"))
            run = same.runner(self.model.proto, batches[0].read)
            seen = samples.sum_samples(sum_, run, batches)
            fits = operands.fits_already(seen, need)
        if fits:
            self.changes[node.key] = Change(need)
            return None
        chosen = _chosen(seen, need, self.dear)
        if chosen is None:
            why = "no grid of its operands is coarse enough"
            if need.machine is not None:
                why = "its sums of activations alone are not changed for a machine"
            self.changes[node.key] = Change(need, reason=why)
            return None
        measure, proposal = chosen
        fragment = Fragment(node.proto, node.key, self.taken)
        proposal.write(fragment)
        self.editor.replace(node.outputs[0], fragment.nodes, fragment.weights)
        self.changes[node.key] = Change(need, measure.name, proposal, tuple(fragment.sums))
        return fragment


def narrow_graph(
    model: Model,
    sums: Mapping[str, Sum],
    needs: Mapping[str, Need],
    batches: Iterable[Feeds],
    dear: bool,
    progress: Progress,
) -> tuple[onnx.ModelProto, Mapping[str, Change]]:
    """Returns the graph with the nodes of `needs` changed, and what became of each, by key.

    Measures that are `dear` are tried only if asked for.
    """
    narrowing = _Narrowing(model, needs, dear)
    asked = {key: each for key, each in sums.items() if key in needs}
    with parallel.threads(None):
        walk(model, asked, batches, narrowing.change, progress)
    narrowing.editor.prune()
    return narrowing.editor.proto, narrowing.changes


def _chosen(
    seen: samples.LayerSamples | samples.SumSamples, need: Need, dear: bool
) -> tuple[Measure, Proposal] | None:
    """Returns the measure that changes the least of those that lose about as little as any.

    Those of a layer with many outputs are compared on a few, since each takes as long as a fit.
    """
    few = seen.some_outputs() if isinstance(seen, samples.LayerSamples) else seen
    proposals = list[tuple[Measure, Proposal]]()
    for each in measures():
        moves = each.dear or (need.machine is not None and each.rank > 1)
        if not isinstance(seen, each.changes) or (moves and not dear):
            continue  # a machine's runtime fuses only layers without further nodes
        proposal = each.propose(seen if each.keeps_values else few, need)
        if proposal is None:
            continue
        if each.keeps_values:
            return each, proposal
        proposals.append((each, proposal))
    most = max((proposal.sqnr_db for _, proposal in proposals), default=0.0)
    for measure, proposal in proposals:
        if proposal.sqnr_db >= most - _ENOUGH_DB:
            again = proposal.again if few is not seen else None
            return measure, proposal if again is None else again(seen)
    return None
