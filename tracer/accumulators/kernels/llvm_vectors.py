"""Vectors of integer lanes in LLVM's own terms: what `lanes` builds its loops of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import binding, ir
from numba.core import cgutils
from numba.np.arrayobj import make_array

REGISTER = 512 if binding.get_host_cpu_features().get("avx512bw") else 256
_PAIRWISE = {
    bits: name
    for bits, name, feature in (
        (256, "llvm.x86.avx2.pmadd.wd", "avx2"),
        (512, "llvm.x86.avx512.pmaddw.d.512", "avx512bw"),
    )
    if binding.get_host_cpu_features().get(feature)
}
"""Instructions that multiply pairs and add them, where there are any."""
VECTORS = 2
COLUMNS_16, COLUMNS_32 = (VECTORS * REGISTER // bits for bits in (16, 32))

INDEX = ir.IntType(64)
_WORD = ir.IntType(32)


@dataclass(frozen=True)
class Lanes:
    """Code for vectors of lanes of so many bits."""

    context: Any
    builder: Any
    signature: Any
    arguments: Any

    @property
    def bits(self) -> int:
        """Of a lane."""
        width: int = self.signature.args[6].dtype.bitwidth
        return width

    @property
    def paired(self) -> bool:
        """Whether the panel has two terms in the place of a lane."""
        width: int = self.signature.args[4].dtype.bitwidth
        return width < self.bits

    @property
    def count(self) -> int:
        """Lanes of a vector."""
        return REGISTER // self.bits

    @property
    def vector(self) -> Any:
        """The type."""
        return ir.VectorType(ir.IntType(self.bits), self.count)

    def data(self, number: int, place: Any) -> Any:
        """Where an element of an array argument is."""
        kind = self.signature.args[number]
        make: Any = make_array
        array = make(kind)(self.context, self.builder, self.arguments[number])
        return self.builder.gep(array.data, [place])

    def rows(self, base: Any, count: int) -> list[Any]:
        """Addresses of the vectors of `count` rows, one after the other."""
        size = VECTORS * self.count
        places = [r * size + v * self.count for r in range(count) for v in range(VECTORS)]
        return [self.builder.gep(base, [INDEX(place)]) for place in places]

    def load(self, address: Any) -> Any:
        """A vector from anywhere."""
        loaded = self.builder.load(self.builder.bitcast(address, self.vector.as_pointer()))
        loaded.align = 2
        return loaded

    def store(self, value: Any, address: Any) -> None:
        """A vector to anywhere."""
        to = self.builder.bitcast(address, self.vector.as_pointer())
        self.builder.store(value, to).align = 2

    def spread(self, scalar: Any) -> Any:
        """The scalar in every lane."""
        kind = ir.VectorType(scalar.type, REGISTER // scalar.type.width)
        zeros = ir.Constant(ir.VectorType(_WORD, kind.count), [0] * kind.count)
        single = self.builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, _WORD(0))
        wide = self.builder.shuffle_vector(single, ir.Constant(kind, ir.Undefined), zeros)
        return self.builder.bitcast(wide, self.vector)

    def call(self, name: str, *operands: Any) -> Any:
        """LLVM's own function of vectors: smin, smax, sadd.sat."""
        insert: Any = cgutils.get_or_insert_function
        kind = ir.FunctionType(self.vector, [self.vector] * len(operands))
        code = insert(self.builder.module, kind, f"llvm.{name}.v{self.count}i{self.bits}")
        return self.builder.call(code, operands)

    def products(self, k: Any, odd: int, rows: int) -> list[Any]:
        """Of every row's factor at k + `odd`, k even, with the vectors of the panel there."""
        at = self.builder.add(k, INDEX(odd))
        return self._times(k if self.paired else at, at, rows)

    def pairs(self, k: Any, rows: int) -> list[Any]:
        """The products at k and k + 1 added up, k even."""
        if self.paired:
            return self._times(k, self.builder.lshr(k, INDEX(1)), rows)
        return list(map(self.builder.add, *(self.products(k, odd, rows) for odd in (0, 1))))

    def _times(self, k: Any, factors: Any, rows: int) -> list[Any]:
        b, (_, first, stride, _, _, place) = self.builder, self.arguments[:6]
        size = VECTORS * self.count
        column = self.data(4, b.add(place, b.mul(k, INDEX(size))))
        column = b.bitcast(column, ir.IntType(self.bits).as_pointer())
        columns = [self.load(b.gep(column, [INDEX(v * self.count)])) for v in range(VECTORS)]
        made = []
        for row in range(rows):
            at = b.add(b.add(first, b.mul(stride, INDEX(row))), factors)
            factor = self.spread(b.load(self.data(0, at)))
            made += [self._product(factor, values) for values in columns]
        return made

    def _product(self, factor: Any, values: Any) -> Any:
        """Lane by lane; of pairs the sum of the products of either half."""
        b = self.builder
        if not self.paired:
            return b.mul(factor, values)
        halves = ir.VectorType(ir.IntType(16), 2 * self.count)
        name = _PAIRWISE.get(REGISTER)
        if name is not None:
            insert: Any = cgutils.get_or_insert_function
            kind = ir.FunctionType(self.vector, [halves, halves])
            code = insert(b.module, kind, name)
            return b.call(code, [b.bitcast(factor, halves), b.bitcast(values, halves)])
        half = ir.Constant(self.vector, [16] * self.count)
        high = b.mul(b.ashr(factor, half), b.ashr(values, half))
        low = [b.ashr(b.shl(word, half), half) for word in (factor, values)]
        return b.add(high, b.mul(*low))

    def loop(
        self,
        start: Sequence[Any],
        step: Callable[[Any, list[Any]], list[Any]],
        stride: Any,
        bounds: tuple[Any, Any] | None = None,
    ) -> list[Any]:
        """`step(k, carried)` for k = first, first + stride, ... below the stop; what it carried
        last. Bounds are those two, 0 and the depth if None; the first step is always taken."""
        b, before = self.builder, self.builder.block
        body, done = (b.function.append_basic_block(name) for name in ("body", "done"))
        b.branch(body)
        b.position_at_end(body)
        first, stop = bounds or (INDEX(0), self.arguments[3])
        k = b.phi(INDEX)
        k.add_incoming(first, before)
        carried = [b.phi(value.type) for value in start]
        for phi, value in zip(carried, start, strict=True):
            phi.add_incoming(value, before)
        after = step(k, carried)
        following = b.add(k, stride if isinstance(stride, ir.Value) else INDEX(stride))
        k.add_incoming(following, b.block)
        for phi, value in zip(carried, after, strict=True):
            phi.add_incoming(value, b.block)
        b.cbranch(b.icmp_signed("<", following, stop), body, done)
        b.position_at_end(done)
        return after
