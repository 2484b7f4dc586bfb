"""Pairs the nodes and tensors of two graphs, by values and by what they read.

A quantised graph's values may be unrelated to a float one's: weights tell instead. Names and the
order of the nodes play no part, but for nodes that nothing else tells apart.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from tracer.analyzers.graph_diff.graph import Graph, alike_weights
from tracer.records import tensor_match

_STRONG = 2
"""Agreements of two nodes that pair them before all that have one."""
QUANTISED = tensor_match.ANY_ORDER + 1
"""How a tensor is read that equals another one but for a quantiser's rounding; 1 more: reshaped."""
Readings = Mapping[str, Mapping[str, int]]
"""Tensors of the second graph -> equal tensors of the first -> how they are read."""


def equal_tensors(first: Graph, second: Graph, rounded: bool) -> Readings:
    """Returns which tensors have equal values on all inputs, by the strongest readings alone.

    Tensors of one value tell nothing and are left out. With `rounded`, values may differ by the
    rounding of quantisation, where none are equal without it; sorted ones, which then are alike by
    chance, may not. Tensors of the same bits are compared once.
    """
    ours, theirs = _kinds(first), _kinds(second)
    found = [dict[int, int]() for _ in theirs]
    for run in range(len(first.tensors)):
        told = {number: kind.tensors[run] for number, kind in enumerate(theirs)}
        candidates = tensor_match.Candidates(told, rounded)
        here = [dict[int, int]() for _ in theirs]
        for number, kind in enumerate(ours):
            for other in candidates.near(kind.tensors[run]):
                before = found[other].get(number) if run else tensor_match.SAME_SHAPE
                if before is None:
                    continue
                reading = tensor_match.match(told[other], kind.tensors[run])
                if reading is None and rounded:
                    near = tensor_match.match(told[other], kind.tensors[run], rounded)
                    reading = (
                        None if near is None or near == tensor_match.ANY_ORDER else QUANTISED + near
                    )
                if reading is not None:
                    here[other][number] = max(reading, before)
        found = here
    equal: dict[str, Mapping[str, int]] = {}
    for kind, readings in zip(theirs, found, strict=True):
        best = min(readings.values(), default=tensor_match.SAME_SHAPE)
        alike = [ours[number].names for number, how in readings.items() if how == best]
        same = {name: best for names in alike for name in names}
        equal |= {name: same for name in kind.names if same}
    return equal


class _Kind(NamedTuple):
    """Tensors of the same bits in all runs: their names, and one of them in each run."""

    names: list[str]
    tensors: list[tensor_match.NumericTensor]


def _kinds(graph: Graph) -> list[_Kind]:
    found = dict[tuple[Any, ...], _Kind]()
    for name in graph.tensors[0]:
        tensors = [tensor_match.numeric_tensor(values.get(name)) for values in graph.tensors]
        told = [each for each in tensors if each is not None and len({*each.extremes}) > 1]
        if name in graph.constant or len(told) < len(tensors):
            continue
        arrays = [each.array for each in told]
        bits = tuple((each.dtype.str, each.shape, hash(each.tobytes())) for each in arrays)
        found.setdefault(bits, _Kind([], told)).names.append(name)
    return list(found.values())


class Pairing:
    """Nodes of the `second` graph and their `partners` in the `first`, `groups`, and `tensors`.

    `groups` are nodes of the first graph and what they became; one side is empty for nodes that are
    new or gone. `tensors` has for inputs and results of paired nodes those of the first graph.
    `kept` are the partners.
    """

    def __init__(self, first: Graph, second: Graph, equal: Readings) -> None:
        self.first, self.second, self.equal = first, second, equal
        self.partners: dict[int, int] = {}
        self.tensors = dict(zip(second.inputs, first.inputs, strict=True))
        if len(first.results) == len(second.results):
            self.tensors = {**dict(zip(second.results, first.results, strict=True)), **self.tensors}
        self.groups: list[tuple[list[int], list[int]]] = []
        self._equal = {} if first.is_quantised else equal
        self._alike = {name for of in self._equal.values() for name in of}
        self._weighted = alike_weights(first, second)
        self._free = set(range(len(first.nodes))).difference(*first.folded.values())
        self._open = set(range(len(second.nodes))).difference(*second.folded.values())
        self._pair_by_values()
        self._group(self._regions(), only_complete=True)
        self._pair_by_structure()
        self._group(self._remains(), only_complete=False)
        for ours, theirs in self.groups:
            ends = first.leaving(ours), second.leaving(theirs)
            if len(ends[0]) == len(ends[1]) == 1:
                self.tensors.setdefault(ends[1][0], ends[0][0])
        self._unfold()
        self.kept = {*self.partners.values()}

    def partners_of(self, name: str) -> set[str]:
        """The tensors of the first graph that a tensor of the second stands for."""
        own = self.tensors.get(name)
        return {*self._equal.get(name, ()), *(() if own is None else (own,))}

    def _pair(self, number: int, partner: int) -> None:
        self.partners[number] = partner
        self._open.remove(number)
        self._free.remove(partner)
        ours, theirs = self.first.nodes[partner].outputs, self.second.nodes[number].outputs
        for name, other in zip(theirs, ours, strict=False):
            if name and other:
                self.tensors.setdefault(name, other)

    def _may_pair(self, number: int, partner: int) -> bool:
        return partner in self._free and self.first.kinds[partner] == self.second.kinds[number]

    def _pair_by_values(self) -> None:
        """Pairs nodes of one operator with an equal result; first those that agree in most."""
        for number in sorted(self._open):
            makers = (
                self.first.makers.get(name)
                for output in self.second.nodes[number].outputs
                for name in self._equal.get(output, ())
            )
            found = {each for each in makers if each is not None and self._may_pair(number, each)}
            if found:
                agreements = self._agreements(number)
                self._pair(number, max(sorted(found), key=agreements.__getitem__))

    def _agreements(self, number: int) -> Counter[int]:
        """Counts, by nodes that are free, how often they read, feed and hold the same."""
        found = Counter[int]()
        for slot, name in self.second.reads(number):
            for other in self.partners_of(name):
                found.update({p for p, at in self.first.readers.get(other, ()) if at == slot})
        for output in self.second.nodes[number].outputs:
            found.update(self._makers_of_partners(output))
        alike = self._weighted.get(number, ())
        for partner in alike:
            found[partner] += _STRONG if len(alike) == 1 and self.second.anchor(number) else 1
        return Counter({p: n for p, n in found.items() if self._may_pair(number, p)})

    def _makers_of_partners(self, output: str) -> Iterator[int]:
        """Yields the nodes of the first graph at the places of the readers of a tensor."""
        for reader, slot in self.second.readers.get(output, ()):
            if reader in self.partners:
                for at, name in self.first.reads(self.partners[reader]):
                    if at == slot and name in self.first.makers:
                        yield self.first.makers[name]
        for result, own in zip(self.second.results, self.first.results, strict=False):
            if result == output and own in self.first.makers:
                yield self.first.makers[own]

    def _pair_by_structure(self) -> None:
        """Pairs nodes that agree in two things; where none does, passes the first change."""
        waiting = deque(sorted(self._open))
        while True:
            while waiting:
                waiting.extend(self._pair_best(waiting.popleft(), _STRONG))
            steps = (
                partial(self._replace, alike=True), self._insert, self._remove,
                partial(self._replace, alike=False), partial(self._pair_best, least=1),
            )  # fmt: skip
            tried = (step(number) for step in steps for number in sorted(self._open))
            waiting.extend(next(filter(None, tried), ()))
            if not waiting:
                return

    def _pair_best(self, number: int, least: int) -> list[int]:
        """Pairs a node with the one that agrees most, if enough; returns its open neighbours."""
        found = self._agreements(number) if number in self._open else Counter[int]()
        best = max(sorted(found), key=found.__getitem__, default=-1)
        possible = len([*self.second.reads(number)]) + len(self.second.anchor(number))
        ties = [*found.values()].count(found[best]) if self.first.is_quantised and least > 1 else 1
        if ties > 1 or found[best] < min(least, max(1, possible)):
            return []
        self._pair(number, best)
        return self._neighbours(number)

    def _replace(self, number: int, alike: bool) -> list[int]:
        """Pairs a node with one that reads the same tensors, in another order or another way.

        With `alike`, operators of one kind read the results of both.
        """
        read = [self.partners_of(name) for _, name in self.second.reads(number)]
        names = {name for each in read for name in each}
        for partner in sorted({p for name in names for p, _ in self.first.readers.get(name, ())}):
            left = [name for _, name in self.first.reads(partner)]
            is_same = len(left) == len(read) and all(each & {*left} for each in read)
            if not is_same or partner not in self._free or {*left} - names:
                continue
            is_pair = self._may_pair(number, partner)
            if alike and self.first.following(partner) != self.second.following(number):
                continue
            if self.first.is_quantised and not is_pair:  # it may have become several
                continue
            self._pair(number, partner)
            if not is_pair:
                del self.partners[number]
                self.groups.append(([partner], [number]))
            return self._neighbours(number)
        return []

    def _insert(self, number: int) -> list[int]:
        """Passes a new node: its readers are those that its input had."""
        for _, name in self.second.reads(number):
            for other in self.partners_of(name):
                for output in self.second.nodes[number].outputs:
                    if self._has_readers_of(output, other):
                        self.tensors[output] = other
                        self._group([([], [number])], only_complete=False)
                        return self._neighbours(number)
        return []

    def _remove(self, number: int) -> list[int]:
        """Passes a node that is gone: what it read has its readers, a node among them."""
        for _, name in self.second.reads(number):
            for other in self.partners_of(name):
                for gone, _ in self.first.readers.get(other, ()):
                    for output in self.first.nodes[gone].outputs if gone in self._free else ():
                        if self._has_readers_of(name, output):
                            self.tensors[name] = output
                            self._group([([gone], [])], only_complete=False)
                            return [number]
        return []

    def _has_readers_of(self, name: str, other: str) -> bool:
        """Whether an open node reads one tensor as a free one of its kind reads the other."""
        free = self.first.readers.get(other, ())
        return any(
            number in self._open
            and slot == at
            and self._may_pair(number, partner)
            and self.second.anchor(number) in ((), self.first.anchor(partner))
            for number, slot in self.second.readers.get(name, ())
            for partner, at in free
        )

    def _unfold(self) -> None:
        """Pairs folded nodes and the tensors around them, and groups what became what."""
        first, second = self.first, self.second
        votes = Counter(zip(second.ends, first.ends, strict=False))  # tensors that are read alike
        for number, partner in self.partners.items():
            sides = enumerate(second.slots(number)), enumerate(first.slots(partner))
            for (place, (slot, name)), (own_place, (at, own)) in product(*sides):
                votes[name, own] += (slot == at) + (place == own_place)  # in sums, order may tell
        left = {number for each in first.folded.values() for number in each}
        absorbed = defaultdict[int, list[int]](list)
        for source, own in [*self.tensors.items()]:
            self._pair_folded(source, own, votes, left)
            self._group_folded(source, own, left, absorbed)
        for number, partner in [*self.partners.items()]:
            kinds = {first.nodes[partner].qualified_type, second.nodes[number].qualified_type}
            if absorbed[number] or len(kinds) > 1:
                del self.partners[number]
                self.groups.append(([partner, *absorbed[number]], [number]))
        self.groups += [([number], []) for number in sorted(left)]
        self.groups += [([], e) for name, e in second.folded.items() if name not in self.tensors]

    def _pair_folded(
        self, source: str, own: str, votes: Counter[tuple[str, str]], left: set[int]
    ) -> None:
        """Pairs the tensors and nodes folded behind a `source` with those behind its partner."""
        first, second = self.first, self.second
        theirs = second.folded.get(source, ())
        members = [own, *(first.nodes[each].outputs[0] for each in first.folded.get(own, ()))]
        for name in (*(second.nodes[each].outputs[0] for each in reversed(theirs)), source):
            readers = (second.nodes[n] for n in theirs if name in second.nodes[n].inputs)
            behind = {self.tensors[reader.outputs[0]] for reader in readers}
            told = {x: (votes[name, x], x in behind) for x in members}
            best = self.tensors[name] = max(reversed(members), key=told.__getitem__)
            node, partner = second.makers.get(name, -1), first.makers.get(best, -1)
            is_left = name != source and partner in left
            if is_left and first.kinds[partner] == second.kinds[node]:
                self.partners[node] = partner
                left.remove(partner)
                votes[next(second.slots(node))[1], next(first.slots(partner))[1]] += 1

    def _group_folded(
        self, source: str, own: str, left: set[int], absorbed: dict[int, list[int]]
    ) -> None:
        """Groups what is gone behind a tensor with what was added there, or with its maker."""
        first, second = self.first, self.second
        added = [n for n in second.folded.get(source, ()) if n not in self.partners]
        gone = sorted(left.intersection(first.folded.get(own, ())))
        left.difference_update(gone)
        rounds = "QuantizeLinear" in {second.kinds[each] for each in added}
        cut = [each for each in gone if rounds and first.kinds[each] in ("Clip", "Relu")]
        for each in cut:  # rounding does what it did
            if self.tensors[source] == first.nodes[each].outputs[0]:
                self.tensors[source] = first.nodes[each].inputs[0]
        maker = second.makers.get(source, -1)
        if self.partners.get(maker) == first.makers.get(own, -1):
            absorbed[maker] += [each for each in gone if each not in cut]
            gone = cut
        if gone or added:
            self.groups.append((gone, added))

    def _neighbours(self, number: int) -> list[int]:
        """The node, and open nodes that feed or read it."""
        node = self.second.nodes[number]
        near = {self.second.makers.get(name) for name in node.inputs}
        near |= {n for name in node.outputs for n, _ in self.second.readers.get(name, ())}
        return [number, *sorted(each for each in near if each in self._open and each is not None)]

    def _group(self, groups: Iterable[tuple[list[int], list[int]]], only_complete: bool) -> None:
        for ours, theirs in groups:
            if only_complete:  # equal tensors alone leave the group, and at least one does
                sides = (self.first, ours, self._alike), (self.second, theirs, self._equal)
                leaving = [n in known for graph, own, known in sides for n in graph.leaving(own)]
                if not leaving or not all(leaving):
                    continue
            self.groups.append((ours, theirs))
            self._free.difference_update(ours)
            self._open.difference_update(theirs)

    def _regions(self) -> list[tuple[list[int], list[int]]]:
        """Groups of open nodes that unequal tensors connect, and those with equal results."""
        joined = tensor_match.DisjointSets[tuple[int, int]]()
        self._join_readers(joined, (self._free, self._open), (self._alike, self._equal.keys()))
        for number in self._open:
            for output in self.second.nodes[number].outputs:
                for name in self._equal.get(output, ()):
                    maker = self.first.makers.get(name)
                    if maker in self._free and maker is not None:
                        joined.join((1, number), (0, maker))
        for ours, theirs in _sides(joined):  # what computes something is a part of what reads it
            if not (ours and theirs) and not self._passes(ours, theirs):
                self._join_readers(joined, ({*ours}, {*theirs}), (set(), set()))
        return _sides(joined)

    def _remains(self) -> list[tuple[list[int], list[int]]]:
        """Groups of the nodes that are left, by tensors that they share and by their readers."""
        joined = tensor_match.DisjointSets[tuple[int, int]]()
        self._join_readers(joined, (self._free, self._open), (set(), set()))
        for number in self._open:
            for output in self.second.nodes[number].outputs:
                for maker in self._makers_of_partners(output):
                    if maker in self._free:
                        joined.join((1, number), (0, maker))
        return _sides(joined)

    def _join_readers(
        self,
        joined: tensor_match.DisjointSets[tuple[int, int]],
        nodes: tuple[Set[int], Set[int]],
        cuts: tuple[Set[str], Set[str]],
    ) -> None:
        """Joins nodes of both graphs with the open readers of their outputs, but for the cuts."""
        sides = (self.first, self._free), (self.second, self._open)
        for side, (graph, open_nodes) in enumerate(sides):
            for number in nodes[side]:
                joined.add((side, number))
                for name in set(graph.nodes[number].outputs) - cuts[side]:
                    for reader, _ in graph.readers.get(name, ()):
                        if reader in open_nodes:
                            joined.join((side, number), (side, reader))

    def _passes(self, ours: Sequence[int], theirs: Sequence[int]) -> bool:
        """Whether a tensor that leaves a group of one graph equals one that enters it."""
        graph = self.first if ours else self.second
        nodes = [graph.nodes[number] for number in (*ours, *theirs)]
        made = {name for node in nodes for name in node.outputs}
        read = {name for node in nodes for name in node.inputs} - made
        if theirs:
            return any(self.partners_of(a) & self.partners_of(b) for a in made for b in read)
        return any(made & of.keys() and read & of.keys() for of in self._equal.values())


def _sides(joined: tensor_match.DisjointSets[tuple[int, int]]) -> list[tuple[list[int], list[int]]]:
    """Returns the nodes of the first and of the second graph, 0 and 1, of each set."""
    return [
        (sorted(n for side, n in each if not side), sorted(n for side, n in each if side))
        for each in joined.all()
    ]
