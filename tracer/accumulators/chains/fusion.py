"""Finds the chains of a plan, and replaces each by one task."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from tracer.accumulators.chains import moves, sums, tables
from tracer.accumulators.chains.moves import fused_move, measured
from tracer.accumulators.chains.sums import fused_sum
from tracer.accumulators.chains.tables import fused_table
from tracer.accumulators.chains.wiring import Wiring, apply
from tracer.accumulators.engine.sum_runner import SumRunner
from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.accumulators.nodes import ComputeSums
from tracer.interpreter.plan import Plan, Task
from tracer.support.types import Array

_FOLDED = 1 << 16
"""Bytes of a constant that is kept for all runs, rather than computed in each."""


def fused(
    plan: Plan,
    scales: TensorScales,
    summings: Mapping[str, ComputeSums | None],
    runner: Callable[[str], SumRunner],
) -> tuple[Sequence[Task], Mapping[str, Array]]:
    """Returns the tasks of a plan with its chains fused, and the constants that they read.

    `summings` are the sums of narrow nodes by key, None for operands that are not bytes; `runner`
    returns the runner of a node during a run.
    """
    tasks = [step.task for step in plan.steps]
    folded = _folded(tasks, plan.weights)
    wiring = Wiring(tasks, plan.outputs, scales, folded, summings)
    replaced: dict[str, Task] = {}
    gone: set[str] = set()
    for task in tasks:
        made = None
        if task.nodes[0].key in gone or task.nodes[0].key in replaced:
            continue
        if task.nodes[0].key in summings:
            made = _sum(task, summings[task.nodes[0].key], runner, wiring)
        elif wiring.is_plain(task, *tables.OF_ONE, *tables.OF_TWO):
            made = fused_table(task, wiring)
        elif wiring.is_plain(task, *moves.OPERATORS):
            made = fused_move(task, wiring)
        elif wiring.is_plain(task, *moves.MEASURES):
            made = measured(task, wiring), ()
        if made is not None:
            chain, followers = made
            last = followers[-1] if followers else task
            replaced[last.nodes[0].key] = chain
            gone.update(each.nodes[0].key for each in (task, *followers[:-1]) if each is not last)
    fused_tasks = [replaced.get(s.nodes[0].key, s) for s in tasks if s.nodes[0].key not in gone]
    return _read([task for task in fused_tasks if task.writes[0] not in folded], plan), folded


def _sum(
    task: Task, summing: ComputeSums | None, runner: Callable[[str], SumRunner], wiring: Wiring
) -> tuple[Task, tuple[Task, ...]] | None:
    key = task.nodes[0].key
    if summing is None or not wiring.is_plain(task, *sums.OPERATORS):
        return None
    return fused_sum(task, summing, lambda: runner(key), wiring)


def _read(tasks: Sequence[Task], plan: Plan) -> list[Task]:
    """The tasks without conversions that nothing reads any more."""
    readers = Counter(name for task in tasks for name in task.captures)
    readers.update(plan.outputs)
    return [
        task
        for task in tasks
        if task.nodes[0].op_type != "DequantizeLinear" or any(readers[name] for name in task.writes)
    ]


def _folded(tasks: Sequence[Task], weights: Mapping[str, Array]) -> dict[str, Array]:
    """Small constants of DequantizeLinear.

    They are computed from the very arrays of a run, so that the tasks themselves keep them too.
    """
    known, folded = dict(weights), {}
    for task in tasks:
        operator = task.nodes[0].op_type
        if operator not in ("Constant", "DequantizeLinear") or task.kernel is None:
            continue
        if any(name and name not in known for name in task.reads):
            continue
        stored = [known.get(name) for name in task.reads]
        if sum(value.nbytes for value in stored[:1] if value is not None) <= _FOLDED:
            known[task.writes[0]] = apply(task, stored)
            if operator == "DequantizeLinear":
                folded[task.writes[0]] = known[task.writes[0]]
    return folded
