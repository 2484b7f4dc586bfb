"""The order of additions of a sum: how it is found by probes, kept, and told.

A sum of n terms is a binary tree. Probes find it (FPRev, arXiv 2411.00442): all terms are 1 but
two, which are ±2^100. A term that is added to one of these is swallowed; once they have met, and
cancelled, the others count. So the sum tells how many terms the smallest subtree of the two has.

A tree is kept as the program of a stack machine, one step for each term and each join of
registers: `4 * term + BEGIN` pushes a register that holds the term, `+ ADD` adds the term to the
last register, and JOIN pops the last register and adds it to the one before; SCALE adds it times a
factor, in one rounding.
"""

from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np

from tracer.arithmetic.rule import NotKnown

BEGIN, ADD, JOIN, SCALE = range(4)
MASK = np.float32(2.0**100)
Program = list[int]
Sum = Callable[[np.ndarray], float]
"""Returns the sum of terms (n), float32, as the machine adds them."""


def find_program(add: Sum, terms: int, seed: int = 0) -> Program:
    """Returns the order in which `add` adds terms, as a program.

    Raises NotKnown for sums that no order of binary additions explains. A random pivot needs about
    2 n probes of a sequential order, and n log n of a balanced one.
    """
    random = np.random.default_rng(seed)

    def size(first: int, second: int) -> int:
        """Returns how many terms the smallest subtree of two terms has."""
        values = np.ones(terms, np.float32)
        values[first], values[second] = MASK, -MASK
        found = terms - float(add(values))
        if not (found.is_integer() and 2 <= found <= terms):
            raise NotKnown(f"terms {first} and {second} of {terms} do not cancel as in a tree")
        return int(found)

    def build(members: list[int]) -> Program:
        pivot = members[random.integers(len(members))]
        sizes: dict[int, list[int]] = {}
        for other in members:
            if other != pivot:
                sizes.setdefault(size(pivot, other), []).append(other)
        program, held = [4 * pivot + BEGIN], 1
        for found in sorted(sizes):
            part = sizes[found]
            held += len(part)
            if held != found:
                raise NotKnown("the terms do not form a tree of binary additions")
            program = join(program, build(part))
        return program

    return build(list(range(terms)))


def registers(program: Sequence[int] | np.ndarray) -> int:
    """Returns how many registers a program holds at once."""
    steps = np.asarray(program) % 4
    return int(np.cumsum(np.where(steps < JOIN, 1 - steps, -1)).max())  # ADD is 1


def with_terms(program: Program, terms: Sequence[int] | np.ndarray) -> Program:
    """Returns a program whose term k is replaced by `terms[k]`."""
    return [4 * int(terms[step // 4]) + step % 4 if step % 4 < JOIN else step for step in program]


PLACES = "first", "last", "as the register's start"
"""Where a sum may have a further term, as a bias."""


def with_term(program: Program, term: int, place: str) -> Program:
    """Returns a program with a further term at one of `PLACES`."""
    if place == "last":
        return [*program, 4 * term + ADD]
    if place == "first":  # the first register, or block, is added to the term
        end = [*(at for at, step in enumerate(program) if step % 4 == BEGIN), len(program)][1]
        return [4 * term + BEGIN, *program[:end], JOIN, *program[end:]]
    return [4 * term + BEGIN, program[0] - BEGIN + ADD, *program[1:]]


def describe(program: Program) -> str:
    """Returns the order in words: the runs of terms that are added one after the other."""
    runs, joins = [], 0
    for step in program:
        term, kind = divmod(step, 4)
        if kind == BEGIN:
            runs.append([term])
        elif kind == ADD:
            runs[-1].append(term)
        else:
            joins += 1
    if len(runs) == 1:
        told = ", ".join(map(str, runs[0][:8])) + (" …" if len(runs[0]) > 8 else "")
        return "one after the other" if _is_even(runs[0]) == 1 else f"in the order {told}"
    strides = {_is_even(run) for run in runs if len(run) > 1}
    lengths = [
        f"{sum(1 for _ in same)} of {length}"
        for length, same in groupby(sorted(map(len, runs), reverse=True))
    ]
    if strides == {1}:
        return f"in blocks, each one after the other ({', '.join(lengths)}), then the blocks"
    if len(strides) == 1 and 0 not in strides:
        return f"in lanes, each of every {strides.pop()}th term ({', '.join(lengths)})"
    return f"in {len(runs)} registers ({', '.join(lengths)}), which are joined"


def join(left: Program, right: Program) -> Program:
    """Returns the program of the sum of two: a single term is added, a longer sum is joined."""
    if len(left) == 1 == len(right):
        left, right = sorted((left, right))
    if len(right) == 1:
        return [*left, right[0] - BEGIN + ADD]
    if len(left) == 1:
        return [*right, left[0] - BEGIN + ADD]
    first, second = sorted((left, right), key=lambda program: program[0])
    return [*first, *second, JOIN]


def _is_even(run: Sequence[int]) -> int:
    """Returns the distance of each term to the next; 0 if it varies."""
    gaps = set(np.diff(run).tolist())
    return gaps.pop() if len(gaps) == 1 else 0
