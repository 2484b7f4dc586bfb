"""The stages of a profile: run, compare tensors, replay kernels and nodes, observe, analyze."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tracer.analyzers import observed_shapes
from tracer.analyzers.attribution import attribute
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.analyzers.timing import largest, longest_fused, wall
from tracer.api._assembly import Analyzed, Attribution, Groups, Pricing, analyze, configured
from tracer.containment import signals
from tracer.containment.activity import Progress
from tracer.errors import TracerError, out_of_memory
from tracer.executors.protocol import Executor, OptimizedGraph
from tracer.graph.model import Model
from tracer.graph.shape_inference import TensorTypes
from tracer.inputs.feedset import FeedSet
from tracer.inputs.request import Phase, Request, on_sizes_that_run
from tracer.limits import Limits, fair_share
from tracer.records.tensor_match import Evidence
from tracer.records.trace import Run
from tracer.shapes import infer

_COMPARED_BYTES, _COMPARED_S = 1 << 30, 20.0
"""What a profile may spend on comparing tensors; `tracer fusions` spends more."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The profile of one model, run by run; see `tracer.profile` for the fields."""

    model: Model
    executor: Executor[Model, FeedSet, Any]
    convention: str
    pricing: Pricing | None
    replay: int
    split: int
    confirm: bool
    progress: Progress

    def run(self, request: Request, settings: Any, phase: Phase | None = None) -> Analyzed:
        """Returns the run on the inputs of `request` and its rows of the node table.

        `settings` are the executor's; `phase` is the one of a language model that `request` feeds.
        """
        feedset, profiled = on_sizes_that_run(
            request,
            lambda feeds: self.executor.profile(self.model, feeds, settings, self.progress),
        )
        run = configured(profiled.run, settings)
        if phase is not None:
            run = replace(run, phase=phase.name, past=phase.past)
        whole = not signals.ending()
        try:
            if whole:
                return self._refined(run, profiled.optimized_graph, request, feedset)
        except signals.ENDINGS:
            if not signals.ending():
                raise
        types = infer(self.model, feedset.shapes)
        return replace(analyze(self.model, run, types, None, self.convention), whole=whole)

    def _refined(
        self, run: Run, graph: OptimizedGraph | None, request: Request, feedset: FeedSet
    ) -> Analyzed:
        """Returns the rows of `run`, with all that further runs of the model tell of them."""
        groups: Groups = attribute(self.model.executed, run.kernels)
        evidence = None
        fused = any(len(group) > 1 for group in groups)
        if self.confirm and fused and graph is not None and graph.comparable:
            feed_sets = [feedset, *request.further_feeds(feedset)]
            most = Limits(live_bytes=min(_COMPARED_BYTES, fair_share()), seconds=_COMPARED_S)
            matches = matched(graph, feed_sets, most, self.progress)
            if isinstance(matches, TracerError):
                note = f"fused kernels are traced back by names alone: {_reason(matches)}"
                run = replace(run, notes=(*run.notes, note))
            else:
                evidence = matches
                groups = attribute(self.model.executed, run.kernels, matches)
        if self.replay and graph is not None:
            run = self._replayed(run, graph, groups, feedset)
        types, calls, differences = observed(self.model, feedset, run, graph)
        run = replace(run, notes=(*run.notes, *differences))
        alone: Mapping[str, float] = {}
        if self.split and graph is not None:
            nodes = longest_fused(run, groups, self.split)
            alone = self._isolated_times(graph, types, nodes, feedset)
        attribution = Attribution(groups, evidence, alone)
        return analyze(self.model, run, types, calls, self.convention, attribution, self.pricing)

    def _replayed(self, run: Run, graph: OptimizedGraph, groups: Groups, feedset: FeedSet) -> Run:
        """Returns `run` with the times of the kernels of the slowest rows, each run alone."""
        positions = list(largest(run, groups, self.replay))
        kernels = [run.kernels[position] for position in positions]
        times = np.full(len(run.kernels), np.nan)
        times[positions] = graph.replay(feedset, kernels, self.progress) * wall(run)["mean"]
        return replace(run, replayed_us=times)

    def _isolated_times(
        self, graph: OptimizedGraph, types: TensorTypes, keys: Sequence[str], feedset: FeedSet
    ) -> Mapping[str, float]:
        """Returns the times of these nodes, each run alone as the model has it ÷ a whole run.

        `keys` are those of nodes that run, the result has the nodes that they are parts of. What is
        computed from weights alone was computed before the run, and takes no time.
        """
        model = self.model.executed
        typed = TypedModel(model, types if model is self.model else infer(model, feedset.shapes))
        nodes = {node.key: node for node in model.nodes}
        constant = typed.sources.of_tensors
        outputs = {key: list(typed.flow.outputs_of(nodes[key])) for key in keys}
        running = [key for key in keys if not all(map(constant.__contains__, outputs[key]))]
        shares = graph.replay_unfused(feedset, [nodes[key] for key in running], self.progress)
        of_nodes = dict.fromkeys(keys, 0.0) | dict(zip(running, shares.tolist(), strict=True))
        alone: dict[str, float] = {}
        for key, share in of_nodes.items():
            for own in self.model.own_nodes([key]):
                alone[own] = alone.get(own, 0.0) + share
        return alone


def matched(
    graph: OptimizedGraph, feed_sets: Sequence[FeedSet], limits: Limits, progress: Progress
) -> Evidence | TracerError:
    """Returns which tensors of `graph` equal tensors of the model, or why that is unknown."""
    try:
        return graph.match_tensors(feed_sets, limits, progress)
    except TracerError as error:
        return error
    except MemoryError:
        return out_of_memory("not enough memory to hold the tensors")


def _reason(error: TracerError) -> str:
    """Returns what went wrong, without the node and input types that the interpreter adds."""
    cause = error.__cause__
    return cause.what if isinstance(cause, TracerError) else error.what


def observed(
    model: Model, feedset: FeedSet, run: Run, graph: OptimizedGraph | None
) -> tuple[TensorTypes, Mapping[str, float] | None, tuple[str, ...]]:
    """Returns types of all tensors, calls of all nodes where a run was needed for them, and notes.

    Where shape inference is incomplete or wrong, an optimised model runs once without optimisation.
    """
    types = infer(model, feedset.shapes)
    if graph is not None and not observed_shapes.needed(model, types, run.kernels):
        return types, None, ()
    kernels = run.kernels if graph is None else graph.unoptimized_kernels(feedset)
    observation = observed_shapes.of(model, kernels)
    types, differences = observation.applied(model, types)
    return types, observation.calls, differences
