"""What the result of narrowing says of each node."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.narrowing.attempts import Attempt, Subject
from tracer.narrowing.evaluation import Sums
from tracer.narrowing.measures import Proposal
from tracer.narrowing.narrow import Change
from tracer.narrowing.need import Need
from tracer.records.transformed import NarrowedNode
from tracer.records.whatif import Judgement


def nodes(subject: Subject, attempt: Attempt, before: Sums) -> tuple[NarrowedNode, ...]:
    """Returns a row for each node that sums in the accumulators of the attempt."""
    needs, rows = attempt.width.needs(subject.model), []
    for node in subject.model.nodes:
        wide, change = before.sums.get(node.key), attempt.changes.get(node.key)
        names = (node.key,) if change is None or not change.sums else change.sums
        after = [attempt.after.sums[name] for name in names if name in attempt.after.sums]
        if wide is None or not after:
            continue
        need, proposal = needs[node.key], None if change is None else change.proposal
        rows.append(NarrowedNode(
            node.key, node.op_type, node.module, need.bits,
            wide.guaranteed_any_order or 0, max(_guaranteed(each, need) for each in after),
            _observed(wide), max(map(_observed, after)),
            "" if change is None else change.measure,
            None if proposal is None else proposal.input_bits,
            _finite_db(proposal),
            len(names), sum(map(_overflows, after)),
        ))  # fmt: skip
    return tuple(rows)


def notes(subject: Subject, attempt: Attempt, score: float, judge: Judgement) -> Iterator[str]:
    """Yields what the rows do not say: nodes that cannot be narrowed, and what that costs."""
    yield from attempt.after.notes
    by_reason: dict[str, list[str]] = {}
    reasons = {**subject.others, **_unfit(attempt.changes), **_too_wide(subject, attempt)}
    for key, reason in reasons.items():
        by_reason.setdefault(reason, []).append(key)
    yield from (f"not narrowed: {', '.join(keys)}: {why}" for why, keys in by_reason.items())
    narrowed, bits = attempt.after.score, attempt.bits
    if not attempt.changes:
        yield f"the model stays as it is: at {bits} bits its sums score better if they saturate"
    elif judge.is_better(attempt.saturated, narrowed):
        yield (
            f"at {bits} bits the model before scores better if its sums saturate "
            f"({attempt.saturated:.4g}), but some inputs overflow: with --guarantee this-data it "
            "would be kept"
        )
    if not judge.allows(narrowed, score):
        yield (
            f"{bits} bits cost more than the budget of {judge.budget:g}: tracer narrow --bits with "
            "more bits, or a larger --budget"
        )


def _finite_db(proposal: Proposal | None) -> float | None:
    """Returns the SQNR of a change; None for a change that loses nothing."""
    if proposal is None or not math.isfinite(proposal.sqnr_db):
        return None
    return proposal.sqnr_db


def _unfit(changes: Mapping[str, Change]) -> dict[str, str]:
    return {key: each.reason for key, each in changes.items() if each.reason}


def _too_wide(subject: Subject, attempt: Attempt) -> dict[str, str]:
    """Returns why nodes whose sums do not fit stay as they are: no measure changes such a node."""
    needs, after = attempt.width.needs(subject.model), attempt.after.sums
    return {
        node.key: f"tracer narrow does not change {node.op_type}, and its sums need more bits"
        for node in subject.model.nodes
        if node.key in needs and node.key in after
        and node.key not in subject.sums and node.key not in subject.others
        and _guaranteed(after[node.key], needs[node.key]) > needs[node.key].bits
    }  # fmt: skip


def _guaranteed(sums: PartialSums, need: Need) -> int:
    """Returns the bits of the registers that are limited; of tiles, in the order of the terms."""
    if need.tile is None:
        return sums.guaranteed_any_order or 0
    return sums.guaranteed_inner or sums.guaranteed_any_order or 0


def _observed(sums: PartialSums) -> int:
    return int(sums.tally.bits_observed.max())


def _overflows(sums: PartialSums) -> int:
    """Returns the outputs with a sum that left the range of a register."""
    return int(sums.tally.overflow(sums.tally.accumulator.bits).overflow_outputs.sum())
