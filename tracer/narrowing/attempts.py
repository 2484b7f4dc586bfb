"""Narrows a model to one width, and keeps what scores best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import onnx

from tracer.accumulators.spec.policy import Policy
from tracer.graph import loading
from tracer.graph.model import Model
from tracer.narrowing import layers, plain_sums
from tracer.narrowing.evaluation import Evaluation, Sums
from tracer.narrowing.narrow import Change, Sum, narrowed
from tracer.narrowing.need import Guarantee
from tracer.narrowing.widths import Width
from tracer.quantization.calibration import CalibrationBatches
from tracer.records.whatif import Judgement
from tracer.support.progress import Progress


@dataclass(frozen=True, slots=True)
class Subject:
    """A quantised model, what in it sums, by key, and why other products cannot be narrowed."""

    model: Model
    sums: Mapping[str, Sum] = field(repr=False)
    others: Mapping[str, str]

    @classmethod
    def of(cls, model: Model) -> Subject:
        """Returns the sums of a model."""
        found, others = layers.find(model)
        plain = plain_sums.find(model)
        sums: dict[str, Sum] = {each.key: each for each in found}
        sums |= {each.key: each for each in plain}
        reasons = {key: reason for key, reason in others.items() if key not in sums}
        return cls(model, sums, reasons)

    @property
    def has_layers(self) -> bool:
        """Whether there are weights to change."""
        return any(isinstance(each, layers.Layer) for each in self.sums.values())


@dataclass(frozen=True, slots=True)
class Attempt:
    """The model at one width: the changes, its sums, and the score if sums saturate instead.

    `policy` are the accumulators of its nodes.
    """

    width: Width
    policy: Policy
    proto: onnx.ModelProto = field(repr=False)
    changes: Mapping[str, Change]
    saturated: float
    after: Sums

    @property
    def bits(self) -> int:
        """The width of the swept nodes."""
        return self.width.bits


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
        best = self._attempt(width, saturated.score, dear=False)
        if not self.judge.allows(best.after.score, self.evaluation.before.score):
            best = self._better(best, self._attempt(width, saturated.score, dear=True))
        if self.guarantee == "any-input":
            return best
        as_it_is = Attempt(
            width, width.policy(), self.subject.model.proto, {}, saturated.score, saturated
        )
        return self._better(best, as_it_is)

    def narrowest(self, attempts: Sequence[Attempt]) -> Attempt:
        """Returns the narrowest within the budget; without one, the widest."""
        score = self.evaluation.before.score
        within = (each for each in attempts if self.judge.allows(each.after.score, score))
        return next(within, attempts[-1])

    def _better(self, first: Attempt, second: Attempt) -> Attempt:
        """Returns the attempt with the better score; the first of equals."""
        return second if self.judge.is_better(second.after.score, first.after.score) else first

    def _attempt(self, width: Width, saturated: float, dear: bool) -> Attempt:
        """Narrows the model, and runs it in its accumulators."""
        model = self.subject.model
        needs = width.needs(model)
        report = partial(self._told, width)
        proto, changes = narrowed(model, self.subject.sums, needs, self.batches, dear, report)
        added = [(key, each.need) for each in changes.values() for key in each.sums[1:]]
        policy = width.policy(added)
        after = self._run(loading.from_proto(proto), width, policy, "narrowed")
        return Attempt(width, policy, proto, changes, saturated, after)

    def _run(self, model: Model, width: Width, policy: Policy, what: str) -> Sums:
        return self.evaluation.of(model, policy, f"{width.bits} bits: {what}")

    def _told(self, width: Width, done: int, total: int, what: str) -> None:
        self.report(done, total, f"{width.bits} bits: {what}")
