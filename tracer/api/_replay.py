"""Replays the arithmetic of a runtime, and stores it: `tracer.replay`, `tracer.fingerprint`."""

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence, ValuesView
from typing import Any

from tracer.analyzers.attribution import SERVING, attribute
from tracer.api.replay import FingerprintArguments, ReplayArguments
from tracer.arithmetic import fingerprint as machine
from tracer.arithmetic import runs, trees
from tracer.arithmetic.kernel import NotKnown, parts
from tracer.arithmetic.replays import KnownRules
from tracer.errors import UsageError
from tracer.executors import registry
from tracer.executors.settings import OrtSettings
from tracer.exporters.subject import ModelSource, open_subject, runnable_form
from tracer.graph.model import Model
from tracer.host import cores
from tracer.inputs.feedset import FeedSet
from tracer.inputs.request import on_sizes_that_run, request_for, with_overrides
from tracer.records.bits import Fingerprint, ModelPrint, Replayed, ReplayedKernel, ReplayedOutput
from tracer.records.model_info import ModelInfo
from tracer.support.files import EXAMPLES
from tracer.text import suggest


def replay(call: ReplayArguments) -> Replayed:
    """Compares all kernels, and then the outputs, over all batches."""
    model = runnable_form(with_overrides(open_subject(call.model), call.inputs))
    request = request_for(call.model, model, call.batch, call.dims, call.inputs, call.seed)
    threads = call.threads or cores()
    comparison = _Comparison(call, model, threads)
    notes: dict[str, None] = dict.fromkeys(model.notes)
    count = 0
    if request.random:
        first, _ = on_sizes_that_run(request, comparison.add)
        notes, count = notes | dict.fromkeys(first.notes), 1
    else:
        for feedset in request.batches():
            comparison.add(feedset)
            notes, count = notes | dict.fromkeys(feedset.notes), count + 1
    comparison.rules.store()
    feeds = [str(each) for each in (*request.paths, request.data) if each is not None]
    return Replayed(
        model=ModelInfo.of(model),
        runtime=runs.RUNTIME,
        settings={
            "optimization": call.optimization, "threads": threads, "batch": call.batch,
            "dims": call.dims, "feeds": feeds, "seed": call.seed, "node": call.node,
        },
        inputs=count,
        kernels=comparison.rows(),
        outputs=tuple(digests.row(name) for name, digests in comparison.outputs.items()),
        notes=(*notes, *comparison.reasons),
    )  # fmt: skip


def fingerprint(call: FingerprintArguments) -> Fingerprint:
    """Takes the models one after the other; the time for probes is that of all of them."""
    settings = OrtSettings(threads=call.threads, optimization=call.optimization)
    sources: Sequence[ModelSource] = call.models or sorted(EXAMPLES.glob("*.onnx"))
    until, rules, models = time.monotonic() + call.max_probe_seconds, KnownRules(), []
    for place, source in enumerate(sources):
        model = runnable_form(open_subject(source))
        call.report(place, len(sources), f"revealing the kernels of {model.name}")
        request = request_for(source, model, call.batch, call.dims, None, call.seed)

        def take(feedset: FeedSet, model: Model = model) -> ModelPrint:
            return machine.take(model, settings, feedset.feeds, call.seed, rules.of, until)

        models.append(on_sizes_that_run(request, take)[1])
        rules.store()  # of each model: the next one may crash, or take too long
    return machine.observe(tuple(models))


class _Comparison:
    """The kernels of a model, and its outputs, compared on one input after the other."""

    def __init__(self, call: ReplayArguments, model: Model, threads: int) -> None:
        """Raises UsageError for a node that no kernel stands for."""
        chosen = {"threads": threads, "optimization": call.optimization}
        settings = registry.settings_for("onnxruntime", chosen)
        self._model, self._report = model, call.report
        self._graph = runs.SavedGraph.of(model, settings)
        self._compute, self._run = self._graph.runner(model), runs.outputs_of(model, settings)
        self._groups = attribute(model, self._graph.ran(model))
        self._places: Sequence[int] = range(len(self._groups))
        if call.node:  # kernels that stand for it
            self._places = [at for at, nodes in enumerate(self._groups) if call.node in nodes]
        if call.node and not self._places:
            known = [key for nodes in self._groups for key in nodes]
            raise UsageError(
                f"no kernel stands for a node '{call.node}'",
                f"{suggest(call.node, known)}tracer fusions lists the nodes of each kernel.",
            )
        self._verdicts: list[list[runs.Verdict]] = [[] for _ in self._places]
        self._done = 0
        self.rules = KnownRules(
            anew=call.anew,
            announce=lambda kernel: self._report(
                self._done, len(self._places), f"revealing {kernel.op_type}"
            ),
        )
        names = () if call.node else [value.name for value in model.graph.output]
        self.outputs = {name: _Digests() for name in names}
        self.reasons: dict[str, None] = {}

    def add(self, feedset: FeedSet) -> None:
        """Compares on one input. Raises the errors of onnxruntime for inputs that do not fit."""
        nodes = [self._graph.nodes[place] for place in self._places]
        values = self._compute(feedset.feeds)
        verdicts = runs.compare_kernels(self._graph, self.rules.of, values, nodes)
        for self._done, verdict in enumerate(verdicts):
            self._verdicts[self._done].append(verdict)
            self._report(self._done + 1, len(nodes), "comparing bits")
        del values, verdicts
        if self.outputs:
            expected = self._run(feedset.feeds)
            replayed: Mapping[str, Any] = {}
            try:
                replayed = runs.replay_graph(self._graph, self.rules.of, feedset.feeds).outputs
            except NotKnown as reason:
                self.reasons[f"no replay of the whole graph: {reason}"] = None
            for name, digests in self.outputs.items():
                digests.add(expected[name], replayed.get(name))

    def rows(self) -> tuple[ReplayedKernel, ...]:
        """Returns the kernels, named after the first node that does not serve another."""
        names = self._graph.names(self._model)
        types = {node.key: node.op_type for node in self._model.nodes}
        rows = []
        for verdicts, place in zip(self._verdicts, self._places, strict=True):
            nodes = self._groups[place]
            served = [key for key in nodes if types[key] not in SERVING]
            rows.append(_row(verdicts, nodes, [*served, *nodes, names[place]][0]))
        return tuple(rows)


def _row(verdicts: Sequence[runs.Verdict], nodes: Sequence[str], name: str) -> ReplayedKernel:
    """Returns the row of a kernel that stands for `nodes`; there is a verdict for each input."""
    first, ulps = verdicts[0], [each.ulps for each in verdicts]
    known = [each for each in ulps if each is not None]
    return ReplayedKernel(
        node=name,
        op_type=first.node.op_type,
        equal=sum(each.equal for each in verdicts),
        size=sum(each.size for each in verdicts),
        ulps=max(known) if len(known) == len(ulps) else None,
        rule="" if first.rule is None else first.rule.text,
        reason=next((each.reason for each in verdicts if each.reason), ""),
        nodes=tuple(nodes),
        tree="" if first.rule is None else _tree(first.rule.facts),
    )


def _tree(facts: Any) -> str:
    """Returns the order of the first sum that the facts of a rule have, drawn; '' without any."""
    if isinstance(facts, Mapping) and "program" in facts:
        program = list(facts["program"])
        terms = sum(step % 4 != trees.JOIN for step in program)
        return trees.drawn(trees.branches_of_program(program), terms)
    inner = facts.values() if isinstance(facts, Mapping) else facts
    parts: Iterable[Any] = inner if isinstance(inner, list | ValuesView) else ()
    return next(filter(None, map(_tree, parts)), "")


class _Digests:
    """The SHA-256 of an output of the runtime and of the replay, over all inputs."""

    def __init__(self) -> None:
        self._runtime, self._replay, self._is_whole = hashlib.sha256(), hashlib.sha256(), True

    def add(self, value: Any, replayed: Any) -> None:
        self._runtime.update(_content(value))
        self._is_whole &= replayed is not None
        if replayed is not None:
            self._replay.update(_content(replayed))

    def row(self, name: str) -> ReplayedOutput:
        replayed = self._replay.hexdigest() if self._is_whole else None
        return ReplayedOutput(name, self._runtime.hexdigest(), replayed)


def _content(value: Any) -> bytes:
    """Returns the bytes of all tensors of a value."""
    return b"".join(part.tobytes() for part in parts(value))
