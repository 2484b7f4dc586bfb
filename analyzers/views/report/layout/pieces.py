"""Divide nodes into groups that can be drawn one after the other."""

import heapq
from collections.abc import Collection, Hashable, Sequence

from tracer.analyzers.views.report.layout.box import Link

Reads = Sequence[Sequence[int]]


def pieces(
    nodes: Sequence[int], keys: Sequence[Hashable], reads: Reads
) -> tuple[list[list[int]], set[Link]]:
    """Returns the nodes of each key, sorted so that a group reads earlier ones, and who reads whom.

    `nodes` are sorted, and so are those of a group. A group whose data leave it and come back is
    divided: a ReLU that a block calls twice is a group before the other nodes and one after them.
    """
    group = _numbered(nodes, keys)
    links = _links(group, reads)
    if any(first > second for first, second in links):
        order = _sorted(range(1 + max(group.values())), links)
        stuck = _in_cycles(set(group.values()) - set(order), links)
        if stuck:
            turns = _turns(group, stuck, reads)
            group = _numbered(nodes, [(group[node], turns[node]) for node in nodes])
            links = _links(group, reads)
            order = _sorted(range(1 + max(group.values())), links)
        place = {number: at for at, number in enumerate(order)}
        group = {node: place[number] for node, number in group.items()}
        links = {(place[first], place[second]) for first, second in links}
    groups: list[list[int]] = [[] for _ in range(1 + max(group.values(), default=-1))]
    for node in nodes:
        groups[group[node]].append(node)
    return groups, links


def _numbered(nodes: Sequence[int], keys: Sequence[Hashable]) -> dict[int, int]:
    """Returns the number of each node's group; groups are numbered by their first nodes."""
    numbers: dict[Hashable, int] = {}
    return {
        node: numbers.setdefault(key, len(numbers)) for node, key in zip(nodes, keys, strict=True)
    }


def _links(group: dict[int, int], reads: Reads) -> set[Link]:
    return {
        (group[producer], number)
        for node, number in group.items()
        for producer in reads[node]
        if producer in group and group[producer] != number
    }


def _sorted(groups: Collection[int], links: set[Link]) -> list[int]:
    """Returns groups after those they read, the lowest numbers first, without those in cycles."""
    waits = dict.fromkeys(groups, 0)
    followers: dict[int, list[int]] = {}
    for first, second in links:
        waits[second] += 1
        followers.setdefault(first, []).append(second)
    ready = [number for number, count in waits.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        number = heapq.heappop(ready)
        order.append(number)
        for follower in followers.get(number, ()):
            waits[follower] -= 1
            if not waits[follower]:
                heapq.heappush(ready, follower)
    return order


def _in_cycles(groups: set[int], links: set[Link]) -> set[int]:
    """Returns the groups without those that only follow cycles."""
    backwards = {(b, a) for a, b in links if a in groups and b in groups}
    return groups - set(_sorted(groups, backwards))


def _turns(group: dict[int, int], stuck: set[int], reads: Reads) -> dict[int, int]:
    """Returns how often data changed between groups in cycles on their way to each node.

    It rises with each such change, so groups of one number and one turn have no cycles.
    """
    turns = dict.fromkeys(group, 0)
    for node, number in group.items():
        if number in stuck:
            turns[node] = max(
                (
                    turns[producer] + (group[producer] != number)
                    for producer in reads[node]
                    if group.get(producer) in stuck
                ),
                default=0,
            )
    return turns
