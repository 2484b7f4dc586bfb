"""Products of matrices, tile by tile, with a step after each multiply-add and a store of one's own.

A *step* says what follows each multiply-add, a *store* what becomes of the sums. Both are pieces of
LLVM code; `tile_code` compiles the function for them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from tracer.interpreter.kernels.vectors import INDEX, Vectors

ARRAYS = (
    "left", "source", "offsets", "starts", "runs", "first_runs", "places", "begin", "end",
    "groups", "first_groups", "out_0", "out_1", "out_2", "memory", "slots", "parameters",
    "tables",
)  # fmt: skip
"""Arrays of a task: factors (rows, terms), floats, with rows of 0 up to a whole tile; the numbers
of the columns; int64 offsets of the terms in them; where each column begins; runs of neighbours
(see `panels`), and the first run of each tile, none where columns are gathered one by one; where
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
    in register 0, `product` the multiplication.
    """

    states: int
    code: StepCode
    grouped: bool = False
    ends: bool = False
    inner: StepCode | None = None
    product: ProductCode | None = None


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


FLOATS = Store((ir.FloatType(),), lambda tile: tile.put(0, tile.after[0]))
"""The sums of float32 themselves."""


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
