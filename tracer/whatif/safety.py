"""Widths at which nothing overflows: on any data, and on the data at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tracer.records.whatif import Widths
from tracer.whatif.evaluation import Baseline
from tracer.whatif.evaluation_cache import Ledger


@dataclass(frozen=True, slots=True)
class Safe:
    """What the free nodes need, with the others pinned.

    `guaranteed` bits are enough for any input, `uniform` bits on this data, where `limiting` is the
    node that needs them; at `widths`, one for each node, no free node overflows either.
    """

    guaranteed: int
    uniform: int
    limiting: str
    widths: Widths


def safe(ledger: Ledger, baseline: Baseline, floor: int, pinned: Mapping[str, int]) -> Safe:
    """Look for the least widths, from `floor` on.

    Wide accumulators show them, unless a pinned node overflows: what comes after it then gets
    other numbers, and only evaluations can tell.
    """
    known = baseline.accumulations  # nodes that have run
    seen = {key: int(found.tally.bits_observed.max()) for key, found in known.items()}
    free = [key for key in known if key not in pinned]
    guaranteed = max(known[key].guaranteed for key in free)
    if all(seen.get(key, floor) <= bits for key, bits in pinned.items()):
        limiting = max(free, key=lambda key: seen[key])
        needs = {key: max(bits, floor) for key, bits in seen.items()} | dict(pinned)
        widths = tuple(needs.get(key, floor) for key in ledger.nodes)
        return Safe(guaranteed, max(seen[limiting], floor), limiting, widths)
    widest = min(guaranteed, known[free[0]].accumulator.widest)
    uniform, limiting = _tried(ledger, free, floor, widest)
    return Safe(guaranteed, uniform, limiting, ledger.widths(uniform))


def _tried(ledger: Ledger, free: list[str], low: int, high: int) -> tuple[int, str]:
    """The least uniform width without overflow, by bisection, and the node that forbids one less.

    Where no free node overflows they all have the numbers of wide accumulators, so every wider
    one is safe as well.
    """
    limiting = free[0]
    ledger.begin("A, with nodes pinned")
    while low < high:
        middle = (low + high) // 2
        found = ledger.uniform(middle).overflows
        worst = max(free, key=lambda key: found[key].overflow_outputs)
        if found[worst].overflow_outputs:
            low, limiting = middle + 1, worst
        else:
            high = middle
    return high, limiting
