"""Packs columns of any numeric type in a panel of floats: code for `tiles`.

Row k of a panel holds the numbers `source[offsets[k] + starts[lane]]`, one for each lane; from
integers a zero point is subtracted.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from tracer.interpreter.kernel_entries import UnfitError
from tracer.interpreter.kernels.vectors import INDEX, Vectors

_AHEAD = 16
"""Terms that are fetched in advance: the rows of a large matrix are too far apart for the
processor to foresee them."""
_RUN = 3
"""Numbers of a run: where it begins in the source, its first lane, and its lanes."""


def element(kind: np.dtype[Any]) -> Any:
    """The LLVM type of a number."""
    if kind in (np.float32, np.float64):
        return ir.FloatType() if kind.itemsize == 4 else ir.DoubleType()
    if kind.kind not in "iu":
        raise UnfitError(f"tiles take floats of 32 and 64 bits and integers, not {kind}")
    return ir.IntType(8 * kind.itemsize)


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

                v.each(size, vector, v.count)

            v.each(count, run)

        v.each(self.depth, term)

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
                    v.each(few, lambda n: self._term(starts, count, b.add(k, n)))

        with b.if_then(b.icmp_signed(">", whole, INDEX(0))):
            v.each(whole, terms, v.count)
        with b.if_then(b.icmp_signed("<", whole, self.depth)):
            rest = b.sub(self.depth, whole)
            v.each(rest, lambda n: self._term(starts, count, b.add(whole, n)))

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

        v.each(count, lane)

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

        v.each(count, lanes, v.count)

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
