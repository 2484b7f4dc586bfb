"""Paths of widths that take less and less energy: by equal overflows, and bit by bit."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from tracer.records.whatif import Widths

Energy = Callable[[Widths], float]
"""The energy of one sample at these widths."""
OverflowShare = Callable[[int, int], float]
"""The share of the sums of a node that overflow in so many bits, with all other nodes wide."""
Allowed = Callable[[Widths, Widths | None], bool]
"""Whether the first widths are within the budget; the next questions are about the second ones."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Says what is allowed, and is told beforehand what may be asked next, the likeliest first."""

    allowed: Allowed
    expect: Callable[[Iterable[Widths]], None]


@dataclass(frozen=True, slots=True)
class Descents:
    """Makes paths that change the `free` nodes, by index, and go no lower than `floor` bits."""

    free: Sequence[int]
    floor: int
    energy: Energy

    def equal_shares(self, safe: Widths, share: OverflowShare) -> list[Widths]:
        """Returns `safe` and ever narrower widths, each with at most one share for all nodes.

        Each node has the narrowest width at which no larger share of its sums overflows, unless
        its energy does not depend on the width.
        """
        shares = {
            node: {bits: share(node, bits) for bits in range(safe[node], self.floor - 1, -1)}
            for node in self.free
            if self.energy(changed(safe, node, self.floor)) < self.energy(safe)
        }
        path = [safe]
        for most in sorted({each for by_width in shares.values() for each in by_width.values()}):
            narrowest = list(path[-1])
            for node, by_width in shares.items():
                few = (bits for bits, each in by_width.items() if each <= most)
                narrowest[node] = min(few, default=safe[node])
            if tuple(narrowest) != path[-1]:
                path.append(tuple(narrowest))
        return path

    def descent(self, start: Widths, asked: Asked) -> list[Widths]:
        """Returns the path of a greedy descent: each step removes one bit of one node.

        Goes through the nodes, the most expensive first, and removes bits while that is allowed;
        repeats until no node can lose another bit. The last round asks once for each node.
        """
        path, before = [start], 0
        while len(path) > before:
            before = len(path)
            nodes = self._dearest_first(path[-1])
            for index, node in enumerate(nodes):
                path += self._narrowed(path[-1], node, nodes[index + 1 :], asked)
        return path

    def _dearest_first(self, widths: Widths) -> list[int]:
        """Free nodes by the energy that one bit less saves, largest first."""
        before = self.energy(widths)
        saved = {
            node: before - self.energy(changed(widths, node, max(widths[node] - 1, self.floor)))
            for node in self.free
        }
        return sorted(saved, key=lambda node: (-saved[node], node))

    def _narrowed(
        self, widths: Widths, node: int, later: Sequence[int], asked: Asked
    ) -> list[Widths]:
        """The steps that remove bits of one node while allowed; the last reduces the energy."""
        path = [widths]
        while self._may_lose(path[-1], node):
            less = changed(path[-1], node, path[-1][node] - 1)
            further = self._firsts(less, [node, *later])
            asked.expect(chain([less], islice(further, 1), self._firsts(path[-1], later)))
            if not asked.allowed(less, path[-1]):
                break
            path.append(less)
        while len(path) > 1 and self.energy(path[-1]) >= self.energy(path[-2]):
            path.pop()
        return path[1:]

    def _may_lose(self, widths: Widths, node: int) -> bool:
        """Whether a bit less of a node may reduce the energy."""
        cheapest = self.energy(changed(widths, node, self.floor))
        return widths[node] > self.floor and cheapest < self.energy(widths)

    def _firsts(self, widths: Widths, nodes: Sequence[int]) -> Iterator[Widths]:
        """The widths with one bit less of each of these nodes that may lose one."""
        return (changed(widths, n, widths[n] - 1) for n in nodes if self._may_lose(widths, n))


def furthest(path: Sequence[Widths], asked: Asked) -> int:
    """Returns the number of the last allowed step of a path, by bisection; at least the first."""
    reached, refused = 0, len(path)
    while refused - reached > 1:
        step = _middle(path, reached, refused)
        ends = {_middle(path, *each) for each in ((step, refused), (reached, step))}
        asked.expect([path[step], *(path[end] for end in sorted(ends - {reached, step}))])
        if asked.allowed(path[step], None):
            reached = step
        else:
            refused = step
    return reached


def _middle(path: Sequence[Widths], reached: int, refused: int) -> int:
    """The step to ask for next: the last one first."""
    return refused - 1 if refused == len(path) else (reached + refused) // 2


def changed(widths: Widths, node: int, bits: int) -> Widths:
    """Returns the widths with other `bits` for one node."""
    return (*widths[:node], bits, *widths[node + 1 :])
