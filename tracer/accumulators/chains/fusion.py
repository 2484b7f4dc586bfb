"""Finds the chains of a plan, and replaces each by one step."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from tracer.accumulators.chains import moves, sums, tables
from tracer.accumulators.chains.moves import fused_move
from tracer.accumulators.chains.sums import fused_sum
from tracer.accumulators.chains.tables import fused_table
from tracer.accumulators.chains.wiring import Wiring, apply
from tracer.accumulators.engine.sum_runner import SumRunner
from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.accumulators.nodes import ComputeSums
from tracer.interpreter.plan import Plan, PlanStep
from tracer.support.types import Array

_FOLDED = 1 << 16
"""Bytes of a constant that is kept for all runs, rather than computed in each."""


def fused(
    plan: Plan,
    scales: TensorScales,
    summings: Mapping[str, ComputeSums | None],
    runner: Callable[[str], SumRunner],
) -> tuple[Sequence[PlanStep], Mapping[str, Array]]:
    """Returns the steps of a plan with its chains fused, and the constants that they read.

    `summings` are the sums of narrow nodes by key, None for operands that are not bytes; `runner`
    returns the runner of a node during a run.
    """
    folded = _folded(plan.steps, scales)
    wiring = Wiring(plan, scales, folded)
    replaced: dict[str, PlanStep] = {}
    gone: set[str] = set()
    for step in plan.steps:
        made = None
        if step.node.key in summings:
            made = _sum(step, summings[step.node.key], runner, wiring)
        elif wiring.is_plain(step, *tables.OF_ONE, *tables.OF_TWO):
            made = fused_table(step, wiring)
        elif wiring.is_plain(step, *moves.OPERATORS):
            made = fused_move(step, wiring)
        if made is not None:
            chain, followers = made
            last = followers[-1] if followers else step
            replaced[last.node.key] = chain
            gone.update(each.node.key for each in (step, *followers[:-1]) if each is not last)
    steps = [replaced.get(s.node.key, s) for s in plan.steps if s.node.key not in gone]
    return _read([step for step in steps if step.writes[0] not in folded], plan), folded


def _sum(
    step: PlanStep, summing: ComputeSums | None, runner: Callable[[str], SumRunner], wiring: Wiring
) -> tuple[PlanStep, tuple[PlanStep, ...]] | None:
    key = step.node.key
    if summing is None or not wiring.is_plain(step, *sums.OPERATORS):
        return None
    return fused_sum(step, summing, lambda: runner(key), wiring)


def _read(steps: Sequence[PlanStep], plan: Plan) -> list[PlanStep]:
    """The steps without conversions that nothing reads any more."""
    readers = Counter(name for step in steps for name in step.captures)
    readers.update(plan.outputs)
    return [
        step
        for step in steps
        if step.node.op_type != "DequantizeLinear" or any(readers[name] for name in step.writes)
    ]


def _folded(steps: Sequence[PlanStep], scales: TensorScales) -> dict[str, Array]:
    """Small constants of DequantizeLinear."""
    constants = {}
    for step in steps:
        if step.node.op_type == "DequantizeLinear" and step.kernel is not None:
            stored = [scales.value(n, step.node.scope) if n else None for n in step.reads]
            if stored[0] is not None and stored[0].nbytes <= _FOLDED:
                constants[step.writes[0]] = apply(step, stored)
    return constants
