"""Searches the narrowest widths: without overflow (A), within the budget (B), for each node (C).

A and B use one width for all nodes. Evaluations are exact and in a fixed order, so a search returns
the same widths in every run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tracer.records.whatif import FrontPoint, WidthChoice, Widths
from tracer.whatif.evaluation import Baseline
from tracer.whatif.evaluation_cache import EvaluationCache

Energy = Callable[[Widths], float]
"""The energy of one sample at these widths."""
OverflowShare = Callable[[str, int], float]
"""The share of the sums of a node that overflow in so many bits, with all other nodes wide."""


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
    guaranteed = max(bits for key in free if (bits := sums[key].guaranteed) is not None)
    if all(observed.get(key, floor) <= bits for key, bits in pinned.items()):
        limiting = max(free, key=lambda key: observed[key])
        needed = {key: max(bits, floor) for key, bits in observed.items()} | dict(pinned)
        widths = tuple(needed.get(key, floor) for key in cache.nodes)
        return SafeWidths(guaranteed, max(observed[limiting], floor), limiting, widths)
    widest = min(guaranteed, sums[free[0]].tally.accumulator.widest)
    uniform, limiting = _bisected(cache, free, floor, widest)
    return SafeWidths(guaranteed, uniform, limiting, cache.uniform_widths(uniform))


@dataclass(frozen=True, slots=True)
class WidthSearch:
    """Searches widths of little energy whose score is `allowed`; tries no width below `floor`.

    `share` names the node of a choice that overflows most with one bit less. `explain` evaluates
    each node to name the one that limits a uniform width.
    """

    cache: EvaluationCache
    energy: Energy
    allowed: Callable[[float], bool]
    floor: int
    share: OverflowShare
    explain: bool

    def narrowest_uniform(self, start: int) -> WidthChoice | None:
        """Returns the least width such that it and all widths up to `start` are allowed.

        Returns None if `start` is not allowed. The score need not fall with the width; a width
        below one that fails is never chosen.
        """
        bits = start
        self.cache.begin("B, one width")
        if not self._is_allowed(self.cache.uniform_widths(bits)):
            return None
        while bits > self.floor and self._is_allowed(
            self.cache.uniform_widths(bits - 1), near=self.cache.uniform_widths(bits)
        ):
            bits -= 1
        widths = self.cache.uniform_widths(bits)
        return self._choice(widths, self._worst_alone(widths) if self.explain else None)

    def narrowest_each(self, starts: Sequence[Widths]) -> WidthChoice:
        """Returns the widths of least energy at the ends of the descents from allowed `starts`.

        Of equal energies the best score is chosen. The energy is at most the energy of each start.
        """
        ends = [self.descent(start)[-1] for start in starts]
        widths = min(ends, key=lambda each: (self.energy(each), -self.cache(each).score, each))
        # The last round of the descent took a bit from every node whose bits take energy.
        return self._choice(widths, self._worst_alone(widths))

    def descent(self, start: Widths) -> list[Widths]:
        """Returns the path of a greedy descent: each step removes one bit of one node.

        Goes through the nodes, the most expensive first, and removes bits while the score is
        allowed; repeats until no node can lose another bit. The last round costs one evaluation
        per node.
        """
        path, before = [start], 0
        while len(path) > before:
            before = len(path)
            for node in self._dearest_first(path[-1]):
                path += self._narrowed(path[-1], node)
        return path

    def furthest(self, path: Sequence[Widths]) -> Widths:
        """Returns the last allowed step of a path, by bisection; at least its first step."""
        reached, refused = 0, len(path)
        while refused - reached > 1:
            step = refused - 1 if refused == len(path) else (reached + refused) // 2
            if self._is_allowed(path[step]):
                reached = step
            else:
                refused = step
        return path[reached]

    def _is_allowed(self, widths: Widths, near: Widths | None = None) -> bool:
        return self.allowed(self.cache(widths, near).score)

    def _choice(self, widths: Widths, limiting: str | None) -> WidthChoice:
        energy, score = self.energy(widths), self.cache(widths).score
        return WidthChoice(widths, energy, score, limiting, self._overflowing(widths))

    def _dearest_first(self, widths: Widths) -> list[int]:
        """Free nodes by the energy that one bit less saves, largest first."""
        before = self.energy(widths)
        saved = {
            node: before - self.energy(_with(widths, node, max(widths[node] - 1, self.floor)))
            for node in self.cache.free
        }
        return sorted(saved, key=lambda node: (-saved[node], node))

    def _narrowed(self, widths: Widths, node: int) -> list[Widths]:
        """The steps that remove bits of one node while allowed; the last reduces the energy."""
        path, cheapest = [widths], self.energy(_with(widths, node, self.floor))
        while path[-1][node] > self.floor and cheapest < self.energy(path[-1]):
            less = _with(path[-1], node, path[-1][node] - 1)
            if not self._is_allowed(less, near=path[-1]):
                break
            path.append(less)
        while len(path) > 1 and self.energy(path[-1]) >= self.energy(path[-2]):
            path.pop()
        return path[1:]

    def _worst_alone(self, widths: Widths) -> str | None:
        """The node whose score changes most where it alone has one bit less."""
        narrower = self._narrower(widths)
        score = self.cache(widths).score
        self.cache.begin("which node limits", len(narrower))
        return self._most(
            {node: abs(score - self.cache(less, widths).score) for node, less in narrower.items()}
        )

    def _overflowing(self, widths: Widths) -> str | None:
        """The node with the largest share of overflows where it alone has one bit less."""
        narrower = self._narrower(widths)
        nodes = self.cache.nodes
        return self._most({n: self.share(nodes[n], less[n]) for n, less in narrower.items()})

    def _narrower(self, widths: Widths) -> dict[int, Widths]:
        """The widths with one bit less in one node, by the node."""
        free = self.cache.free
        return {n: _with(widths, n, widths[n] - 1) for n in free if widths[n] > self.floor}

    def _most(self, amounts: Mapping[int, float]) -> str | None:
        """The node of the largest amount, the first of several; None where all are 0."""
        most = max(amounts, key=lambda node: (amounts[node], -node), default=None)
        return None if most is None or not amounts[most] else self.cache.nodes[most]


def pareto_front(
    cache: EvaluationCache, energy: Energy, better: Callable[[float], float]
) -> list[FrontPoint]:
    """Returns the evaluations that no other one beats in both energy and score, by energy.

    `better` maps a score to a number that grows as it gets better.
    """
    points = [FrontPoint(widths, energy(widths), evaluation.score) for widths, evaluation in cache]
    points.sort(key=lambda point: (point.energy, -better(point.score), point.widths))
    front: list[FrontPoint] = []
    for point in points:
        if not front or better(point.score) > better(front[-1].score):
            front.append(point)
    return front


def _with(widths: Widths, node: int, bits: int) -> Widths:
    return (*widths[:node], bits, *widths[node + 1 :])


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
        assert overflows is not None
        worst = max(free, key=lambda key: overflows[key].overflow_outputs)
        if overflows[worst].overflow_outputs:
            low, limiting = middle + 1, worst
        else:
            high = middle
    return high, limiting
