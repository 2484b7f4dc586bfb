"""Products of matrices, tile by tile, with a step after each multiply-add and a store of one's own.

A task packs the columns of a tile in a panel. It then passes over the terms with some rows of
factors at a time, whose sums stay in vector registers. A *step* says what follows each
multiply-add, a *store* what becomes of the sums. Both are pieces of LLVM code; `task` compiles the
function for them, a type of numbers, and a size of tile.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir

from tracer.interpreter.kernels.panels import Panel, element
from tracer.interpreter.kernels.vectors import INDEX, REGISTER, Vectors, compiled

ARRAYS = (
    "left", "source", "offsets", "starts", "runs", "first_runs", "places", "begin",
    "out_0", "out_1", "out_2",
)  # fmt: skip
"""Arrays of a task: factors (rows, terms), floats, with rows of 0 up to a whole tile; the numbers
of the columns; int64 offsets of the terms in them; where each column begins; runs of neighbours
(see `panels`), and the first run of each tile, none where columns are gathered one by one; where
the result of each column lies; what the sums of each row begin with, floats; results."""

NUMBERS = (
    "rows", "tall", "columns", "wide", "depth", "row_stride", "limit", "half",
)  # fmt: skip
"""Numbers of a task: rows, and of a block; columns, and tiles of columns of a block; terms;
elements of the results between rows; twice the limit of a step; 1 where lanes hold the sum plus one
half."""

_POSITION = {name: 2 * number for number, name in enumerate(ARRAYS)} | {
    name: 2 * len(ARRAYS) + number for number, name in enumerate(NUMBERS)
}
_ALIGNED = 64

StepCode = Callable[[Vectors, Any, list[Any], Any], list[Any]]
"""(vectors, sum after the multiply-add, state, limit) -> sum and state after the step."""


@dataclass(frozen=True)
class Step:
    """What follows each multiply-add, and the start; vectors of state begin with 0."""

    states: int
    code: StepCode


NOTHING = Step(0, lambda vectors, sums, state, limit: [sums])
"""The next multiply-add."""


@dataclass(frozen=True)
class Store:
    """What becomes of a tile of sums: `code` puts vectors of these LLVM types to results."""

    kinds: tuple[Any, ...]
    code: Callable[["Tile"], None]


@dataclass(frozen=True)
class Tile:
    """A tile whose terms are all added: the code of a store reads it.

    `after` has the sums and each state, one vector for each row and vector of columns. `inside` are
    the lanes of each vector that are columns of the result; `exact` computes the sums again without
    a step.
    """

    vectors: Vectors
    words: "Words"
    after: list[list[Any]]
    inside: list[Any]
    homes: list[list[Any]]
    exact: Callable[[], list[Any]]

    def put(self, number: int, values: list[Any]) -> None:
        """Sets result `number` of the tile; a later call overwrites it."""
        for value, home in zip(values, self.homes[number], strict=True):
            self.vectors.store(value, home)


@dataclass(frozen=True)
class Words:
    """The arguments of a task by their names."""

    vectors: Vectors
    base: Any

    def number(self, name: str) -> Any:
        """An int64."""
        return self.vectors.builder.load(self.vectors.at(self.base, _POSITION[name]))

    def halves(self, name: str) -> Any:
        """Half of a number, in every lane."""
        v, b = self.vectors, self.vectors.builder
        return v.spread(b.fmul(b.sitofp(self.number(name), v.scalar), v.scalar(0.5)))

    def array(self, name: str, kind: Any = INDEX) -> Any:
        """The address of an array of `kind`."""
        return self.vectors.builder.inttoptr(self.number(name), kind.as_pointer())


@cache
def task(
    step: Step, store: Store, source: np.dtype[Any], bits: int, rows: int, vectors: int
) -> int:
    """Compiles a task for floats of `bits`, and tiles of some rows and vectors of columns.

    Returns the address of a function (int64 words, block) -> None that `task_team` runs.
    """

    def write(builder: Any, given: Any) -> None:
        v = Vectors(builder, bits)
        _Task(v, Words(v, given[0]), step, store, source, rows, vectors).write(given[1])

    return compiled([INDEX.as_pointer(), INDEX], write)


def lanes(bits: int) -> int:
    """Floats of `bits` in a vector."""
    return REGISTER // bits


@dataclass(frozen=True)
class _Task:
    """Writes the code of a task."""

    v: Vectors
    words: Words
    step: Step
    store: Store
    source: np.dtype[Any]
    rows: int
    vectors: int

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return self.vectors * self.v.count

    def write(self, block: Any) -> None:
        """The tiles of one block: some rows, some columns."""
        v, b, number = self.v, self.v.builder, self.words.number
        tall, wide, height = number("tall"), number("wide"), number("rows")
        down = _parts(b, height, tall)
        low = b.mul(b.srem(block, down), tall)
        high = v.least_index(b.add(low, tall), height)
        first = b.mul(b.sdiv(block, down), wide)
        tiles = _parts(b, number("columns"), INDEX(self.width))
        count = b.sub(v.least_index(b.add(first, wide), tiles), first)
        memory, panel, homes = self._memory()

        def tile(n: Any) -> None:
            column = b.mul(b.add(first, n), INDEX(self.width))
            inside = v.least_index(INDEX(self.width), b.sub(number("columns"), column))
            self._pack(b.add(first, n), column, inside, panel)
            v.each(b.sub(high, low), lambda row: self._band(
                b.add(low, row), high, column, inside, panel, homes), self.rows)  # fmt: skip

        v.each(count, tile)
        b.call(_external(b, "free", ir.VoidType(), memory.type), [memory])

    def _memory(self) -> tuple[Any, Any, list[Any]]:
        """Memory to free, the panel in it, and room for each result of a tile."""
        v, b = self.v, self.v.builder
        row, result = self.width * v.bits // 8, self.rows * self.width * 8
        panel_bytes = b.mul(b.add(self.words.number("depth"), INDEX(1)), INDEX(row))
        total = b.add(panel_bytes, INDEX(result * len(self.store.kinds) + 2 * _ALIGNED))
        memory = b.call(_external(b, "malloc", INDEX, INDEX), [total])
        aligned = b.and_(b.add(memory, INDEX(_ALIGNED)), INDEX(-_ALIGNED))
        after = b.add(aligned, panel_bytes)
        homes = [b.inttoptr(b.add(after, INDEX(n * result)), kind.as_pointer())
                 for n, kind in enumerate(self.store.kinds)]  # fmt: skip
        return memory, b.inttoptr(aligned, v.scalar.as_pointer()), homes

    def _pack(self, tile: Any, column: Any, count: Any, panel: Any) -> None:
        v, b, words = self.v, self.v.builder, self.words
        packed = Panel(
            v, self.source, words.array("source", element(self.source)), words.array("offsets"),
            words.number("depth"), panel, self.width,
        )  # fmt: skip
        ends = v.at(words.array("first_runs"), tile)
        begin, end = b.load(ends), b.load(v.at(ends, 1))
        runs = b.sub(end, begin)
        with b.if_else(b.icmp_signed(">", runs, INDEX(0))) as (neighbours, apart):
            with neighbours:
                packed.copy(v.at(words.array("runs"), b.mul(begin, INDEX(3))), runs)
            with apart:
                packed.gather(v.at(words.array("starts"), column), count)

    def _band(
        self, row: Any, high: Any, column: Any, count: Any, panel: Any, homes: list[Any]
    ) -> None:
        """Sums some rows, stores them, and writes the results."""
        v, b = self.v, self.v.builder
        places = [n * self.width + i * v.count for n in range(self.rows)
                  for i in range(self.vectors)]  # fmt: skip
        tile = Tile(
            v, self.words, self._summed(row, panel, self.step),
            [self._inside(count, i) for i in range(self.vectors)],
            [[v.at(home, place) for place in places] for home in homes],
            lambda: self._summed(row, panel, NOTHING)[0],
        )  # fmt: skip
        self.store.code(tile)
        rows = v.least_index(INDEX(self.rows), b.sub(high, row))
        for number, home in enumerate(homes):
            self._deliver(f"out_{number}", home, rows, row, column, count)

    def _summed(self, row: Any, panel: Any, step: Step) -> list[list[Any]]:
        """The sums, and each state, after all terms."""
        v, b, words = self.v, self.v.builder, self.words
        depth, left = words.number("depth"), words.array("left", v.scalar)
        factors = [v.at(left, b.mul(b.add(row, INDEX(n)), depth)) for n in range(self.rows)]
        starts = v.at(words.array("begin", v.scalar), row)
        sums = [v.spread(b.load(v.at(starts, n))) for n in range(self.rows)
                for _ in range(self.vectors)]  # fmt: skip
        size, limit = len(sums), words.halves("limit")
        states = [ir.Constant(v.kind, None)] * step.states
        begun = [step.code(v, value, states, limit) for value in sums]

        def term(k: Any, carried: list[Any]) -> list[Any]:
            at = v.at(panel, b.mul(k, INDEX(self.width)))
            columns = [v.load(v.at(at, i * v.count)) for i in range(self.vectors)]
            after = []
            for n in range(size):
                if n % self.vectors == 0:
                    factor = v.spread(b.load(v.at(factors[n // self.vectors], k)))
                old, *state = carried[n::size]
                added = v.add_product(factor, columns[n % self.vectors], old)
                after.append(step.code(v, added, state, limit))
            return _by_array(after)

        done = v.loop(depth, _by_array(begun), term)
        return [done[n * size : (n + 1) * size] for n in range(1 + step.states)]

    def _inside(self, count: Any, vector: int) -> Any:
        """Which lanes of a vector are columns."""
        v, b = self.v, self.v.builder
        numbers = ir.Constant(v.integers, [vector * v.count + n for n in range(v.count)])
        width = count if v.bits == 64 else b.trunc(count, ir.IntType(32))
        single = b.insert_element(ir.Constant(v.integers, ir.Undefined), width, ir.IntType(32)(0))
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), v.count), [0] * v.count)
        wide = b.shuffle_vector(single, ir.Constant(v.integers, ir.Undefined), lanes)
        return b.icmp_signed("<", numbers, wide)

    def _deliver(self, out: str, home: Any, rows: Any, row: Any, column: Any, count: Any) -> None:
        """Copies the rows of a result to its array, lane by lane or in whole vectors."""
        v, b, words = self.v, self.v.builder, self.words
        array, places = words.array(out, home.type.pointee), v.at(words.array("places"), column)
        first, last = b.load(places), b.load(v.at(places, b.sub(count, INDEX(1))))
        whole = b.and_(
            b.icmp_signed("==", b.sub(last, first), INDEX(self.width - 1)),
            b.icmp_signed("==", count, INDEX(self.width)),
        )
        kind = ir.VectorType(home.type.pointee, v.count)

        def each_row(n: Any) -> None:
            here = v.at(home, b.mul(n, INDEX(self.width)))
            there = v.at(array, b.mul(b.add(row, n), words.number("row_stride")))
            with b.if_else(whole) as (together, apart):
                with together:
                    to = v.at(there, first)
                    v.each(INDEX(self.width), lambda i: v.store(
                        v.load(v.at(here, i), kind), v.at(to, i)), v.count)  # fmt: skip
                with apart:
                    v.each(count, lambda i: b.store(
                        b.load(v.at(here, i)), v.at(there, b.load(v.at(places, i)))))  # fmt: skip

        v.each(rows, each_row)


def _by_array(sums: list[list[Any]]) -> list[Any]:
    """All sums, then the first state of all, then the second, from sums with their states."""
    return [value for values in zip(*sums, strict=True) for value in values]


def _parts(builder: Any, total: Any, size: Any) -> Any:
    """How many parts of a size cover the total."""
    return builder.sdiv(builder.sub(builder.add(total, size), INDEX(1)), size)


def _external(builder: Any, name: str, result: Any, argument: Any) -> Any:
    """A function of the C library."""
    found = builder.module.globals.get(name)
    return found or ir.Function(builder.module, ir.FunctionType(result, [argument]), name)
