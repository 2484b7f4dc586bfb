"""How often each node runs in one run of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from analyzers.cost.count import UnknownWorkError
from analyzers.cost.operation import Facts, Operation

if TYPE_CHECKING:
    from tracer.model import Model, Node

Trips = tuple[int, str]
"""Executions of a body for one of its owner, and the note that says where that comes from."""


def per_run(
    model: Model, facts: Facts, calls: Mapping[str, float]
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Executions of every node in one run by its key, and what had to be assumed for them.

    `calls` is what a run observed; it goes before what the shapes and constants tell. Bodies of
    bodies multiply.
    """
    repeats: dict[str, float] = {}
    notes: dict[str, None] = {}
    trips: dict[str, Trips] = {}
    for node in model.nodes:
        owner = node.scope.owner
        if node.key in calls:
            repeats[node.key] = calls[node.key]
        elif owner is None:
            repeats[node.key] = 1
        else:
            if owner.key not in trips:
                trips[owner.key] = _trips(owner, facts)
            count, note = trips[owner.key]
            repeats[node.key] = repeats[owner.key] * count
            notes[f"{owner.key} ({owner.op_type}): {note}"] = None
    return repeats, tuple(notes)


def _trips(owner: Node, facts: Facts) -> Trips:
    rule = _BY_OPERATOR.get(owner.op_type) if not owner.domain else None
    if rule is None:
        return 1, "how often it runs its body is not known; the body is counted once"
    try:
        return rule(Operation(owner, facts))
    except (UnknownWorkError, IndexError) as error:
        return 1, f"the trip count is not known ({error}); the body is counted once"


def _if(op: Operation) -> Trips:
    return 1, "one of its branches runs; both are counted"


def _loop(op: Operation) -> Trips:
    if not op.has(0):
        raise UnknownWorkError("it has no maximum")
    maximum = op.constant(0)
    if maximum is None:
        raise UnknownWorkError(f"'{op.node.proto.input[0]}' is computed or fed")
    count = max(0, int(maximum.reshape(-1)[0]))
    return count, f"the body is counted {count} times, the maximum; its condition may end it before"


def _scan(op: Operation) -> Trips:
    scanned = op.integer("num_scan_inputs", 1)
    names = op.node.proto.input
    first = op.input(len(names) - scanned).shape
    if op.opset < 9:  # the batch is the first axis, and the body runs for each of its rows
        return first[0] * first[1], f"the body runs {first[0]} x {first[1]} times (batch, sequence)"
    axes = op.integers("scan_input_axes") or (0,)
    return first[axes[0]], f"the body runs {first[axes[0]]} times, the length of its sequence"


_BY_OPERATOR: dict[str, Callable[[Operation], Trips]] = {"If": _if, "Loop": _loop, "Scan": _scan}
