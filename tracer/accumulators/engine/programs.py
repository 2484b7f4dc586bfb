"""Orders as programs for the kernels: the stages of a sum, depth first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tracer.accumulators.spec.orders import Order, Stage, Terms
from tracer.support.types import Array


@dataclass(frozen=True, slots=True)
class Program:
    """Terms in the order they are taken, and what is done with them.

    `sequence`, int64, are positions among the products. `steps`, int64: n > 0 adds the next n
    terms to register 0; -s adds register s - 1 to register s and clears it. `bits` has for each
    register the width that is its own, or None. A position of -1 is a term of 0.
    """

    sequence: Array
    steps: Array
    bits: tuple[int | None, ...]

    @property
    def sequential(self) -> bool:
        """Whether there is one register, and it is the accumulator."""
        return self.bits == (None,)


@lru_cache(maxsize=64)
def program(order: Order, terms: Terms) -> Program | None:
    """What the stages of `order` come to; None if not each product and sum is added once."""
    stages = order.stages(terms)
    if not _is_tree(terms.count, stages):
        return None
    sequence: list[int] = []
    steps: list[int] = []

    def add_up(level: int, group: int) -> None:
        for place in stages[level].groups[group].tolist():
            if place < 0:
                continue
            if level:
                add_up(level - 1, place)
                steps.append(-level)
            else:
                sequence.append(place)
                if steps and steps[-1] > 0:
                    steps[-1] += 1
                else:
                    steps.append(1)

    add_up(len(stages) - 1, 0)
    return Program(
        np.array(sequence, np.int64), np.array(steps, np.int64), tuple(s.bits for s in stages)
    )


@lru_cache(maxsize=64)
def evened(order: Order, terms: Terms) -> Program | None:
    """The same sums where terms are taken two by two: a term of 0 more after an odd number."""
    plain = program(order, terms)
    if plain is None:
        return None
    sequence, steps, k = [], plain.steps.copy(), 0
    for number, step in enumerate(plain.steps.tolist()):
        if step > 0:
            sequence += plain.sequence[k : k + step].tolist() + [-1] * (step % 2)
            steps[number] += step % 2
            k += step
    return Program(np.array(sequence, np.int64), steps, plain.bits)


def _is_tree(count: int, stages: tuple[Stage, ...]) -> bool:
    """Whether every product, and every sum but the last, goes into one sum."""
    for stage in stages:
        places = stage.groups[stage.groups >= 0]
        if not np.array_equal(np.sort(places), np.arange(count)):
            return False
        count = len(stage.groups)
    return count == 1
