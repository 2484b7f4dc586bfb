"""The narrowest widths without overflow: for any input, and on the data at hand."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.records.whatif import Widths
from tracer.whatif.evaluation import Baseline
from tracer.whatif.evaluation_cache import EvaluationCache


@dataclass(frozen=True, slots=True)
class SafeWidths:
    """The widths that the free nodes need, with the others pinned.

    `guaranteed` bits suffice for any input. `uniform` bits suffice on this data, where `limiting`
    is the node that needs them. `widths` has a sufficient width for each node.
    """

    guaranteed: int
    uniform: int
    limiting: str
    widths: Widths


def safe_widths(cache: EvaluationCache, baseline: Baseline, floor: int) -> SafeWidths:
    """Returns the narrowest widths without overflow, at least `floor`.

    The baseline shows these widths, unless a pinned node overflows. The nodes after that node then
    get other numbers, and only evaluations show their overflows.
    """
    sums, pinned = baseline.accumulations, cache.pinned
    observed = {key: int(each.tally.bits_observed.max()) for key, each in sums.items()}
    free = [key for key in sums if key not in pinned]
    guaranteed = max(sums[key].guaranteed for key in free)
    if all(observed.get(key, floor) <= bits for key, bits in pinned.items()):
        limiting = max(free, key=lambda key: observed[key])
        needed = {key: max(bits, floor) for key, bits in observed.items()} | dict(pinned)
        widths = tuple(needed.get(key, floor) for key in cache.nodes)
        return SafeWidths(guaranteed, max(observed[limiting], floor), limiting, widths)
    widest = min(guaranteed, sums[free[0]].accumulator.widest)
    uniform, limiting = _bisected(cache, free, floor, widest)
    return SafeWidths(guaranteed, uniform, limiting, cache.uniform_widths(uniform))


def _bisected(cache: EvaluationCache, free: list[str], low: int, high: int) -> tuple[int, str]:
    """The narrowest uniform width without overflow, and the node that overflows with one bit less.

    Bisection is valid: without overflow the free nodes compute the same numbers at every wider
    width.
    """
    limiting = free[0]
    cache.begin("A, with nodes pinned")
    while low < high:
        middle = (low + high) // 2
        overflows = cache.uniform(middle).overflows
        worst = max(free, key=lambda key: overflows[key].overflow_outputs)
        if overflows[worst].overflow_outputs:
            low, limiting = middle + 1, worst
        else:
            high = middle
    return high, limiting
