"""Compiles tasks of `tiles`: products of matrices, tile by tile.

A task packs some terms of the columns of a tile in a panel, which stays in the second-level cache.
It then passes over them with some rows of factors at a time, whose sums stay in vector registers.
Between panels the sums are in memory.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir

from tracer.interpreter.compiled_code import INTEGERS, Code, Place, Task, UnfitError, loading
from tracer.interpreter.kernels.machine_code import (
    INDEX,
    LATENCY,
    MOST_ROWS,
    REGISTER,
    ROOM,
    Vectors,
    compile_task,
)
from tracer.interpreter.kernels.tiles import (
    ARRAYS,
    DOUBLES,
    FLOATS,
    NOTHING,
    NUMBERS,
    PARAMETERS,
    Band,
    Step,
    Store,
    Tile,
    Words,
)

__all__ = ["DOUBLES", "FLOATS", "LATENCY", "MOST_ROWS", "NOTHING", "ROOM", "lanes", "memory",
           "task"]  # fmt: skip
_ALIGNED = 64
"""Bytes of a cache line, and of the widest vector."""
_RESULT = 8
"""Bytes that a result takes at most."""


@cache
def task(
    step: Step, store: Store, source: np.dtype[Any], bits: int, rows: int, vectors: int
) -> Task:
    """Compiles a task for floats of `bits`, and tiles of some rows and vectors of columns."""
    with loading():  # a second thread that needs the same task waits for the first
        return _compiled_task(step, store, source, bits, rows, vectors)


@cache
def _compiled_task(
    step: Step, store: Store, source: np.dtype[Any], bits: int, rows: int, vectors: int
) -> Task:
    if source.kind == "f" and source.itemsize * 8 != bits:
        raise UnfitError(f"lanes of {bits} bits cannot hold {source}")

    def write(builder: Any, given: Any) -> set[str]:
        v = Vectors(builder, bits)
        words = Words(v, given[0], {}, set())
        TaskCode(v, words, step, store, source, rows, vectors).write(given[1])
        return words.used

    address, used = compile_task(write, step, store, source, bits, rows, vectors)
    factors = Place(np.dtype(f"f{bits // 8}"))
    results = [
        np.dtype(f"i{kind.width // 8}") if isinstance(kind, ir.IntType)
        else np.dtype(np.float32 if isinstance(kind, ir.FloatType) else np.float64)
        for kind in store.kinds
    ]  # fmt: skip
    kinds = {
        "left": factors, "source": Place(source), "begin": factors, "end": factors,
        "memory": Place(np.dtype(np.uint8), True), "slots": Place(INTEGERS.dtype, True),
        "parameters": Place(np.dtype(np.float64)), "tables": Place(INTEGERS.dtype, True),
    } | {f"out_{n}": Place(kind, True) for n, kind in enumerate(results)}  # fmt: skip
    places = tuple(kinds.get(name, INTEGERS) for name in ARRAYS)
    size = TileSize(step, store, bits, rows, vectors, used)
    return Task("a tile", lambda: Code(address), places, size.fits)


@dataclass(frozen=True)
class TileSize:
    """A tile of some rows and vectors, and the arrays that its code reads: what fits its task."""

    step: Step
    store: Store
    bits: int
    rows: int
    vectors: int
    used: frozenset[str]

    def fits(self, blocks: int, *arguments: Any) -> bool:
        """Whether arrays have the sizes that the numbers tell.

        `tile_tasks` looks at the indices in arrays, which it keeps; the greatest one is the last.
        """
        g = dict(zip((*ARRAYS, *NUMBERS), arguments, strict=True))
        padded = g["matrices"] * -(-g["rows"] // self.rows) * self.rows
        tiles = -(-g["columns"] // (self.vectors * lanes(self.bits)))
        sizes = {
            "left": padded * g["depth"], "begin": padded, "end": padded, "offsets": g["depth"],
            "starts": g["columns"], "places": g["columns"], "first_runs": tiles + 1,
            "parameters": padded * PARAMETERS, "memory": g["slot_count"] * g["slot_size"],
            "slots": g["slot_count"], "tables": g["slot_count"] * g["table_size"],
        }  # fmt: skip
        least = min(g["rows"], g["tall"], g["columns"], g["wide"], g["depth"], g["matrices"],
                    g["slot_count"], g["chunk"])  # fmt: skip
        needed = memory(self.step, self.store, self.bits, self.rows, self.vectors, g["tall"],
                        g["chunk"], g["registers"])  # fmt: skip
        return bool(
            least > 0 <= g["registers"] and g["slot_size"] >= needed
            and all(g[name].size == sizes[name] for name in self.used & sizes.keys())
            and g["table_size"] >= self.store.tables(self.bits, g["matrices"] * g["rows"])
            and self._reach(g)
        )  # fmt: skip

    def _reach(self, g: dict[str, Any]) -> bool:
        """Whether the last column, run, result and group are in their arrays."""
        last = (g["matrices"] - 1) * g["source_step"] + int(g["starts"][-1])
        written = (g["matrices"] - 1) * g["out_step"] + (g["rows"] - 1) * g["row_stride"]
        written += int(g["places"][-1])
        panels = -(-g["depth"] // g["chunk"])
        return (
            last < g["source"].size and g["runs"].size == 3 * int(g["first_runs"][-1])
            and all(written < g[f"out_{n}"].size for n in range(len(self.store.kinds)))
            and (not self.step.grouped or (g["first_groups"].size == panels + 1
                 and g["groups"].size == 2 * int(g["first_groups"][-1])))
        )  # fmt: skip


def memory(
    step: Step, store: Store, bits: int, rows: int, vectors: int, tall: int, chunk: int,
    registers: int,
) -> int:  # fmt: skip
    """Bytes that a block of `tall` rows needs."""
    row = vectors * lanes(bits) * bits // 8
    results = len(store.kinds) * _RESULT * rows * vectors * lanes(bits)
    return (chunk + 1 + tall * (1 + step.states + registers)) * row + results + 2 * _ALIGNED


def lanes(bits: int) -> int:
    """Floats of `bits` in a vector."""
    return REGISTER // bits


@dataclass(frozen=True)
class TaskCode:
    """The code of a task of `tiles`, for one step, store, type of numbers and size of tile."""

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
        tiles = _parts(b, number("columns"), INDEX(self.width))
        across = _parts(b, tiles, wide)
        self.words.move(
            b.sdiv(block, b.mul(down, across)),
            b.mul(_parts(b, height, INDEX(self.rows)), INDEX(self.rows)),
            len(self.store.kinds),
        )
        block = b.srem(block, b.mul(down, across))
        low = b.mul(b.srem(block, down), tall)
        high = v.least_index(b.add(low, tall), height)
        first = b.mul(b.sdiv(block, down), wide)
        count = b.sub(v.least_index(b.add(first, wide), tiles), first)
        slot = self._claimed()
        panel, partial, homes = self._memory(slot)

        def tile(n: Any) -> None:
            column = b.mul(b.add(first, n), INDEX(self.width))
            inside = v.least_index(INDEX(self.width), b.sub(number("columns"), column))

            def chunk(k: Any) -> None:
                deep = v.least_index(number("chunk"), b.sub(number("depth"), k))
                self._pack(b.add(first, n), column, inside, panel, k, deep)

                def some_rows(n: Any) -> None:
                    band = Band(v, self.words, self.step, self.rows, self.vectors, b.add(low, n),
                                v.at(partial, b.mul(n, self._state_width)), panel)  # fmt: skip
                    carried = band.added(k, deep)
                    last = b.icmp_signed("==", b.add(k, deep), number("depth"))
                    with b.if_else(last) as (finish, store):
                        with finish:
                            self._finish(band, carried, high, column, inside, homes, slot)
                        with store:
                            band.store(carried)

                v.for_each(b.sub(high, low), some_rows, self.rows)

            v.for_each(number("depth"), chunk, number("chunk"))

        v.for_each(count, tile)
        b.atomic_rmw("xchg", v.at(self.words.array("slots"), slot), INDEX(0), "seq_cst")

    def _claimed(self) -> Any:
        """A slot of memory that no other block uses; there is one for each thread."""
        b, before = self.v.builder, self.v.builder.block
        slots, count = self.words.array("slots"), self.words.number("slot_count")
        claim, done = (b.function.append_basic_block(name) for name in ("claim", "claimed"))
        b.branch(claim)
        b.position_at_end(claim)
        slot = b.phi(INDEX)
        slot.add_incoming(INDEX(0), before)
        taken = b.atomic_rmw("xchg", self.v.at(slots, slot), INDEX(1), "seq_cst")
        slot.add_incoming(b.srem(b.add(slot, INDEX(1)), count), claim)
        b.cbranch(b.icmp_signed("==", taken, INDEX(0)), done, claim)
        b.position_at_end(done)
        return slot

    @property
    def _state_width(self) -> Any:
        """Elements in memory of the sums of a row, of their states and of further registers."""
        vectors = self.v.builder.add(self.words.number("registers"), INDEX(1 + self.step.states))
        return self.v.builder.mul(vectors, INDEX(self.width))

    def _memory(self, slot: Any) -> tuple[Any, Any, list[Any]]:
        """The panel in a slot, sums between panels, and room for each result of a tile."""
        v, b, number = self.v, self.v.builder, self.words.number
        base = b.add(number("memory"), b.mul(slot, number("slot_size")))
        panel = b.and_(b.add(base, INDEX(_ALIGNED)), INDEX(-_ALIGNED))
        row = self.width * v.bits // 8
        partial = b.add(panel, b.mul(b.add(number("chunk"), INDEX(1)), INDEX(row)))
        states = b.mul(self._state_width, INDEX(v.bits // 8))
        results = b.add(partial, b.mul(number("tall"), states))
        size = _RESULT * self.rows * self.width
        homes = [b.inttoptr(b.add(results, INDEX(n * size)), kind.as_pointer())
                 for n, kind in enumerate(self.store.kinds)]  # fmt: skip
        kind = v.scalar.as_pointer()
        return b.inttoptr(panel, kind), b.inttoptr(partial, kind), homes

    def _pack(self, tile: Any, column: Any, count: Any, panel: Any, k: Any, deep: Any) -> None:
        """Packs `deep` terms from k on."""
        v, b, words = self.v, self.v.builder, self.words
        source, offsets = words.array("source", element(self.source)), words.array("offsets")
        packed = Panel(v, self.source, source, v.at(offsets, k), deep, panel, self.width,
                       words.number("zero"))  # fmt: skip
        ends = v.at(words.array("first_runs"), tile)
        begin, end = b.load(ends), b.load(v.at(ends, 1))
        runs = b.sub(end, begin)
        with b.if_else(b.icmp_signed(">", runs, INDEX(0))) as (neighbours, apart):
            with neighbours:
                packed.copy(v.at(words.array("runs"), b.mul(begin, INDEX(3))), runs)
            with apart:
                packed.gather(v.at(words.array("starts"), column), count)

    def _finish(
        self, band: Band, carried: list[Any], high: Any, column: Any, count: Any,
        homes: list[Any], slot: Any,
    ) -> None:  # fmt: skip
        """Stores some rows, and writes the results."""
        v, b, row = self.v, self.v.builder, band.row
        rows = v.least_index(INDEX(self.rows), b.sub(high, row))
        places = [n * self.width + i * v.count for n in range(self.rows)
                  for i in range(self.vectors)]  # fmt: skip
        tile = Tile(
            v, self.words, row, (rows, count), slot, band.final(carried),
            [self._inside(count, i) for i in range(self.vectors)],
            self._is_whole(row, high, column, count),
            [[v.at(home, place) for place in places] for home in homes],
            [self._targets(f"out_{n}", home, row, column) for n, home in enumerate(homes)],
            band.again,
        )  # fmt: skip
        self.store.code(tile)
        with b.if_then(b.not_(tile.whole)):
            for number, home in enumerate(homes):
                self._deliver(f"out_{number}", home, rows, row, column, count)

    def _inside(self, count: Any, vector: int) -> Any:
        """Which lanes of a vector are columns."""
        v, b = self.v, self.v.builder
        numbers = ir.Constant(v.integers, [vector * v.count + n for n in range(v.count)])
        width = count if v.bits == 64 else b.trunc(count, ir.IntType(32))
        return b.icmp_signed("<", numbers, v.spread(width))

    def _is_whole(self, row: Any, high: Any, column: Any, count: Any) -> Any:
        """Whether all rows of a tile, and all its columns side by side, are results."""
        v, b = self.v, self.v.builder
        places = v.at(self.words.array("places"), column)
        first, last = b.load(places), b.load(v.at(places, b.sub(count, INDEX(1))))
        conditions = (
            b.icmp_signed("==", b.sub(last, first), INDEX(self.width - 1)),
            b.icmp_signed("==", count, INDEX(self.width)),
            b.icmp_signed("<=", b.add(row, INDEX(self.rows)), high),
        )
        return b.and_(b.and_(conditions[0], conditions[1]), conditions[2])

    def _targets(self, out: str, home: Any, row: Any, column: Any) -> list[Any]:
        """Where the vectors of a whole tile lie in the results."""
        v, b, words = self.v, self.v.builder, self.words
        first = b.load(v.at(words.array("places"), column))
        start = v.at(words.array(out, home.type.pointee), first)
        lines = [v.at(start, b.mul(b.add(row, INDEX(n)), words.number("row_stride")))
                 for n in range(self.rows)]  # fmt: skip
        return [v.at(line, i * v.count) for line in lines for i in range(self.vectors)]

    def _deliver(self, out: str, home: Any, rows: Any, row: Any, column: Any, count: Any) -> None:
        """Copies the rows of a result to its array, lane by lane."""
        v, b, words = self.v, self.v.builder, self.words
        array, places = words.array(out, home.type.pointee), v.at(words.array("places"), column)

        def each_row(n: Any) -> None:
            here = v.at(home, b.mul(n, INDEX(self.width)))
            there = v.at(array, b.mul(b.add(row, n), words.number("row_stride")))
            v.for_each(count, lambda i: b.store(
                b.load(v.at(here, i)), v.at(there, b.load(v.at(places, i)))))  # fmt: skip

        v.for_each(rows, each_row)


def _parts(builder: Any, total: Any, size: Any) -> Any:
    """How many parts of a size cover the total."""
    return builder.sdiv(builder.sub(builder.add(total, size), INDEX(1)), size)


_AHEAD = 16
"""Terms that are fetched in advance: the rows of a large matrix are too far apart for the
processor to foresee them."""
_RUN = 3
"""Numbers of a run: where it begins in the source, its first lane, and its lanes."""


@dataclass(frozen=True)
class Panel:
    """Code that packs `depth` terms; a row has `width` lanes. Addresses and numbers are LLVM's."""

    vectors: Vectors
    kind: np.dtype[Any]
    source: Any
    offsets: Any
    depth: Any
    panel: Any
    width: int
    zero: Any

    def copy(self, runs: Any, count: Any) -> None:
        """Packs `count` runs of neighbours.

        A run copies whole vectors: it reads beyond its end, and the next one overwrites the rest.
        """
        v, b = self.vectors, self.vectors.builder

        def term(k: Any) -> None:
            here, there = self._row(k)
            last = b.sub(self.depth, INDEX(1))
            ahead, _ = self._row(v.least_index(b.add(k, INDEX(_AHEAD)), last))

            def run(number: Any) -> None:
                at = v.at(runs, b.mul(number, INDEX(_RUN)))
                start, lane, size = (b.load(v.at(at, n)) for n in range(_RUN))
                begin, to, later = v.at(here, start), v.at(there, lane), v.at(ahead, start)

                def vector(i: Any) -> None:
                    v.prefetch(v.at(later, i))
                    values = v.load(v.at(begin, i), ir.VectorType(element(self.kind), v.count))
                    v.store(self._floats(values, v.kind), v.at(to, i))

                v.for_each(size, vector, v.count)

            v.for_each(count, run)

        v.for_each(self.depth, term)

    def gather(self, starts: Any, count: Any) -> None:
        """Packs the first `count` lanes: as many terms as a vector has lanes at a time.

        Such terms are turned where they are neighbours in a column, else packed one by one.
        """
        v, b, few = self.vectors, self.vectors.builder, INDEX(self.vectors.count)
        whole = b.mul(b.sdiv(self.depth, few), few)

        def terms(k: Any) -> None:
            with b.if_else(self._are_neighbours(k)) as (near, far):
                with near:
                    self._turn(starts, count, k)
                with far:
                    v.for_each(few, lambda n: self._term(starts, count, b.add(k, n)))

        with b.if_then(b.icmp_signed(">", whole, INDEX(0))):
            v.for_each(whole, terms, v.count)
        with b.if_then(b.icmp_signed("<", whole, self.depth)):
            rest = b.sub(self.depth, whole)
            v.for_each(rest, lambda n: self._term(starts, count, b.add(whole, n)))

    def _are_neighbours(self, k: Any) -> Any:
        """Whether the terms of a vector from k on follow each other in a column."""
        v, b = self.vectors, self.vectors.builder
        kind = ir.VectorType(INDEX, v.count)
        first = b.load(v.at(self.offsets, k))
        expected = b.add(v.spread(first), ir.Constant(kind, list(range(v.count))))
        same = b.icmp_signed("==", v.load(v.at(self.offsets, k), kind), expected)
        bits = ir.IntType(v.count)
        return b.icmp_unsigned("==", b.bitcast(same, bits), bits(-1))

    def _term(self, starts: Any, count: Any, k: Any) -> None:
        v, b = self.vectors, self.vectors.builder
        here, there = self._row(k)

        def lane(i: Any) -> None:
            number = b.load(v.at(here, b.load(v.at(starts, i))))
            b.store(self._floats(number, v.scalar), v.at(there, i))

        v.for_each(count, lane)

    def _turn(self, starts: Any, count: Any, k: Any) -> None:
        """Packs terms from k on, which are neighbours: loads them by column, stores them by row."""
        v, b = self.vectors, self.vectors.builder
        here, there = self._row(k)
        kind = ir.VectorType(element(self.kind), v.count)

        def lanes(first: Any) -> None:
            numbers = (v.least_index(b.add(first, INDEX(n)), b.sub(count, INDEX(1)))
                       for n in range(v.count))  # fmt: skip
            columns = [v.load(v.at(here, b.load(v.at(starts, n))), kind) for n in numbers]
            for n, row in enumerate(v.turned(columns)):
                v.store(self._floats(row, v.kind), v.at(there, b.add(first, INDEX(n * self.width))))

        v.for_each(count, lanes, v.count)

    def _row(self, k: Any) -> tuple[Any, Any]:
        """Where term k lies in the source and in the panel."""
        v, b = self.vectors, self.vectors.builder
        origin = v.at(self.source, b.load(v.at(self.offsets, k)))
        return origin, v.at(self.panel, b.mul(k, INDEX(self.width)))

    def _floats(self, values: Any, kind: Any) -> Any:
        b = self.vectors.builder
        if self.kind.kind == "f":
            return values
        floats = (b.sitofp if self.kind.kind == "i" else b.uitofp)(values, kind)
        zero = b.sitofp(self.zero, self.vectors.scalar)
        return b.fsub(floats, self.vectors.spread(zero) if kind == self.vectors.kind else zero)


def element(kind: np.dtype[Any]) -> Any:
    """The LLVM type of a number."""
    if kind in (np.float32, np.float64):
        return ir.FloatType() if kind.itemsize == 4 else ir.DoubleType()
    if kind.kind not in "iu":
        raise UnfitError(f"tiles take floats of 32 and 64 bits and integers, not {kind}")
    return ir.IntType(8 * kind.itemsize)
