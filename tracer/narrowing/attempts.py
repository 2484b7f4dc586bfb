"""Narrows a model to one width, scores it in its accumulators, and says what became of nodes."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.policy import Policy
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.containment.activity import Progress
from tracer.graph import loading
from tracer.graph.model import Model
from tracer.inputs.datasets.dataset import Dataset
from tracer.interpreter.interpreter import Interpreter
from tracer.metrics import Metric
from tracer.narrowing import layers
from tracer.narrowing.narrow import Change, Sum, exact_graph, narrow_graph
from tracer.narrowing.requirement import Guarantee, Need, Width
from tracer.quantization.calibration import CalibrationBatches
from tracer.records.transformed import NarrowedNode
from tracer.records.whatif import Judgement, WideBatch
from tracer.support.types import Array
from tracer.whatif.criteria import metric_notes, scorer, summary
from tracer.whatif.reuse import ArraySpill


@dataclass(frozen=True, slots=True)
class Sums:
    """The mean score on a data set, in the unit of the metric, and the sums of the nodes by key."""

    score: float
    sums: Mapping[str, PartialSums]
    notes: tuple[str, ...]


class Evaluation:
    """Scores models on all samples of a data set, against the outputs of `wide`.

    `before` are the score and the sums of `wide` in the accumulators of `policy`, which must be
    wide enough for all of them, and `notes` what the metric does not show of their outputs. Raises
    the errors of the metric, and of `AccumulatorEmulation`.
    """

    def __init__(
        self,
        wide: Model,
        policy: Policy,
        dataset: Dataset,
        metric: Metric,
        batch: int,
        progress: Progress,
    ) -> None:
        self._dataset = dataset
        self._metric = metric
        self._batch = batch
        self._progress = progress
        self._outputs = ArraySpill()
        self.samples = 0
        self.notes: tuple[str, ...] = ()
        self.before = self.of(wide, policy, "scoring in wide accumulators", keeps=True)

    def of(self, model: Model, policy: Policy, task: str, keeps: bool = False) -> Sums:
        """Runs `model` in the accumulators of `policy`."""
        emulation = AccumulatorEmulation(model, policy)
        interpreter = Interpreter(model, wrap_kernel=emulation.wrap, fuse=emulation.fuse)
        score = scorer(model, self._dataset, self._metric)
        summarized = summary(model, self._metric)
        scores, shown = list[Array](), list[WideBatch]()
        done, total = 0, self._dataset.samples
        for number, part in enumerate(self._dataset.batches(self._batch)):
            outputs = interpreter.run(None, part.inputs)
            if keeps:
                self._outputs.append(outputs)
                self.samples += part.size
            scores.append(score(outputs, part, self._outputs.read(number)))
            if keeps:
                shown.append(summarized(scores[-1], outputs))
            done += part.size
            self._progress(done, total or done, task)
        if keeps:
            self.notes = metric_notes(self._metric, shown)
        mean = float(np.concatenate(scores).mean())
        return Sums(mean, emulation.accumulations(), emulation.notes)


def node_rows(subject: "Subject", attempt: "Attempt", before: Sums) -> tuple[NarrowedNode, ...]:
    """Returns a row for each node that sums in the accumulators of the attempt."""
    needs, rows = attempt.width.needs(subject.model), []
    is_machine = bool(attempt.width.machine)
    for node in subject.model.nodes:
        sums = (attempt.unchanged if is_machine else before).sums
        wide, change = sums.get(node.key), attempt.changes.get(node.key)
        names = attempt.sums_of(node.key)
        after = [attempt.after.sums[name] for name in names if name in attempt.after.sums]
        if wide is None or not after or node.key not in needs:
            continue
        need, proposal = needs[node.key], None if change is None else change.proposal
        tallies = [each.tally for each in after]
        # outputs with a sum that left the range of a register
        overflows = sum(int(t.overflow().overflow_outputs.sum()) for t in tallies)
        rows.append(NarrowedNode(
            node.key, node.op_type, node.module, need.bits,
            _guaranteed(wide, need) if is_machine else wide.guaranteed_any_order or 0,
            max(_guaranteed(each, need) for each in after),
            _observed(wide), max(map(_observed, after)),
            "" if change is None else change.measure,
            None if proposal is None else proposal.input_bits,
            proposal.sqnr_db if proposal and math.isfinite(proposal.sqnr_db) else None,
            len(names), overflows,
        ))  # fmt: skip
    return tuple(rows)


def result_notes(
    subject: "Subject", attempt: "Attempt", score: float, judge: Judgement
) -> Iterator[str]:
    """Yields what the rows do not say: nodes that cannot be narrowed, and what that costs."""
    yield from attempt.after.notes
    by_reason: dict[str, list[str]] = {}
    unfit = {key: each.reason for key, each in attempt.changes.items() if each.reason}
    reasons = {**subject.others, **unfit}
    needs, after = attempt.width.needs(subject.model), attempt.after.sums
    for node in subject.model.nodes:  # sums that do not fit, and that no measure changes
        key = node.key
        is_left = key in needs and key in after and key not in {*subject.sums, *subject.others}
        if is_left and _guaranteed(after[key], needs[key]) > needs[key].bits:
            why = f"tracer narrow does not change {node.op_type}, and its sums need more bits"
            reasons[key] = why
    for key, reason in reasons.items():
        by_reason.setdefault(reason, []).append(key)
    yield from (f"not narrowed: {', '.join(keys)}: {why}" for why, keys in by_reason.items())
    narrowed, bits = attempt.after.score, attempt.width.bits
    saturated = attempt.unchanged.score
    if not attempt.changes and attempt.width.machine:
        yield "nothing to change: no register of that machine overflows before the last"
    elif not attempt.changes:
        yield f"the model stays as it is: at {bits} bits its sums score better if they saturate"
    elif attempt.has_width and judge.is_better(saturated, narrowed):
        yield (
            f"at {bits} bits the model before scores better if its sums saturate "
            f"({saturated:.4g}), but some inputs overflow: with --guarantee this-data it "
            "would be kept"
        )
    if not judge.allows(narrowed, score):
        over = f"cost more than the budget of {judge.budget:g}"
        remedy = "tracer narrow --bits with more bits, or a larger --budget"
        yield f"{bits} bits {over}: {remedy}" if attempt.has_width else f"the changes {over}"


def _guaranteed(sums: PartialSums, need: Need) -> int:
    """Returns the bits of the registers that are limited; of tiles, in the order of the terms."""
    if need.tile is None and need.machine is None:
        return sums.guaranteed_any_order or 0
    return sums.guaranteed_inner or sums.guaranteed_any_order or 0


def _observed(sums: PartialSums) -> int:
    return int(sums.tally.bits_observed.max())


@dataclass(frozen=True, slots=True)
class Subject:
    """A quantised model, what in it sums, by key, and why other products cannot be narrowed."""

    model: Model
    sums: Mapping[str, Sum] = field(repr=False)
    others: Mapping[str, str]

    @classmethod
    def of(cls, model: Model) -> "Subject":
        """Returns the sums of a model."""
        found, others = layers.find_layers(model)
        sums: dict[str, Sum] = {each.key: each for each in found}
        sums |= {each.key: each for each in layers.find_plain_sums(model)}
        reasons = {key: reason for key, reason in others.items() if key not in sums}
        return cls(model, sums, reasons)

    @property
    def has_layers(self) -> bool:
        """Whether there are weights to change."""
        return any(isinstance(each, layers.Layer) for each in self.sums.values())


@dataclass(frozen=True, slots=True)
class Attempt:
    """The model at one width: the changes, its sums, and those of the `unchanged` model.

    The sums of that one saturate. `policy` are the accumulators of its nodes.
    """

    width: Width
    policy: Policy
    proto: onnx.ModelProto = field(repr=False)
    changes: Mapping[str, Change]
    unchanged: Sums
    after: Sums
    is_exact: bool = False

    @property
    def has_width(self) -> bool:
        """Whether sums must fit a width that was asked for: no machine's, and not `exact`."""
        return not (self.width.machine or self.is_exact)

    def sums_of(self, key: str) -> tuple[str, ...]:
        """Returns the names of the nodes that sum in place of a node."""
        change = self.changes.get(key)
        return (key,) if change is None or not change.sums else change.sums


@dataclass(frozen=True)
class Attempts:
    """Narrows `subject` on calibration batches, and scores it by `evaluation`."""

    subject: Subject
    batches: CalibrationBatches
    evaluation: Evaluation
    judge: Judgement
    guarantee: Guarantee
    report: Progress

    def at(self, width: Width) -> Attempt:
        """Returns the best attempt at a width.

        Dear measures are tried where the others lose more than the budget. If sums that saturate
        score better than all, the model stays as it is, unless any input must fit.
        """
        saturated = self._run(self.subject.model, width, width.policy(), "saturated")
        best = self._attempt(width, saturated, dear=False)
        if not self.judge.allows(best.after.score, self.evaluation.before.score):
            best = self._better(best, self._attempt(width, saturated, dear=True))
        if self.guarantee == "any-input":
            return best
        as_it_is = Attempt(
            width, width.policy(), self.subject.model.proto, {}, saturated, saturated
        )
        return self._better(best, as_it_is)

    def exact_at(self, width: Width) -> Attempt:
        """Returns the model with powers of two for scales, whose sums fit a width."""
        model, policy = self.subject.model, width.policy()
        proto, changes = exact_graph(model, width.needs(model), self.batches, self.report)
        after = self._run(loading.from_proto(proto), width, policy, "exact")
        return Attempt(width, policy, proto, changes, self.evaluation.before, after, is_exact=True)

    def narrowest(self, attempts: Sequence[Attempt]) -> Attempt:
        """Returns the narrowest within the budget; without one, the widest."""
        score = self.evaluation.before.score
        within = (each for each in attempts if self.judge.allows(each.after.score, score))
        return next(within, attempts[-1])

    def _better(self, first: Attempt, second: Attempt) -> Attempt:
        """Returns the attempt with the better score; the first of equals."""
        return second if self.judge.is_better(second.after.score, first.after.score) else first

    def _attempt(self, width: Width, saturated: Sums, dear: bool) -> Attempt:
        """Narrows the model, and runs it in its accumulators."""
        model = self.subject.model
        needs = width.needs(model)

        def report(done: int, total: int, what: str) -> None:
            self.report(done, total, f"{width.bits} bits: {what}")

        proto, changes = narrow_graph(model, self.subject.sums, needs, self.batches, dear, report)
        added = [(key, each.need) for each in changes.values() for key in each.sums[1:]]
        policy = width.policy(added)
        after = self._run(loading.from_proto(proto), width, policy, "narrowed")
        return Attempt(width, policy, proto, changes, saturated, after)

    def _run(self, model: Model, width: Width, policy: Policy, what: str) -> Sums:
        return self.evaluation.of(model, policy, f"{width.bits} bits: {what}")
