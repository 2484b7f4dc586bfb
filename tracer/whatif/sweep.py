"""Sweeps over widths, then searches for the narrowest ones within the accuracy budget."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice

from tracer.accumulators.spec import NARROWEST
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.records.whatif import Answer, FrontPoint, Screening, SweepRow, WidthChoice, Widths
from tracer.whatif.criteria import Deadline, OutOfTimeError
from tracer.whatif.evaluation import Baseline, EvaluationCache

SWEEPING = "evaluating"
"""The purpose, in progress, of the evaluations of a sweep."""
Energy = Callable[[Widths], float]
"""The energy of one sample at these widths."""
OverflowShare = Callable[[int, int], float]
"""The share of the sums of a node that overflow in so many bits, with all other nodes wide."""


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """The widths of the sweep, and what the searches minimise within which budget.

    `allowed` says whether a score is within the budget of a score in wide accumulators. `better`
    maps a score to a number that grows as the score gets better. `each` also searches a width for
    each node. Searches try no width below `floor`. `explain` makes the evaluations that name the
    node which limits a choice.
    """

    widths: Sequence[int]
    energy: Energy
    allowed: Callable[[float, float], bool]
    better: Callable[[float], float]
    each: bool = True
    floor: int = NARROWEST
    explain: bool = False


@dataclass(frozen=True, slots=True)
class Screen:
    """The samples that narrow accumulators endanger most: evaluations, and the wide run.

    Its evaluations have a deadline of their own, which leaves time for all samples.
    """

    cache: EvaluationCache
    baseline: Baseline
    deadline: Deadline

    def judge(self, plan: SweepPlan, everywhere: Baseline) -> "BudgetJudge":
        """Judges by these samples, as if all others kept their scores in wide accumulators."""
        share = self.baseline.samples / everywhere.samples

        def allowed(score: float) -> bool:
            change = (score - self.baseline.score) * share
            return plan.allowed(everywhere.score + change, everywhere.score)

        return BudgetJudge(self.cache, allowed)


def sweep_and_search(
    baseline: Baseline,
    accumulator: Accumulator,
    plan: SweepPlan,
    cache: EvaluationCache,
    deadline: Deadline,
    screen: Callable[[], Screen] | None = None,
) -> Answer:
    """Evaluates every width of the sweep, then searches A, B and C.

    With a `screen`, C is searched on its samples first. At the `deadline` the answer is what was
    found until then. Raises OutOfTimeError where that is nothing.
    """
    rows = _rows(cache, plan)
    safe = safe_widths(cache, baseline, plan.floor)
    rows = rows or (_row(cache, plan, safe.uniform),)
    search = WidthSearch(
        BudgetJudge(cache, lambda score: plan.allowed(score, baseline.score)),
        plan.energy,
        plan.floor,
        lambda node, bits: baseline.overflow_share(cache.nodes[node], bits),
        plan.explain,
    )
    uniform = search.narrowest_uniform(safe.uniform)
    each, screened = None, None
    if plan.each and uniform is not None:
        with suppress(OutOfTimeError):
            if screen is not None:
                deadline.check()
                with deadline.turning_signals():
                    screened = screen()
                screened.cache.begin(f"C, on {screened.baseline.samples} samples")
            judge = None if screened is None else screened.judge(plan, baseline)
            each = search.narrowest_each(safe.widths, uniform.widths, judge)
    return Answer(
        accumulator=accumulator,
        score=baseline.score,
        samples=baseline.samples,
        sums=tuple(baseline.accumulations.values()),
        rows=rows,
        guaranteed=safe.guaranteed,
        observed=safe.uniform,
        limiting=safe.limiting,
        uniform=uniform,
        each=each,
        front=tuple(pareto_front(cache, plan.energy, plan.better)),
        evaluations=tuple(evaluation for _, evaluation in cache),
        screening=None
        if screened is None
        else Screening(screened.baseline.samples, len(screened.cache)),
        ended=deadline.end_reason or (screened.deadline.end_reason if screened else ""),
    )


def _rows(cache: EvaluationCache, plan: SweepPlan) -> tuple[SweepRow, ...]:
    """The rows of the sweep, the widest evaluated first: without time, the narrowest are left out.

    B is searched downwards, so it finds evaluations of these widths.
    """
    cache.begin(SWEEPING, len(plan.widths))
    rows: list[SweepRow] = []
    downwards = sorted(plan.widths, reverse=True)
    cache.expect([cache.uniform_widths(bits) for bits in downwards], counted=True)
    with suppress(OutOfTimeError):
        for bits in downwards:
            rows.append(_row(cache, plan, bits))
    return tuple(sorted(rows, key=lambda row: plan.widths.index(row.bits)))


def _row(cache: EvaluationCache, plan: SweepPlan, bits: int) -> SweepRow:
    evaluation, widths = cache.uniform(bits), cache.uniform_widths(bits)
    return SweepRow(bits, evaluation.score, plan.energy(widths), evaluation)


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
    uniform, limiting = _bisect_uniform(cache, free, floor, widest)
    return SafeWidths(guaranteed, uniform, limiting, cache.uniform_widths(uniform))


def _bisect_uniform(
    cache: EvaluationCache, free: list[str], low: int, high: int
) -> tuple[int, str]:
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


@dataclass(frozen=True, slots=True)
class BudgetJudge:
    """Says whether the score that widths have in `cache` is `allowed`.

    What a `screen` refuses is not evaluated.
    """

    cache: EvaluationCache
    allowed: Callable[[float], bool]
    screen: "BudgetJudge | None" = None

    def expect(self, widths: Iterable[Widths]) -> None:
        """Lets idle workers evaluate what may be asked next, the likeliest first."""
        (self.screen or self).cache.expect(widths)

    def __call__(self, widths: Widths, near: Widths | None = None) -> bool:
        """Whether `widths` are allowed; the next questions are about widths `near`.

        What there is no time to evaluate is not allowed, so every search ends with its best so far.
        """
        if self.screen is not None and not self.screen(widths, near):
            return False
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
            return _largest(
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

    judge: BudgetJudge
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

    def narrowest_each(
        self, safe: Widths, uniform: Widths, screen: BudgetJudge | None
    ) -> WidthChoice:
        """Returns widths from which no node can lose another bit, one for each node.

        They take at most the energy of `uniform`, which is allowed, as is `safe`. Where there is a
        `screen`, which judges by few samples, it leads the way, and what it refuses is not tried
        on all samples.
        """
        guide = screen or self.judge
        descents = Descents(self.judge.cache.free, self.floor, self.energy)
        shares = descents.equal_shares(safe, self.share)
        path = shares[: furthest(shares, guide) + 1]
        path += descents.descent(path[-1], guide)[1:]
        self.judge.cache.begin("C, on all samples")
        start = min(uniform, path[furthest(path, self.judge)], key=self.energy)
        screened = replace(self.judge, screen=screen)
        return self._choice(descents.descent(start, screened)[-1], guide)

    def _choice(self, widths: Widths, judge: BudgetJudge | None) -> WidthChoice:
        """The choice of `widths`; `judge` names the node whose bit costs most, if given.

        Another node, which needs no evaluation, is that with the largest share of overflows.
        """
        free, score = self.judge.cache.free, self.judge.cache(widths).score
        less = {n: with_bits(widths, n, widths[n] - 1) for n in free if widths[n] > self.floor}
        limiting = None if judge is None else judge.worst_alone(less, widths)
        nodes = self.judge.cache.nodes
        overflowing = _largest({nodes[n]: self.share(n, each[n]) for n, each in less.items()})
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


def _largest(amounts: Mapping[str, float]) -> str | None:
    """The name with the largest amount, the first of several; None where all are 0."""
    most = max(amounts, key=lambda name: amounts[name], default=None)
    return None if most is None or not amounts[most] else most


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
            if self.energy(with_bits(safe, node, self.floor)) < self.energy(safe)
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

    def descent(self, start: Widths, judge: BudgetJudge) -> list[Widths]:
        """Returns the path of a greedy descent: each step removes one bit of one node.

        Goes through the nodes, the most expensive first, and removes bits while that is allowed;
        repeats until no node can lose another bit. The last round asks once for each node.
        """
        path, before = [start], 0
        while len(path) > before:
            before = len(path)
            widths, energy = path[-1], self.energy(path[-1])
            less = {n: with_bits(widths, n, max(widths[n] - 1, self.floor)) for n in self.free}
            saved = {n: energy - self.energy(each) for n, each in less.items()}
            nodes = sorted(saved, key=lambda node: (-saved[node], node))
            for index, node in enumerate(nodes):
                path += self._narrowed(path[-1], node, nodes[index + 1 :], judge)
        return path

    def _narrowed(
        self, widths: Widths, node: int, later: Sequence[int], judge: BudgetJudge
    ) -> list[Widths]:
        """The steps that remove bits of one node while allowed; the last reduces the energy."""
        path = [widths]
        while self._may_lose(path[-1], node):
            less = with_bits(path[-1], node, path[-1][node] - 1)
            further = self._firsts(less, [node, *later])
            judge.expect(chain([less], islice(further, 1), self._firsts(path[-1], later)))
            if not judge(less, path[-1]):
                break
            path.append(less)
        while len(path) > 1 and self.energy(path[-1]) >= self.energy(path[-2]):
            path.pop()
        return path[1:]

    def _may_lose(self, widths: Widths, node: int) -> bool:
        """Whether a bit less of a node may reduce the energy."""
        cheapest = self.energy(with_bits(widths, node, self.floor))
        return widths[node] > self.floor and cheapest < self.energy(widths)

    def _firsts(self, widths: Widths, nodes: Sequence[int]) -> Iterator[Widths]:
        """The widths with one bit less of each of these nodes that may lose one."""
        return (with_bits(widths, n, widths[n] - 1) for n in nodes if self._may_lose(widths, n))


def furthest(path: Sequence[Widths], judge: BudgetJudge) -> int:
    """Returns the number of the last allowed step of a path, by bisection; at least the first."""
    reached, refused = 0, len(path)
    while refused - reached > 1:
        step = _middle(path, reached, refused)
        ends = {_middle(path, *each) for each in ((step, refused), (reached, step))}
        judge.expect([path[step], *(path[end] for end in sorted(ends - {reached, step}))])
        if judge(path[step]):
            reached = step
        else:
            refused = step
    return reached


def _middle(path: Sequence[Widths], reached: int, refused: int) -> int:
    """The step to ask for next: the last one first."""
    return refused - 1 if refused == len(path) else (reached + refused) // 2


def with_bits(widths: Widths, node: int, bits: int) -> Widths:
    """Returns the widths with other `bits` for one node."""
    return (*widths[:node], bits, *widths[node + 1 :])
