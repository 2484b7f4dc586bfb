"""The order of additions of a sum: how it is found by probes, kept, drawn, and an order again.

A sum of n terms is a binary tree. Probes find it (FPRev, arXiv 2411.00442): all terms are 1 but
two, which are ±2^100. A term that is added to one of these is swallowed; once they have met, and
cancelled, the others count. So the sum tells how many terms the smallest subtree of the two has.

A tree is kept as the program of a stack machine, one step for each term and each join of
registers: `4 * term + BEGIN` pushes a register that holds the term, `+ ADD` adds the term to the
last register, and JOIN pops the last register and adds it to the one before; SCALE adds it times a
factor, in one rounding.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from tracer.accumulators.spec import Bias, orders
from tracer.accumulators.spec.nests import positionwise
from tracer.arithmetic.kernel import NotKnown

BEGIN, ADD, JOIN, SCALE = range(4)
MASK = np.float32(2.0**100)
Program = list[int]
Sum = Callable[[np.ndarray], float]
"""Returns the sum of terms (n), float32, as the machine adds them."""
_DRAWN = 32
"""Terms of the largest sum that is drawn."""
Branch = list[Any]
"""What a register adds, in its order: numbers of terms, and further branches."""


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


def tree_of(order: orders.Order, terms: orders.Terms, bias: Bias | None = None) -> Branch:
    """Returns the tree of an order; the term after the last one is a bias, if it has a place."""
    sums: list[Any] = list(range(terms.count))
    stages = order.stages(terms)
    for number, stage in enumerate(stages):
        joined = [[sums[k] for k in row if k >= 0] for row in stage.groups.tolist()]
        if bias == "first" and number == len(stages) - 1:
            joined[0].insert(0, terms.count)
        sums = [each[0] if number and len(each) == 1 else each for each in joined]
    whole = [sums[0], terms.count] if bias == "last" else sums[0]
    return canonical(whole, terms.count, terms.count)


def canonical(branch: Branch, count: int, bias: int | None = None) -> Branch:
    """Returns a tree of the first `count` terms, and of the `bias`, which becomes the next term.

    Others are a residual, and channels that fill up a block. A sum that begins with a sum is one,
    and a bias that a sum is added to is added to this sum.
    """
    parts: Branch = []
    for each in branch:
        if isinstance(each, list):
            parts += [part] if (part := canonical(each, count, bias)) else []
        elif each < count or each == bias:
            parts.append(min(each, count))
    if len(parts) > 1 and parts[0] == count and isinstance(parts[1], list):
        parts = [*parts[1:2], count, *parts[2:]]
    while parts and isinstance(parts[0], list):
        parts = [*parts[0], *parts[1:]]
    return parts


def order_of_tree(branches: Branch, terms: orders.Terms) -> orders.Order | None:
    """Returns an order that adds terms as a tree does, which may have others; None without one."""
    tree = canonical(branches, terms.count)
    return next((each for each in _likely(tree, terms) if tree_of(each, terms) == tree), None)


def _likely(tree: Branch, terms: orders.Terms) -> Iterator[orders.Order]:
    """Yields orders that may have a tree."""
    yield from _of_levels(tree, terms.count)
    if terms.window > 1 and terms.channels > 1:
        block = 1
        while block < len(tree) and tree[block] == tree[block - 1] + terms.window:
            block += 1
        blocks = 0 if block >= terms.channels else block
        (order,) = positionwise(orders.Sequential(), blocks).stages(terms)[0].groups
        for inner in _of_levels(_renumbered(tree, np.argsort(order).tolist()), terms.count):
            yield positionwise(inner, blocks)


def _of_levels(tree: Branch, count: int) -> Iterator[orders.Order]:
    """Yields orders that may have a tree: what is added to the sum of term 0 tells its levels."""
    yield orders.Sequential()
    levels: list[orders.Level] = []
    sums, at, size = np.arange(count), 1, 1  # the sum that a term is in
    while at < len(tree):
        sizes = [len(terms_of(part)) for part in tree[at:]]
        alike = next((n for n, each in enumerate(sizes) if each > size), len(sizes))
        stride, many = int(sums[terms_of(tree[at])[0]]), int(sums.max()) + 1
        if not (alike and stride):
            break
        reaches = (alike + 1) * stride >= many
        levels.append(orders.Level(None if reaches else alike + 1, stride=stride))
        places = np.empty(many, np.intp)
        for number, group in enumerate(levels[-1].groups(many)):
            places[group[group >= 0]] = number
        sums = places[sums]
        at, size = at + alike, size + sum(sizes[:alike])
    if levels and levels[-1] == orders.Level(None):
        levels.pop()  # which is the last sum of any order
    match levels:
        case [orders.Level(None, None, stride)]:
            yield orders.Lanes(stride)
        case [orders.Level(int(size), None, 1)]:
            yield orders.Chunked(size)
        case _:
            yield orders.Tree()
            if levels:
                yield orders.Tiles(tuple(levels))


def terms_of(part: Any) -> list[int]:
    """Returns the terms of a tree, or the one term."""
    return [part] if isinstance(part, int) else [leaf for each in part for leaf in terms_of(each)]


def _renumbered(part: Any, numbers: list[int]) -> Any:
    """Returns a tree whose term k becomes `numbers[k]`."""
    if isinstance(part, int):
        return numbers[part]
    return [_renumbered(each, numbers) for each in part]


def branches_of(order: orders.Order, terms: orders.Terms) -> Branch:
    """Returns the tree of an order of terms."""
    sums: list[Any] = list(range(terms.count))
    for stage in order.stages(terms):
        joined = [[sums[k] for k in row if k >= 0] for row in stage.groups.tolist()]
        sums = [each[0] if len(each) == 1 else each for each in joined]
    return sums[0] if isinstance(sums[0], list) else sums


def tree_of_program(program: Program) -> Branch:
    """Returns the tree of a program: all terms and registers that its last register adds."""
    return canonical(branches_of_program(program), 1 + max(program) // 4)


def branches_of_program(program: Program) -> Branch:
    """Returns the tree of a program of `trees`."""
    held: list[Branch] = []
    for step in program:
        term, kind = divmod(step, 4)
        if kind == BEGIN:
            held.append([term])
        elif kind == ADD:
            held[-1].append(term)
        else:
            last = held.pop()
            held[-1] = [held[-1], last]
    return held[0]


def drawn(branch: Branch, count: int) -> str:
    """Returns a tree as text; nothing for one of more than 32 terms."""
    return "\n".join(_lines(branch)) if count <= _DRAWN else ""


def _lines(branch: Branch) -> Iterator[str]:
    runs: list[Any] = []
    for is_branch, group in groupby(branch, lambda each: isinstance(each, list)):
        same = list(group)
        runs += same if is_branch else [" + ".join(map(str, same))]
    if len(runs) == 1:
        yield str(runs[0])
        return
    yield "+"
    for index, run in enumerate(runs):
        is_last = index == len(runs) - 1
        lines: Sequence[str] = list(_lines(run)) if isinstance(run, list) else [run]
        yield f"{'└─' if is_last else '├─'} {lines[0]}"
        yield from (f"{'  ' if is_last else '│ '} {line}" for line in lines[1:])


def is_divided(tree: Branch, other: Branch) -> bool:
    """Returns whether each register of `other` has a part of one of `tree`, in the same order."""
    return all(
        len({number for number, _ in found}) == 1 and found == sorted(found)
        for found in _places(tree, other)
    )


def is_in_lanes(tree: Branch, other: Branch) -> bool:
    """Returns whether the registers of `other` take every so many terms of one of `tree`."""
    steps = {
        place - before
        for found in _places(tree, other)
        for (_, before), (_, place) in pairwise(found)
    }
    return is_divided(tree, other) and len(steps) == 1 and steps.pop() > 1


def _places(tree: Branch, other: Branch) -> Iterator[list[tuple[int, int]]]:
    """Yields where `tree` has the terms of each register of `other`: register, then place in it."""
    places: dict[int, tuple[int, int]] = {}
    for number, register in enumerate(_registers(tree)):
        places |= {term: (number, place) for place, term in enumerate(register)}
    for register in _registers(other):
        yield [places.get(term, (-1, 0)) for term in register]


def _registers(tree: Branch) -> Iterator[list[int]]:
    """Yields the terms of each register, without those that are joined to it."""
    yield [each for each in tree if not isinstance(each, list)]
    for each in tree:
        if isinstance(each, list):
            yield from _registers(each)


def without_term(tree: Branch, term: int) -> Branch:
    """Returns a tree without a term; a register of one term is that term."""
    kept = []
    for each in tree:
        part = without_term(each, term) if isinstance(each, list) else each
        if part not in (term, []):
            kept.append(part[0] if isinstance(part, list) and len(part) == 1 else part)
    return kept
