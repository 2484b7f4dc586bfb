"""The narrowest accumulators that are good enough: one width for all nodes, or one for each.

Evaluations are exact and in a fixed order, so a search gives the same answer in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tracer.accumulators.spec.accumulator import NARROWEST
from tracer.records.whatif import FrontPoint, WidthChoice, Widths
from tracer.whatif.evaluation_cache import Ledger

Energy = Callable[[Widths], float]
"""The energy of one sample at these widths."""
Allowed = Callable[[float], bool]
"""Whether a score is within the budget."""


def narrowest_uniform(
    ledger: Ledger, energy: Energy, allowed: Allowed, start: int, floor: int = NARROWEST
) -> WidthChoice | None:
    """The least width that is allowed, as are all from there to `start`; None if that is not.

    Widths below `floor` are not tried. The score need not fall with the width, but widths below
    one that fails are not trusted.
    """
    bits = start
    ledger.begin("B, one width")
    if not allowed(ledger.uniform(bits).score):
        return None
    while bits > floor and allowed(ledger.uniform(bits - 1).score):
        bits -= 1
    widths = ledger.widths(bits)
    limiting = None if bits == floor else _worst_alone(ledger, widths, floor)
    return WidthChoice(widths, energy(widths), ledger(widths).score, limiting)


def narrowest_each(
    ledger: Ledger,
    energy: Energy,
    allowed: Allowed,
    starts: Sequence[Widths],
    floor: int = NARROWEST,
) -> WidthChoice:
    """Widths of each node that cost least energy, found from allowed `starts`.

    The cheapest of the `descents` from them is chosen, and of equals the one that scores best. It
    costs no more than any of the starts.
    """
    found = [descent(ledger, energy, allowed, start, floor)[-1] for start in starts]
    best = min(found, key=lambda widths: (energy(widths), -ledger(widths).score, widths))
    return WidthChoice(best, energy(best), ledger(best).score, _worst_alone(ledger, best, floor))


def descent(
    ledger: Ledger, energy: Energy, allowed: Allowed, start: Widths, floor: int = NARROWEST
) -> list[Widths]:
    """The way down from `start`, every step one bit of one node less, cheaper and allowed.

    Node by node, the dearest first, each gives up bits while that is allowed; again until none can
    give up another. The last round costs an evaluation a node.
    """
    path, before = [start], 0
    while len(path) > before:
        before = len(path)
        for node in _dearest_first(ledger.free, path[-1], energy, floor):
            path += _narrowed(ledger, energy, allowed, path[-1], node, floor)
    return path


def furthest(ledger: Ledger, allowed: Allowed, path: Sequence[Widths]) -> Widths:
    """How far down a path everything is allowed, by bisection; its first step at least."""
    reached, refused = 0, len(path)
    while refused - reached > 1:
        step = refused - 1 if refused == len(path) else (reached + refused) // 2
        if allowed(ledger(path[step]).score):
            reached = step
        else:
            refused = step
    return path[reached]


def pareto_front(
    ledger: Ledger, energy: Energy, better: Callable[[float], float]
) -> list[FrontPoint]:
    """The evaluations that no other beats in both energy and score, by energy.

    `better` maps a score to a number that grows as it gets better.
    """
    points = [FrontPoint(widths, energy(widths), made.score) for widths, made in ledger]
    points.sort(key=lambda point: (point.energy, -better(point.score), point.widths))
    front: list[FrontPoint] = []
    for point in points:
        if not front or better(point.score) > better(front[-1].score):
            front.append(point)
    return front


def _dearest_first(nodes: Sequence[int], widths: Widths, energy: Energy, floor: int) -> list[int]:
    """Nodes by what one bit less of each saves."""
    less = {node: max(widths[node] - 1, floor) for node in nodes}
    saved = {n: energy(widths) - energy(_with(widths, n, bits)) for n, bits in less.items()}
    return sorted(nodes, key=lambda node: (-saved[node], node))


def _narrowed(
    ledger: Ledger, energy: Energy, allowed: Allowed, widths: Widths, node: int, floor: int
) -> list[Widths]:
    """One node with ever fewer bits, until they are too few; the last of them saves something."""
    path, cheapest = [widths], energy(_with(widths, node, floor))
    while path[-1][node] > floor and cheapest < energy(path[-1]):
        less = _with(path[-1], node, path[-1][node] - 1)
        if not allowed(ledger(less).score):
            break
        path.append(less)
    while len(path) > 1 and energy(path[-1]) >= energy(path[-2]):
        path.pop()
    return path[1:]


def _worst_alone(ledger: Ledger, widths: Widths, floor: int) -> str | None:
    """The node whose score changes most where it alone has one bit less."""
    candidates = [node for node in ledger.free if widths[node] > floor]
    whole = ledger(widths).score
    ledger.begin("which node limits", len(candidates))
    losses = {
        node: abs(whole - ledger(_with(widths, node, widths[node] - 1)).score)
        for node in candidates
    }
    worst = max(losses, key=lambda node: (losses[node], -node), default=None)
    return None if worst is None or losses[worst] == 0 else ledger.nodes[worst]


def _with(widths: Widths, node: int, bits: int) -> Widths:
    return (*widths[:node], bits, *widths[node + 1 :])
