"""Sums of some rows of a tile, which stay in vector registers: code for `tiles`."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from llvmlite import ir

from tracer.interpreter.kernels.tiles import NOTHING, Step, Words
from tracer.interpreter.kernels.vectors import INDEX, Vectors

_GROUP = 2
"""Numbers of a group: terms, and registers that are added up after them."""


@dataclass(frozen=True)
class Band:
    """Code that adds the terms of a panel to `rows` times `vectors` sums, the first one of `row`.

    Lists have the vectors of all sums, then the first state of each, then the second. Between
    panels they lie at `home`, before the further registers.
    """

    v: Vectors
    words: Words
    step: Step
    rows: int
    vectors: int
    row: Any
    home: Any
    panel: Any

    @property
    def _size(self) -> int:
        return self.rows * self.vectors

    def added(self, k: Any, deep: Any) -> list[Any]:
        """The sums and states after the `deep` terms of the panel, which are those from k on."""
        v, b = self.v, self.v.builder
        with b.if_then(b.icmp_signed("==", k, INDEX(0))):
            self._begin()
        homes = self._homes(self.home, self._size * (1 + self.step.states))
        begun = [v.load(home) for home in homes]
        return self._in_groups(begun, k) if self.step.grouped else self._terms(begun, k, 0, deep)

    def store(self, carried: list[Any]) -> None:
        """Keeps sums and states until the next panel."""
        for value, home in zip(carried, self._homes(self.home, len(carried)), strict=True):
            self.v.store(value, home)

    def final(self, carried: list[Any]) -> list[list[Any]]:
        """The sums, and each state, after the last panel."""
        v, b, size = self.v, self.v.builder, self._size
        if self.step.grouped:
            last = self._register(self.words.number("registers"))
            carried = [v.load(home) for home in self._homes(last, size)] + carried[size:]
        if self.step.ends:
            ends, limit = self._of_rows("end"), self.words.halves("limit")
            carried = _by_array(
                self.step.code(v, b.fadd(value, end), state, limit)
                for end, (value, *state) in zip(ends, self._each(carried), strict=True)
            )
        return [carried[n * size : (n + 1) * size] for n in range(1 + self.step.states)]

    def again(self, step: Step) -> list[list[Any]]:
        """The sums, and each state, by another step of no more states; the panel has all terms.

        Sums without a step are exact, and need no groups.
        """
        grouped = self.step.grouped and step is not NOTHING
        band = replace(self, step=replace(step, grouped=grouped, ends=self.step.ends))
        return band.final(band.added(INDEX(0), self.words.number("depth")))

    def _begin(self) -> None:
        """The start is the first sum that the step meets; other registers begin with 0."""
        v, b, limit, size = self.v, self.v.builder, self.words.halves("limit"), self._size
        states = [ir.Constant(v.kind, None)] * self.step.states
        begun = _by_array(self.step.code(v, value, states, limit)
                          for value in self._of_rows("begin"))  # fmt: skip
        if not self.step.grouped:
            self.store(begun)
            return
        registers, half = self.words.number("registers"), self.words.halves("half")

        def clear(n: Any) -> None:
            for home in self._homes(self._register(b.add(n, INDEX(1))), size):
                v.store(half, home)

        v.each(registers, clear)
        for value, home in zip(begun, self._homes(self._register(registers), size), strict=False):
            v.store(value, home)
        self.store([self.words.halves("inner_half")] * size + begun[size:])

    def _in_groups(self, begun: list[Any], k: Any) -> list[Any]:
        """Adds the groups of the panel that begins with term k."""
        v, b, words = self.v, self.v.builder, self.words
        firsts = v.at(words.array("first_groups"), b.sdiv(k, words.number("chunk")))
        first, stop = b.load(firsts), b.load(v.at(firsts, 1))
        groups = v.at(words.array("groups"), b.mul(first, INDEX(_GROUP)))

        def group(n: Any, carried: list[Any]) -> list[Any]:
            *sums, at = carried
            numbers = v.at(groups, b.mul(n, INDEX(_GROUP)))
            terms, joined = b.load(numbers), b.load(v.at(numbers, 1))
            added = self._terms(sums, k, at, terms)
            ends = b.icmp_signed(">", joined, INDEX(0))
            after = v.when(ends, added, lambda: self._joined(added, joined))
            return [*after, b.add(at, terms)]

        return v.loop(b.sub(stop, first), [*begun, INDEX(0)], group)[:-1]

    def _joined(self, carried: list[Any], count: Any) -> list[Any]:
        """Adds register 0 to the next one, and so on to register `count`."""
        v, b, size = self.v, self.v.builder, self._size
        half, limit = self.words.halves("half"), self.words.halves("limit")

        def whole(values: list[Any], half: Any) -> list[Any]:
            return [b.fsub(value, half) for value in values[:size]] + values[size:]

        def register(n: Any, carried: list[Any]) -> list[Any]:
            number = b.add(n, INDEX(1))
            last, after = b.icmp_signed("==", number, count), []
            homes = self._homes(self._register(number), size)
            for (lower, *state), home in zip(self._each(carried), homes, strict=True):
                after.append(self.step.code(v, b.fadd(v.load(home), lower), state, limit))
                v.store(b.select(last, after[-1][0], half), home)
            return whole(_by_array(after), half)

        begun = self.words.halves("inner_half")
        return [begun] * size + v.loop(count, whole(carried, begun), register)[size:]

    def _terms(self, begun: list[Any], k: Any, at: Any, count: Any) -> list[Any]:
        """Adds `count` terms, which begin with row `at` of the panel; its first row is term k."""
        v, b, words = self.v, self.v.builder, self.words
        depth, left = words.number("depth"), v.at(words.array("left", v.scalar), k)
        factors = [v.at(v.at(left, b.mul(b.add(self.row, INDEX(n)), depth)), at)
                   for n in range(self.rows)]  # fmt: skip
        width, limit = self.vectors * v.count, words.halves("inner_limit")
        step = self.step.inner or self.step.code
        panel = v.at(self.panel, b.mul(at, INDEX(width))) if at else self.panel

        def term(k: Any, carried: list[Any]) -> list[Any]:
            row = v.at(panel, b.mul(k, INDEX(width)))
            columns = [v.load(v.at(row, i * v.count)) for i in range(self.vectors)]
            after = []
            for n, (old, *state) in enumerate(self._each(carried)):
                if n % self.vectors == 0:
                    factor = v.spread(b.load(v.at(factors[n // self.vectors], k)))
                added = self._multiplied(factor, columns[n % self.vectors], old)
                after.append(step(v, added, state, limit))
            return _by_array(after)

        return v.loop(count, begun, term, unrolled=False)

    def _multiplied(self, factor: Any, column: Any, added: Any) -> Any:
        """A product added to a sum."""
        if self.step.product is None:
            return self.v.add_product(factor, column, added)
        product = self.step.product(self.v, self.words, factor, column)
        return self.v.add_product(self.words.halves("unit"), product, added)

    def _of_rows(self, name: str) -> list[Any]:
        """A number of each row, in all lanes of its sums."""
        v, b = self.v, self.v.builder
        numbers = v.at(self.words.array(name, v.scalar), self.row)
        spread = [v.spread(b.load(v.at(numbers, n))) for n in range(self.rows)]
        return [each for each in spread for _ in range(self.vectors)]

    def _register(self, number: Any) -> Any:
        """Where a register from 1 on lies."""
        v, b = self.v, self.v.builder
        before = b.add(number, INDEX(self.step.states))
        return v.at(self.home, b.mul(before, INDEX(self._size * v.count)))

    def _homes(self, base: Any, count: int) -> list[Any]:
        return [self.v.at(base, n * self.v.count) for n in range(count)]

    def _each(self, carried: list[Any]) -> list[list[Any]]:
        """Each sum with its states."""
        return [carried[n :: self._size] for n in range(self._size)]


def _by_array(sums: Iterable[list[Any]]) -> list[Any]:
    """All sums, then the first state of all, then the second, from sums with their states."""
    return list(chain(*zip(*sums, strict=True)))
