"""Changes the sums of a quantised graph until they fit, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from tracer.graph.model import Model, Node
from tracer.inputs.feedset import Feeds
from tracer.narrowing import fitting, samples
from tracer.narrowing.fragment import Fragment
from tracer.narrowing.layers import Layer
from tracer.narrowing.measures import Measure, Proposal, measures, operands
from tracer.narrowing.need import Need
from tracer.narrowing.plain_sums import PlainSum
from tracer.narrowing.samples import Batch, LayerSamples, SumSamples
from tracer.narrowing.walk import walk
from tracer.quantization.graph_editor import GraphEditor
from tracer.support.progress import Progress

_ENOUGH_DB = 0.5
"""A measure that changes less is kept where a better one gains no more than this."""

Sum = Layer | PlainSum


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

    def change(self, sum_: Sum, node: Node, batches: Sequence[Batch]) -> Fragment | None:
        """Changes a node in the graph, and returns what takes its place."""
        need = self.needs[node.key]
        seen = self._samples(sum_, node, batches)
        if _fits_already(seen, need):
            self.changes[node.key] = Change(need)
            return None
        chosen = _chosen(seen, need, self.dear)
        if chosen is None:
            self.changes[node.key] = Change(need, reason="no grid of its operands is coarse enough")
            return None
        measure, proposal = chosen
        fragment = Fragment(node.proto, node.key, self.taken)
        proposal.write(fragment)
        self.editor.replace(node.outputs[0], fragment.nodes, fragment.weights)
        self.changes[node.key] = Change(need, measure.name, proposal, tuple(fragment.sums))
        return fragment

    def _samples(
        self, sum_: Sum, node: Node, batches: Sequence[Batch]
    ) -> LayerSamples | SumSamples:
        if isinstance(sum_, Layer):
            return samples.of_layer(sum_, batches)
        same = Fragment(node.proto, node.key, set())
        same.finish(same.copy(node.proto.input, "sum"))
        return samples.of_sum(sum_, same.runner(self.model.proto, batches[0].read), batches)


def narrowed(
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
    walk(model, asked, batches, narrowing.change, progress)
    narrowing.editor.prune()
    return narrowing.editor.proto, narrowing.changes


def _fits_already(seen: LayerSamples | SumSamples, need: Need) -> bool:
    if isinstance(seen, LayerSamples):
        return fitting.fits_already(seen, need)
    return operands.fits_already(seen, need)


def _chosen(
    seen: LayerSamples | SumSamples, need: Need, dear: bool
) -> tuple[Measure, Proposal] | None:
    """Returns the measure that changes the least of those that lose about as little as any.

    Those of a layer with many outputs are compared on a few, since each takes as long as a fit.
    """
    few = seen.few() if isinstance(seen, LayerSamples) else seen
    proposals = list[tuple[Measure, Proposal]]()
    for each in measures():
        if not isinstance(seen, each.changes) or (each.dear and not dear):
            continue
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
