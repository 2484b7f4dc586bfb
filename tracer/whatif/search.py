"""The narrowest accumulators that are good enough: one width for all nodes, or one for each.

Evaluations are exact and in a fixed order, so a search gives the same answer in every run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tracer.interpreter.arithmetic.accumulator import NARROWEST
from tracer.whatif.ledger import Ledger, Widths

Energy = Callable[[Widths], float]
"""The energy of one sample at these widths."""
Allowed = Callable[[float], bool]
"""Whether a score is within the budget."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Widths of the nodes, what they cost and how they score.

    `limiting` is the node that forbids one bit less, None where nothing does.
    """

    widths: Widths
    energy: float
    score: float
    limiting: str | None


@dataclass(frozen=True, slots=True)
class Point:
    """An evaluation as a point of energy against score."""

    widths: Widths
    energy: float
    score: float


def narrowest_uniform(
    ledger: Ledger, energy: Energy, allowed: Allowed, start: int, floor: int = NARROWEST
) -> Choice | None:
    """The least width that is allowed, as are all from there to `start`; None if that is not.

    Widths below `floor` are not tried. The score need not fall with the width, but widths below
    one that fails are not trusted.
    """
    bits = start
    if not allowed(ledger.uniform(bits).score):
        return None
    while bits > floor and allowed(ledger.uniform(bits - 1).score):
        bits -= 1
    widths = (bits,) * len(ledger.nodes)
    limiting = None if bits == floor else _worst_alone(ledger, widths, floor)
    return Choice(widths, energy(widths), ledger(widths).score, limiting)


def narrowest_each(
    ledger: Ledger,
    energy: Energy,
    allowed: Allowed,
    starts: tuple[Widths, ...],
    floor: int = NARROWEST,
) -> Choice:
    """Widths of each node that cost least energy, found from allowed `starts`.

    Node by node, the dearest first, each gets the least width that is allowed; again until
    nothing changes. The cheapest of what the starts lead to is chosen, and of equals the one that
    scores best. It costs no more than any of the starts.
    """
    found = [_descended(ledger, energy, allowed, start, floor) for start in starts]
    best = min(found, key=lambda widths: (energy(widths), -ledger(widths).score, widths))
    return Choice(best, energy(best), ledger(best).score, _worst_alone(ledger, best, floor))


def pareto_front(ledger: Ledger, energy: Energy, better: Callable[[float], float]) -> list[Point]:
    """The evaluations that no other beats in both energy and score, by energy.

    `better` maps a score to a number that grows as it gets better.
    """
    points = [Point(widths, energy(widths), made.score) for widths, made in ledger]
    points.sort(key=lambda point: (point.energy, -better(point.score), point.widths))
    front: list[Point] = []
    for point in points:
        if not front or better(point.score) > better(front[-1].score):
            front.append(point)
    return front


def _descended(
    ledger: Ledger, energy: Energy, allowed: Allowed, start: Widths, floor: int
) -> Widths:
    widths, before = start, None
    while widths != before:
        before = widths
        for node in _dearest_first(widths, energy, floor):
            widths = _narrowed(ledger, energy, allowed, widths, node, floor)
    return widths


def _dearest_first(widths: Widths, energy: Energy, floor: int) -> list[int]:
    """Nodes by what one bit less of each saves."""
    less = [max(bits - 1, floor) for bits in widths]
    saved = [energy(widths) - energy(_with(widths, n, bits)) for n, bits in enumerate(less)]
    return sorted(range(len(widths)), key=lambda node: (-saved[node], node))


def _narrowed(
    ledger: Ledger, energy: Energy, allowed: Allowed, widths: Widths, node: int, floor: int
) -> Widths:
    """The least width of one node that is allowed, by bisection below the one it has.

    A node that may not lose one bit keeps what it has, as does one that would save nothing: a round
    that changes nothing costs an evaluation a node.
    """
    whole, low, high = energy(widths), floor, widths[node] - 1
    if high < low or energy(_with(widths, node, low)) >= whole:
        return widths
    if not allowed(ledger(_with(widths, node, high)).score):
        return widths
    while low < high:
        middle = (low + high) // 2
        if allowed(ledger(_with(widths, node, middle)).score):
            high = middle
        else:
            low = middle + 1
    narrowed = _with(widths, node, high)
    return narrowed if energy(narrowed) < whole else widths


def _worst_alone(ledger: Ledger, widths: Widths, floor: int) -> str | None:
    """The node whose score changes most where it alone has one bit less."""
    candidates = [node for node, bits in enumerate(widths) if bits > floor]
    whole = ledger(widths).score
    losses = {
        node: abs(whole - ledger(_with(widths, node, widths[node] - 1)).score)
        for node in candidates
    }
    worst = max(losses, key=lambda node: (losses[node], -node), default=None)
    return None if worst is None or losses[worst] == 0 else ledger.nodes[worst]


def _with(widths: Widths, node: int, bits: int) -> Widths:
    return (*widths[:node], bits, *widths[node + 1 :])
