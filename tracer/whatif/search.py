"""Searches the narrowest widths: without overflow (A), within the budget (B), for each node (C).

A and B use one width for all nodes. Evaluations are exact and in a fixed order, so a search returns
the same widths in every run.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tracer.records.whatif import FrontPoint, WidthChoice, Widths
from tracer.whatif.deadline import OutOfTimeError
from tracer.whatif.descent import Asked, Descents, Energy, OverflowShare, changed, furthest
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
    get other numbers, and only evaluations show their overflows. Without time for these the widths
    are sufficient, but not the narrowest.
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
class Judge:
    """Says whether the score that widths have in `cache` is `allowed`."""

    cache: EvaluationCache
    allowed: Callable[[float], bool]

    def expect(self, widths: Iterable[Widths]) -> None:
        """Lets idle workers evaluate what may be asked next, the likeliest first."""
        self.cache.expect(widths)

    def __call__(self, widths: Widths, near: Widths | None = None) -> bool:
        """Whether `widths` are allowed; the next questions are about widths `near`.

        What there is no time to evaluate is not allowed, so every search ends with its best so far.
        """
        try:
            return self.allowed(self.cache(widths, near).score)
        except OutOfTimeError:
            return False

    def worst_alone(self, narrower: Mapping[int, Widths], widths: Widths) -> str | None:
        """Returns the node of `narrower` whose widths change the score of `widths` most.

        Returns None where there is no time to evaluate them all.
        """
        try:
            score = self.cache(widths).score
            self.cache.begin("which node limits", len(narrower))
            self.cache.expect([*narrower.values()])
            return _most(
                {
                    self.cache.nodes[node]: abs(score - self.cache(less, widths).score)
                    for node, less in narrower.items()
                }
            )
        except OutOfTimeError:
            return None


@dataclass(frozen=True, slots=True)
class WidthSearch:
    """Searches widths of little energy whose score is allowed; tries no width below `floor`.

    `judge` knows all samples. `share` names the node of a choice that overflows most with one bit
    less. `explain` evaluates each node to name the one that limits a uniform width.
    """

    judge: Judge
    energy: Energy
    floor: int
    share: OverflowShare
    explain: bool

    def narrowest_uniform(self, start: int) -> WidthChoice | None:
        """Returns the least width such that it and all widths up to `start` are allowed.

        Returns None if `start` is not allowed. The score need not fall with the width; a width
        below one that fails is never chosen.
        """
        bits, cache = start, self.judge.cache
        cache.begin("B, one width")
        self.judge.expect([cache.uniform_widths(n) for n in range(bits, self.floor - 1, -1)])
        if not self.judge(cache.uniform_widths(bits)):
            return None
        while bits > self.floor and self.judge(
            cache.uniform_widths(bits - 1), cache.uniform_widths(bits)
        ):
            bits -= 1
        widths = cache.uniform_widths(bits)
        return self._choice(widths, self.judge if self.explain else None)

    def narrowest_each(self, safe: Widths, uniform: Widths, screen: Judge | None) -> WidthChoice:
        """Returns widths from which no node can lose another bit, one for each node.

        They take at most the energy of `uniform`, which is allowed, as is `safe`. Where there is a
        `screen`, which judges by few samples, it leads the way, and what it refuses is not tried
        on all samples.
        """
        guide, everywhere = screen or self.judge, self.judge
        shares = self._descents.equal_shares(safe, self.share)
        asked = Asked(guide, guide.expect)
        path = shares[: furthest(shares, asked) + 1]
        path += self._descents.descent(path[-1], asked)[1:]
        everywhere.cache.begin("C, on all samples")
        start = min(
            uniform, path[furthest(path, Asked(everywhere, everywhere.expect))], key=self.energy
        )

        def allowed(widths: Widths, near: Widths | None) -> bool:
            return (screen is None or screen(widths, near)) and everywhere(widths, near)

        return self._choice(self._descents.descent(start, Asked(allowed, guide.expect))[-1], guide)

    @property
    def _descents(self) -> Descents:
        return Descents(self.judge.cache.free, self.floor, self.energy)

    def _choice(self, widths: Widths, judge: Judge | None) -> WidthChoice:
        """The choice of `widths`; `judge` names the node whose bit costs most, if given.

        Another node, which needs no evaluation, is that with the largest share of overflows.
        """
        free, score = self.judge.cache.free, self.judge.cache(widths).score
        less = {n: changed(widths, n, widths[n] - 1) for n in free if widths[n] > self.floor}
        limiting = None if judge is None else judge.worst_alone(less, widths)
        nodes = self.judge.cache.nodes
        overflowing = _most({nodes[n]: self.share(n, each[n]) for n, each in less.items()})
        return WidthChoice(widths, self.energy(widths), score, limiting, overflowing)


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


def _most(amounts: Mapping[str, float]) -> str | None:
    """The name with the largest amount, the first of several; None where all are 0."""
    most = max(amounts, key=lambda name: amounts[name], default=None)
    return None if most is None or not amounts[most] else most


def _bisected(cache: EvaluationCache, free: list[str], low: int, high: int) -> tuple[int, str]:
    """The narrowest uniform width without overflow, and the node that overflows with one bit less.

    Bisection is valid: without overflow the free nodes compute the same numbers at every wider
    width.
    """
    limiting = free[0]
    cache.begin("A, with nodes pinned")
    while low < high:
        middle = (low + high) // 2
        try:
            overflows = cache.uniform(middle).overflows
        except OutOfTimeError:
            break
        assert overflows is not None
        worst = max(free, key=lambda key: overflows[key].overflow_outputs)
        if overflows[worst].overflow_outputs:
            low, limiting = middle + 1, worst
        else:
            high = middle
    return high, limiting
