"""Count how often each node runs in one run of the model."""

from collections.abc import Callable, Mapping, Sequence

from tracer.analyzers.cost.count import UnknownWorkError
from tracer.analyzers.cost.operation import Facts, Operation
from tracer.graph.model import Model, Node, Scope

Trips = tuple[int, str]
"""Executions of a body for each execution of its owner, and a note where they are assumed."""


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
    owners: dict[str, dict[str, None]] = {}
    for node in model.nodes:
        body = node.scope.path
        if body not in bodies:
            assert node.scope.owner is not None
            bodies[body], note = _executions(node.scope, facts, repeats, observed)
            if note and repeats[node.scope.owner.key]:
                of_note = owners.setdefault(f"({node.scope.owner.op_type}): {note}", {})
                of_note[node.scope.owner.key] = None
        repeats[node.key] = calls.get(node.key, bodies[body])
    return repeats, tuple(f"{brief_list(tuple(keys))} {note}" for note, keys in owners.items())


def brief_list(keys: Sequence[str]) -> str:
    """Returns the first node, and how many more there are."""
    return f"{keys[0]} and {len(keys) - 1:,} more" if len(keys) > 1 else keys[0]


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
    count, note = _trips(scope, owner, facts)
    return repeats[owner.key] * count, note


def _trips(scope: Scope, owner: Node, facts: Facts) -> Trips:
    rule = _BY_OPERATOR.get(owner.op_type) if not owner.domain else None
    if rule is None:
        return 1, "how often it runs its body is unknown; the body is counted once"
    try:
        return rule(Operation(owner, facts), scope)
    except (UnknownWorkError, IndexError, ValueError) as error:
        return 1, f"the trip count is unknown ({error}); the body is counted once"


def _if(op: Operation, branch: Scope) -> Trips:
    condition = op.constant(0)
    if condition is None:
        return 1, "one of its branches runs; both are counted"
    taken = "then_branch" if condition.all() else "else_branch"
    return int(branch.path == f"{op.node.key}.{taken}"), ""


def _loop(op: Operation, body: Scope) -> Trips:
    """The maximum, unless the condition is false before; it is certain if it is always true."""
    begins, goes_on = op.constant(1), op.facts.value(body.graph.output[0].name, body)
    if begins is not None and not begins.all():
        return 0, ""
    if not op.has(0):
        raise UnknownWorkError("it has no maximum")
    maximum = op.constant(0)
    if maximum is None:
        raise UnknownWorkError(f"'{op.node.inputs[0]}' is computed or fed")
    count = max(0, int(maximum.reshape(-1)[0]))
    if (begins is not None or not op.has(1)) and goes_on is not None and goes_on.all():
        return count, ""
    return count, f"the body is counted {count} times, the maximum; its condition may end it before"


def _scan(op: Operation, body: Scope) -> Trips:
    scanned = op.integer("num_scan_inputs", 1)
    names = op.node.inputs
    first = op.input(len(names) - scanned).shape
    if op.opset < 9:  # the batch is the first axis, and the body runs for each of its rows
        return first[0] * first[1], ""
    axes = op.integers("scan_input_axes") or (0,)
    return first[axes[0]], ""


_BY_OPERATOR: dict[str, Callable[[Operation, Scope], Trips]] = {
    "If": _if, "Loop": _loop, "Scan": _scan,
}  # fmt: skip
