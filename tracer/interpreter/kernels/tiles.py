"""Products of matrices, tile by tile, with a step after each multiply-add and a store of one's own.

A *step* says what follows each multiply-add, a *store* what becomes of the sums. Both are pieces of
LLVM code; `tile_code` compiles the function for them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from llvmlite import ir

from tracer.interpreter.kernels.machine_code import INDEX, Vectors

ARRAYS = (
    "left", "source", "offsets", "starts", "runs", "first_runs", "places", "begin", "end",
    "groups", "first_groups", "out_0", "out_1", "out_2", "memory", "slots", "parameters",
    "tables",
)  # fmt: skip
"""Arrays of a task: factors (rows, terms), floats, with rows of 0 up to a whole tile; the numbers
of the columns; int64 offsets of the terms in them; where each column begins; runs of neighbours
(see `Panel`), and the first run of each tile, none where columns are gathered one by one; where
the result of each column lies; what the sums of each row begin with, and what is added at their
end, floats; groups of terms (see `Step`), and the first group of each panel; results; bytes for the
panels of blocks, in slots, and 1 for each slot in use; what a store knows of each row; tables of
statistics, int64, one after the other for each slot."""
PARAMETERS = 8
"""Numbers, float64, that a store knows of each row."""
NUMBERS = (
    "rows", "tall", "columns", "wide", "depth", "row_stride", "limit", "half",
    "matrices", "source_step", "out_step", "slot_count", "slot_size", "chunk", "zero", "registers",
    "inner_limit", "inner_half", "product_limit", "product_half", "unit", "table_size",
)  # fmt: skip
"""Numbers of a task: rows, and of a block; columns, and tiles of columns of a block; terms;
elements of the results between rows; twice the limit of a step; 1 where lanes hold the sum plus one
half; pairs of matrices, and elements from one to the next in the source and in the results. The
factors, and what sums begin and end with, of all pairs follow each other; slots, and their bytes;
terms of a panel; what is subtracted from each integer of a column; registers of a sum besides the
first; limit and half of register 0, and of products; twice the number that products are multiplied
with where a step computes them; elements of a slot's tables."""
_POSITION = {name: 2 * number for number, name in enumerate(ARRAYS)} | {
    name: 2 * len(ARRAYS) + number for number, name in enumerate(NUMBERS)
}
StepCode = Callable[[Vectors, Any, list[Any], Any], list[Any]]
"""(vectors, sum after the multiply-add, state, limit) -> sum and state after the step."""
ProductCode = Callable[[Vectors, "Words", Any, Any], Any]
"""(vectors, words, factor, column) -> product."""


@dataclass(frozen=True)
class Step:
    """What follows each multiply-add, and the start; vectors of state begin with 0.

    Terms may be `grouped`: the sum of a group is in register 0 and begins with 0. A group is int64
    (terms, n): after its terms register 0 is added to register 1, that to register 2, and so on to
    register n; each but the last begins anew. The step follows these additions as well. The last
    register is the sum. If it `ends`, a number of its row is added to it. `inner` replaces the step
    in register 0, `product` the multiplication; `passed` is what leaves register 0 for the next.
    """

    states: int
    code: StepCode
    grouped: bool = False
    ends: bool = False
    inner: StepCode | None = None
    product: ProductCode | None = None
    passed: Callable[[Vectors, Any], Any] | None = None


NOTHING = Step(0, lambda vectors, sums, state, limit: [sums])
"""The next multiply-add."""


@dataclass(frozen=True)
class Store:
    """What becomes of a tile of sums: `code` puts vectors of these LLVM types to results.

    It may add the terms again, by another step, only if it `repeats`. Its tables have as many words
    as `tables` tells of the bits of a lane and the rows of all matrices.
    """

    kinds: tuple[Any, ...]
    code: Callable[["Tile"], None]
    repeats: bool = False
    tables: Callable[[int, int], int] = lambda bits, rows: 0


@dataclass(frozen=True)
class Tile:
    """A tile whose terms are all added: the code of a store reads it.

    `after` has the sums and each state, one vector for each row and vector of columns. `inside` are
    the lanes of each vector that are columns of the result; `again` computes `after` by another
    step. `row` is the first one of the tile, which has `size` rows and columns that are results,
    and belongs to a block with this `slot`. A `whole` tile is written at once, another one by way
    of the `homes` of its results.
    """

    vectors: Vectors
    words: "Words"
    row: Any
    size: tuple[Any, Any]
    slot: Any
    after: list[list[Any]]
    inside: list[Any]
    whole: Any
    homes: list[list[Any]]
    targets: list[list[Any]]
    again: Callable[[Step], list[list[Any]]]

    def put(self, number: int, values: list[Any]) -> None:
        """Sets result `number` of the tile; a later call overwrites it."""
        with self.vectors.builder.if_else(self.whole) as (at_once, later):
            for branch, addresses in ((at_once, self.targets), (later, self.homes)):
                with branch:
                    for value, address in zip(values, addresses[number], strict=True):
                        self.vectors.store(value, address)


FLOATS, DOUBLES = (
    Store((kind,), lambda tile: tile.put(0, tile.after[0]))
    for kind in (ir.FloatType(), ir.DoubleType())
)
"""The sums of float32, and of float64, themselves."""


@dataclass(frozen=True)
class Words:
    """The arguments of a task by their names; `used` has those of the arrays that code reads."""

    vectors: Vectors
    base: Any
    moved: dict[str, Any]
    used: set[str]

    def number(self, name: str) -> Any:
        """An int64."""
        return self.vectors.builder.load(self.vectors.at(self.base, _POSITION[name]))

    def halves(self, name: str) -> Any:
        """Half of a number, in every lane."""
        v, b = self.vectors, self.vectors.builder
        return v.spread(b.fmul(b.sitofp(self.number(name), v.scalar), v.scalar(0.5)))

    def array(self, name: str, kind: Any = INDEX) -> Any:
        """The address of an array of `kind`."""
        b = self.vectors.builder
        self.used.add(name)
        start = b.inttoptr(self.number(name), kind.as_pointer())
        return b.gep(start, [self.moved[name]]) if name in self.moved else start

    def move(self, matrix: Any, rows: Any, results: int) -> None:
        """Lets arrays begin at a pair of matrices; there are `rows` of factors in each."""
        b, number = self.vectors.builder, self.number
        first = b.mul(matrix, rows)
        self.moved["begin"] = self.moved["end"] = first
        self.moved["parameters"] = b.mul(first, INDEX(PARAMETERS))
        self.moved["left"] = b.mul(first, number("depth"))
        self.moved["rows"] = b.mul(matrix, number("rows"))
        self.moved["source"] = b.mul(matrix, number("source_step"))
        for result in range(results):
            self.moved[f"out_{result}"] = b.mul(matrix, number("out_step"))


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
                for end, (value, *state) in zip(ends, self._with_states(carried), strict=True)
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

        v.for_each(registers, clear)
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
            after = v.when(ends, added, lambda: self._add_registers(added, joined))
            return [*after, b.add(at, terms)]

        return v.loop(b.sub(stop, first), [*begun, INDEX(0)], group)[:-1]

    def _add_registers(self, carried: list[Any], count: Any) -> list[Any]:
        """Adds register 0 to the next one, and so on to register `count`."""
        v, b, size = self.v, self.v.builder, self._size
        half, limit = self.words.halves("half"), self.words.halves("limit")

        def centred(values: list[Any], half: Any) -> list[Any]:
            return [b.fsub(value, half) for value in values[:size]] + values[size:]

        def register(n: Any, carried: list[Any]) -> list[Any]:
            number = b.add(n, INDEX(1))
            last, after = b.icmp_signed("==", number, count), []
            homes = self._homes(self._register(number), size)
            for (lower, *state), home in zip(self._with_states(carried), homes, strict=True):
                after.append(self.step.code(v, b.fadd(v.load(home), lower), state, limit))
                v.store(b.select(last, after[-1][0], half), home)
            return centred(_by_array(after), half)

        begun = self.words.halves("inner_half")
        lower = centred(carried, begun)
        if self.step.passed is not None:
            lower = [self.step.passed(v, each) for each in lower[:size]] + lower[size:]
        return [begun] * size + v.loop(count, lower, register)[size:]

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
            for n, (old, *state) in enumerate(self._with_states(carried)):
                if n % self.vectors == 0:
                    factor = v.spread(b.load(v.at(factors[n // self.vectors], k)))
                column, scale = columns[n % self.vectors], factor
                if self.step.product is not None:
                    column = self.step.product(v, words, factor, column)
                    scale = words.halves("unit")
                after.append(step(v, v.add_product(scale, column, old), state, limit))
            return _by_array(after)

        return v.loop(count, begun, term, unrolled=False)

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

    def _with_states(self, carried: list[Any]) -> list[list[Any]]:
        """Each sum with its states."""
        return [carried[n :: self._size] for n in range(self._size)]


def _by_array(sums: Iterable[list[Any]]) -> list[Any]:
    """All sums, then the first state of all, then the second, from sums with their states."""
    return list(chain(*zip(*sums, strict=True)))
