"""Builds LLVM IR for vectors of integer lanes: loads, products, loops; used by `llvm_sums`."""

from collections.abc import Callable, Iterable, Sequence
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
"""Instructions that multiply pairs of int16 and add them, by register bits."""
VECTORS = 2
COLUMNS_16, COLUMNS_32 = (VECTORS * REGISTER // bits for bits in (16, 32))

INDEX = ir.IntType(64)
_WORD = ir.IntType(32)


@dataclass(frozen=True)
class Lanes:
    """Builds the code of one intrinsic, whose arguments are laid out as `llvm_sums` says."""

    context: Any
    builder: Any
    signature: Any
    arguments: Any

    @property
    def bits(self) -> int:
        """Bits of a lane."""
        width: int = self.signature.args[6].dtype.bitwidth
        return width

    @property
    def paired(self) -> bool:
        """Whether the panel holds two terms a lane."""
        width: int = self.signature.args[4].dtype.bitwidth
        return width < self.bits

    @property
    def count(self) -> int:
        """Lanes of a vector."""
        return REGISTER // self.bits

    @property
    def vector(self) -> Any:
        """The type of a vector."""
        return ir.VectorType(ir.IntType(self.bits), self.count)

    def data(self, number: int, index: Any) -> Any:
        """The address of an element of array argument `number`."""
        kind = self.signature.args[number]
        make: Any = make_array
        array = make(kind)(self.context, self.builder, self.arguments[number])
        return self.builder.gep(array.data, [index])

    def rows(self, base: Any, count: int) -> list[Any]:
        """Addresses of the vectors of `count` rows."""
        size = VECTORS * self.count
        indices = [r * size + v * self.count for r in range(count) for v in range(VECTORS)]
        return [self.builder.gep(base, [INDEX(index)]) for index in indices]

    def load(self, address: Any) -> Any:
        """Loads a vector from an address of any alignment."""
        loaded = self.builder.load(self.builder.bitcast(address, self.vector.as_pointer()))
        loaded.align = 2
        return loaded

    def store(self, value: Any, address: Any) -> None:
        """Stores a vector at an address of any alignment."""
        to = self.builder.bitcast(address, self.vector.as_pointer())
        self.builder.store(value, to).align = 2

    def store_all(self, vectors: Iterable[Any], addresses: Iterable[Any]) -> Any:
        """Stores vectors; returns what an intrinsic without result returns."""
        for value, address in zip(vectors, addresses, strict=True):
            self.store(value, address)
        return self.context.get_dummy_value()

    def spread(self, scalar: Any) -> Any:
        """The scalar in every lane."""
        kind = ir.VectorType(scalar.type, REGISTER // scalar.type.width)
        zeros = ir.Constant(ir.VectorType(_WORD, kind.count), [0] * kind.count)
        single = self.builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, _WORD(0))
        wide = self.builder.shuffle_vector(single, ir.Constant(kind, ir.Undefined), zeros)
        return self.builder.bitcast(wide, self.vector)

    def call(self, name: str, *operands: Any) -> Any:
        """Calls an LLVM intrinsic on vectors: smin, smax, sadd.sat."""
        insert: Any = cgutils.get_or_insert_function
        kind = ir.FunctionType(self.vector, [self.vector] * len(operands))
        code = insert(self.builder.module, kind, f"llvm.{name}.v{self.count}i{self.bits}")
        return self.builder.call(code, operands)

    def products(self, k: Any, odd: int, rows: int) -> list[Any]:
        """Products of each row's factor and the panel's vectors at k + `odd`, k even."""
        at = self.builder.add(k, INDEX(odd))
        return self._times(k if self.paired else at, at, rows)

    def pairs(self, k: Any, rows: int) -> list[Any]:
        """The sums of the products at k and at k + 1, k even."""
        if self.paired:
            return self._times(k, self.builder.lshr(k, INDEX(1)), rows)
        return list(map(self.builder.add, *(self.products(k, odd, rows) for odd in (0, 1))))

    def _times(self, k: Any, factors: Any, rows: int) -> list[Any]:
        b, (_, first, stride, _, _, offset) = self.builder, self.arguments[:6]
        size = VECTORS * self.count
        column = self.data(4, b.add(offset, b.mul(k, INDEX(size))))
        column = b.bitcast(column, ir.IntType(self.bits).as_pointer())
        columns = [self.load(b.gep(column, [INDEX(v * self.count)])) for v in range(VECTORS)]
        terms = []
        for row in range(rows):
            at = b.add(b.add(first, b.mul(stride, INDEX(row))), factors)
            factor = self.spread(b.load(self.data(0, at)))
            terms += [self._product(factor, values) for values in columns]
        return terms

    def _product(self, factor: Any, values: Any) -> Any:
        """The product of each lane; of pairs, the sum of the products of both halves."""
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
        """Runs `step(k, carried)` for k = first, first + stride, ... below stop; returns `carried`.

        `bounds` are first and stop; None is 0 and the depth. The first step is always taken.
        """
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
