"""Replays the arithmetic of another runtime: see `tracer.replay`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence, ValuesView
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracer.analyzers.attribution import SERVING, attribute
from tracer.api.replay import ReplayArguments
from tracer.arithmetic import finding, runs, trees
from tracer.arithmetic.kernel import Kernel
from tracer.arithmetic.known_rules import KnownRules
from tracer.arithmetic.rule import NotKnown
from tracer.errors import UsageError
from tracer.executors import registry
from tracer.exporters.subject import open_subject
from tracer.host import cores
from tracer.inputs.feedset import FeedSet
from tracer.inputs.request import on_sizes_that_run, request_for, with_overrides
from tracer.quantization.runnable import runnable_form
from tracer.records.model_info import ModelInfo
from tracer.records.replayed import Replayed, ReplayedKernel, ReplayedOutput
from tracer.support.suggestions import suggest


def replay(call: ReplayArguments) -> Replayed:
    """Compares all kernels, and then the outputs, over all batches."""
    model = runnable_form(with_overrides(open_subject(call.model), call.inputs))
    request = request_for(call.model, model, call.batch, call.dims, call.inputs, call.seed)
    threads = call.threads or cores()
    level = {"threads": threads, "optimization": call.optimization}
    settings = registry.settings_for("onnxruntime", level)
    graph = runs.SavedGraph.of(model, settings)
    compute, run = graph.runner(), runs.outputs_of(model, settings)
    groups = attribute(model, graph.ran(model))
    chosen = _kernels_of(call.node, groups) if call.node else range(len(groups))
    nodes, total = [graph.nodes[place] for place in chosen], len(chosen)

    def announce(kernel: Kernel) -> None:
        call.report(len(verdicts), total, f"revealing {kernel.op_type}")

    rules = KnownRules(anew=call.anew, announce=announce)
    verdicts: list[runs.Verdict] = []
    kernels = [_Compared() for _ in nodes]
    outputs = {} if call.node else {value.name: _Digests() for value in model.graph.output}
    reasons: dict[str, None] = {}

    def compare(feedset: FeedSet) -> None:
        verdicts.clear()
        values = compute(feedset.feeds)
        for verdict in runs.compare_kernels(graph, rules.of, values, nodes):
            kernels[len(verdicts)].verdicts.append(verdict)
            verdicts.append(verdict)
            call.report(len(verdicts), total, "comparing bits")
        del values
        if not outputs:
            return
        expected, replayed = run(feedset.feeds), {}
        try:
            replayed = runs.replay_graph(graph, rules.of, feedset.feeds).outputs
        except NotKnown as reason:
            reasons[f"no replay of the whole graph: {reason}"] = None
        for name, digests in outputs.items():
            digests.add(expected[name], replayed.get(name))

    notes: dict[str, None] = dict.fromkeys(model.notes)
    count = 0
    if request.random:
        first, _ = on_sizes_that_run(request, compare)
        notes, count = notes | dict.fromkeys(first.notes), 1
    else:
        for feedset in request.batches():
            compare(feedset)
            notes, count = notes | dict.fromkeys(feedset.notes), count + 1
    rules.store()
    feeds = [str(each) for each in (*request.paths, request.data) if each is not None]
    names = graph.names(model)
    types = {node.key: node.op_type for node in model.nodes}

    def name(nodes: Sequence[str], kernel: str) -> str:
        """Returns the first node that does not serve another, or the kernel's own name."""
        return next((key for key in nodes if types[key] not in SERVING), [*nodes, kernel][0])

    return Replayed(
        model=ModelInfo.of(model),
        runtime=runs.RUNTIME,
        settings={
            "optimization": call.optimization, "threads": threads, "batch": call.batch,
            "dims": call.dims, "feeds": feeds, "seed": call.seed, "node": call.node,
        },
        inputs=count,
        kernels=tuple(
            each.row(groups[place], name(groups[place], names[place]))
            for each, place in zip(kernels, chosen, strict=True)
        ),
        outputs=tuple(digests.row(name) for name, digests in outputs.items()),
        notes=(*notes, *reasons),
    )  # fmt: skip


@dataclass
class _Compared:
    """The verdicts on one kernel, one for each input."""

    verdicts: list[runs.Verdict] = field(default_factory=list)

    def row(self, nodes: Sequence[str], name: str) -> ReplayedKernel:
        """Returns the row of a kernel that stands for `nodes`, and has this name."""
        first, ulps = self.verdicts[0], [each.ulps for each in self.verdicts]
        known = [each for each in ulps if each is not None]
        return ReplayedKernel(
            node=name,
            op_type=first.node.op_type,
            equal=sum(each.equal for each in self.verdicts),
            size=sum(each.size for each in self.verdicts),
            ulps=max(known) if len(known) == len(ulps) else None,
            rule="" if first.rule is None else first.rule.text,
            reason=next((each.reason for each in self.verdicts if each.reason), ""),
            nodes=tuple(nodes),
            tree="" if first.rule is None else _tree(first.rule.facts),
        )


def _kernels_of(node: str, groups: Sequence[Sequence[str]]) -> Sequence[int]:
    """Returns the places of the kernels that stand for a node. Raises UsageError without one."""
    found = [place for place, nodes in enumerate(groups) if node in nodes]
    if not found:
        known = [key for nodes in groups for key in nodes]
        raise UsageError(
            f"no kernel stands for a node '{node}'",
            f"{suggest(node, known)}tracer fusions lists the nodes of each kernel.",
        )
    return found


def _tree(facts: Any) -> str:
    """Returns the order of the first sum that the facts of a rule have, drawn; '' without any."""
    if isinstance(facts, Mapping) and "program" in facts:
        program = list(facts["program"])
        terms = sum(step % 4 != trees.JOIN for step in program)
        return finding.drawn(finding.branches_of_program(program), terms)
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
    """Returns the bytes of a tensor; those of text and of what is no tensor as Python shows it."""
    is_numeric = isinstance(value, np.ndarray) and not value.dtype.hasobject
    return value.tobytes() if is_numeric else repr(value).encode()
