"""Count how often each node runs in one run of the model."""

from collections.abc import Callable, Mapping

from analyzers.cost.count import UnknownWorkError
from analyzers.cost.operation import Facts, Operation
from tracer.graph.model import Model, Node, Scope

Trips = tuple[int, str]
"""Executions of a body for each execution of its owner, and a note on their origin."""


def per_run(
    model: Model, facts: Facts, calls: Mapping[str, float]
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Returns the executions of each node in one run, by key, and the assumptions behind them.

    `calls` are observed executions and take precedence over shapes and constants. A node that is
    not in `calls` runs as often as the other nodes of its body; the main graph runs once. Nested
    bodies multiply.
    """
    observed = _observed(model, calls)
    repeats: dict[str, float] = {}
    bodies: dict[str, float] = {"": 1}
    notes: dict[str, None] = {}
    for node in model.nodes:
        body = node.scope.path
        if body not in bodies:
            assert node.scope.owner is not None
            bodies[body], note = _executions(node.scope, facts, repeats, observed)
            if note:
                notes[f"{node.scope.owner.key} ({node.scope.owner.op_type}): {note}"] = None
        repeats[node.key] = calls.get(node.key, bodies[body])
    return repeats, tuple(notes)


def _observed(model: Model, calls: Mapping[str, float]) -> dict[str, float]:
    """Returns the executions of each body with an observed node, by its path."""
    executions: dict[str, float] = {}
    for node in model.nodes:
        if node.key in calls and node.scope.owner is not None:
            path = node.scope.path
            executions[path] = max(executions.get(path, 0), calls[node.key])
    return executions


def _executions(
    scope: Scope, facts: Facts, repeats: Mapping[str, float], observed: Mapping[str, float]
) -> tuple[float, str]:
    """Returns the executions of a body in one run, with a note if they are not observed."""
    owner = scope.owner
    assert owner is not None
    if scope.path in observed:
        return observed[scope.path], ""
    if owner.op_type == "If":  # the other branch took the remaining executions
        branches = (f"{owner.key}.{name}" for name in ("then_branch", "else_branch"))
        taken = [observed[path] for path in branches if path in observed]
        if taken:
            return max(0, repeats[owner.key] - sum(taken)), ""
    count, note = _trips(owner, facts)
    return repeats[owner.key] * count, note


def _trips(owner: Node, facts: Facts) -> Trips:
    rule = _BY_OPERATOR.get(owner.op_type) if not owner.domain else None
    if rule is None:
        return 1, "how often it runs its body is unknown; the body is counted once"
    try:
        return rule(Operation(owner, facts))
    except (UnknownWorkError, IndexError, ValueError) as error:
        return 1, f"the trip count is unknown ({error}); the body is counted once"


def _if(op: Operation) -> Trips:
    return 1, "one of its branches runs; both are counted"


def _loop(op: Operation) -> Trips:
    if not op.has(0):
        raise UnknownWorkError("it has no maximum")
    maximum = op.constant(0)
    if maximum is None:
        raise UnknownWorkError(f"'{op.node.inputs[0]}' is computed or fed")
    count = max(0, int(maximum.reshape(-1)[0]))
    return count, f"the body is counted {count} times, the maximum; its condition may end it before"


def _scan(op: Operation) -> Trips:
    scanned = op.integer("num_scan_inputs", 1)
    names = op.node.inputs
    first = op.input(len(names) - scanned).shape
    if op.opset < 9:  # the batch is the first axis, and the body runs for each of its rows
        return first[0] * first[1], f"the body runs {first[0]} x {first[1]} times (batch, sequence)"
    axes = op.integers("scan_input_axes") or (0,)
    return first[axes[0]], f"the body runs {first[axes[0]]} times, the length of its sequence"


_BY_OPERATOR: dict[str, Callable[[Operation], Trips]] = {"If": _if, "Loop": _loop, "Scan": _scan}
