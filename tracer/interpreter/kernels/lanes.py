"""The innermost sums of a narrow accumulator: rows times a panel of columns, one lane a column.

Written in LLVM's own terms, as `micro` is, so that the sums of a tile stay in vector registers
while k runs. Lanes are int16 or int32. A panel is `panel[place + k * COLUMNS + lane]`; the sums of
row r are `sums[at + r * COLUMNS + lane]`; the factor of row r at k is
`left[first + r * stride + k]`, an int32: for int16 lanes it holds the factor twice.

numba keeps compiled code by the time stamp of the file of the function that is compiled: touch
`dense.py` after a change here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

_REGISTER = 512 if binding.get_host_cpu_features().get("avx512bw") else 256
_VECTORS = 1
ROWS = 6
"""Rows of a tile that is summed hopefully: its sums leave room for factors in 16 registers."""
FEWER = 3
"""Rows of other tiles, which keep two or three registers for each sum."""
GROUP = 4
"""Terms between which hopeful sums are looked at; depths are multiples of it."""
COLUMNS_16, COLUMNS_32 = (_VECTORS * _REGISTER // bits for bits in (16, 32))

_INDEX = ir.IntType(64)
_WORD = ir.IntType(32)


@dataclass(frozen=True)
class _Lanes:
    """Code for vectors of lanes of so many bits."""

    context: Any
    builder: Any
    signature: Any
    arguments: Any

    @property
    def bits(self) -> int:
        width: int = self.signature.args[6].dtype.bitwidth
        return width

    @property
    def count(self) -> int:
        return _REGISTER // self.bits

    @property
    def vector(self) -> Any:
        return ir.VectorType(ir.IntType(self.bits), self.count)

    def data(self, number: int, place: Any) -> Any:
        """Where an element of an array argument is."""
        kind = self.signature.args[number]
        make: Any = make_array
        array = make(kind)(self.context, self.builder, self.arguments[number])
        return self.builder.gep(array.data, [place])

    def rows(self, base: Any, count: int) -> list[Any]:
        """Addresses of the vectors of `count` rows, one after the other."""
        size = _VECTORS * self.count
        places = [r * size + v * self.count for r in range(count) for v in range(_VECTORS)]
        return [self.builder.gep(base, [_INDEX(place)]) for place in places]

    def load(self, address: Any) -> Any:
        loaded = self.builder.load(self.builder.bitcast(address, self.vector.as_pointer()))
        loaded.align = 2
        return loaded

    def store(self, value: Any, address: Any) -> None:
        to = self.builder.bitcast(address, self.vector.as_pointer())
        self.builder.store(value, to).align = 2

    def spread(self, scalar: Any) -> Any:
        """The scalar in every lane."""
        kind = ir.VectorType(scalar.type, _REGISTER // scalar.type.width)
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

    def products(self, k: Any, rows: int) -> list[Any]:
        """Of every row's factor at k with the vectors of the panel at k."""
        b, (_, first, stride, _, _, place) = self.builder, self.arguments[:6]
        size = _VECTORS * self.count
        column = self.data(4, b.add(place, b.mul(k, _INDEX(size))))
        columns = [self.load(b.gep(column, [_INDEX(v * self.count)])) for v in range(_VECTORS)]
        made = []
        for row in range(rows):
            at = b.add(b.add(first, b.mul(stride, _INDEX(row))), k)
            factor = self.spread(b.load(self.data(0, at)))
            made += [b.mul(factor, values) for values in columns]
        return made

    def loop(
        self, start: Sequence[Any], step: Callable[[Any, list[Any]], list[Any]], stride: int
    ) -> list[Any]:
        """`step(k, carried)` for k = 0, stride, ... below the depth; what it carried last."""
        b, depth, before = self.builder, self.arguments[3], self.builder.block
        body, done = (b.function.append_basic_block(name) for name in ("body", "done"))
        b.branch(body)
        b.position_at_end(body)
        k = b.phi(_INDEX)
        k.add_incoming(_INDEX(0), before)
        carried = [b.phi(value.type) for value in start]
        for phi, value in zip(carried, start, strict=True):
            phi.add_incoming(value, before)
        after = step(k, carried)
        following = b.add(k, _INDEX(stride))
        k.add_incoming(following, b.block)
        for phi, value in zip(carried, after, strict=True):
            phi.add_incoming(value, b.block)
        b.cbranch(b.icmp_signed("<", following, depth), body, done)
        b.position_at_end(done)
        return after


def _hopeful(lanes: _Lanes) -> Any:
    """Plain sums, looked at after every group; written only if all stayed within the limits."""
    b, (at, low, high) = lanes.builder, lanes.arguments[7:10]
    targets = lanes.rows(lanes.data(6, at), ROWS)
    sums = [lanes.load(target) for target in targets]
    least = greatest = sums[0]
    for value in sums[1:]:
        least, greatest = lanes.call("smin", least, value), lanes.call("smax", greatest, value)

    def step(k: Any, carried: list[Any]) -> list[Any]:
        *sums, least, greatest = carried
        for i in range(GROUP):
            products = lanes.products(b.add(k, _INDEX(i)), ROWS)
            sums = [b.add(s, p) for s, p in zip(sums, products, strict=True)]
        for value in sums:
            least, greatest = lanes.call("smin", least, value), lanes.call("smax", greatest, value)
        return [*sums, least, greatest]

    *sums, least, greatest = lanes.loop([*sums, least, greatest], step, GROUP)
    outside = b.or_(
        b.icmp_signed("<", least, lanes.spread(low)),
        b.icmp_signed(">", greatest, lanes.spread(high)),
    )
    bits = ir.IntType(lanes.count)
    inside = b.icmp_unsigned("==", b.bitcast(outside, bits), bits(0))
    with b.if_then(inside):
        for value, target in zip(sums, targets, strict=True):
            lanes.store(value, target)
    return inside


def _careful(lanes: _Lanes, full: bool) -> Any:
    """Clipped sums; the count of a lane falls by one for every step within the range.

    `full`: the range is that of the lane, so that the saturating addition is all it takes.
    """
    b, (at, low, high) = lanes.builder, lanes.arguments[7:10]
    targets, tallies = (lanes.rows(lanes.data(n, at), FEWER) for n in (6, 10))
    least, most = lanes.spread(low), lanes.spread(high)

    def clipped(held: Any, term: Any) -> tuple[Any, Any]:
        wide = lanes.call("sadd.sat", held, term) if lanes.bits == 16 else b.add(held, term)
        if full:
            return b.add(held, term), wide
        return wide, lanes.call("smin", lanes.call("smax", wide, least), most)

    def step(k: Any, carried: list[Any]) -> list[Any]:
        sums, counts = carried[: len(targets)], carried[len(targets) :]
        steps = list(map(clipped, sums, lanes.products(k, FEWER)))
        same = [b.sext(b.icmp_signed("==", *pair), lanes.vector) for pair in steps]
        return [kept for _, kept in steps] + list(map(b.add, counts, same))

    nothing = ir.Constant(lanes.vector, None)
    start = [lanes.load(address) for address in targets] + [nothing] * len(tallies)
    after = lanes.loop(start, step, 1)
    for value, address in zip(after, [*targets, *tallies], strict=True):
        lanes.store(value, address)
    return lanes.context.get_dummy_value()


def _extremes(lanes: _Lanes) -> Any:
    """Plain sums, and the least and the greatest of each lane so far."""
    b, at = lanes.builder, lanes.arguments[7]
    addresses = [address for n in (6, 8, 9) for address in lanes.rows(lanes.data(n, at), FEWER)]
    count = len(addresses) // 3

    def step(k: Any, carried: list[Any]) -> list[Any]:
        terms = lanes.products(k, FEWER)
        sums = [b.add(s, p) for s, p in zip(carried[:count], terms, strict=True)]
        least = map(partial(lanes.call, "smin"), carried[count:-count], sums)
        return [*sums, *least, *map(partial(lanes.call, "smax"), carried[-count:], sums)]

    for value, address in zip(
        lanes.loop([lanes.load(a) for a in addresses], step, 1), addresses, strict=True
    ):
        lanes.store(value, address)
    return lanes.context.get_dummy_value()


@intrinsic
def _hopeful_of(
    typingctx: Any, left: Any, first: Any, stride: Any, depth: Any, panel: Any, place: Any,
    sums: Any, at: Any, low: Any, high: Any,
) -> Any:  # fmt: skip
    i, lane = types.intp, sums.dtype
    kind = types.boolean(left, i, i, i, panel, i, sums, i, lane, lane)
    return kind, lambda *call: _hopeful(_Lanes(*call))


def _careful_of(full: bool) -> Any:
    @intrinsic
    def careful(
        typingctx: Any, left: Any, first: Any, stride: Any, depth: Any, panel: Any, place: Any,
        sums: Any, at: Any, low: Any, high: Any, counts: Any,
    ) -> Any:  # fmt: skip
        i, lane = types.intp, sums.dtype
        kind = types.void(left, i, i, i, panel, i, sums, i, lane, lane, counts)
        return kind, lambda *call: _careful(_Lanes(*call), full)

    return careful


@intrinsic
def _extremes_of(
    typingctx: Any, left: Any, first: Any, stride: Any, depth: Any, panel: Any, place: Any,
    sums: Any, at: Any, least: Any, greatest: Any,
) -> Any:  # fmt: skip
    i = types.intp
    kind = types.void(left, i, i, i, panel, i, sums, i, least, greatest)
    return kind, lambda *call: _extremes(_Lanes(*call))


def _moved(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Integers of one width as those of another, a tile of them."""
    make: Any = make_array
    kinds = signature.args[0].dtype, signature.args[2].dtype
    here, there = (
        builder.gep(
            make(signature.args[n])(context, builder, arguments[n]).data, [arguments[n + 1]]
        )
        for n in (0, 2)
    )
    count = _VECTORS * _REGISTER // kinds[1].bitwidth
    narrow, wide = (ir.VectorType(ir.IntType(kind.bitwidth), count) for kind in kinds)
    value = builder.load(builder.bitcast(here, narrow.as_pointer()))
    value.align = 1
    if kinds[0].bitwidth < kinds[1].bitwidth:
        value = (builder.sext if kinds[0].signed else builder.zext)(value, wide)
    elif kinds[0].bitwidth > kinds[1].bitwidth:
        value = builder.trunc(value, wide)
    builder.store(value, builder.bitcast(there, wide.as_pointer())).align = 2
    return context.get_dummy_value()


@intrinsic
def _move_of(typingctx: Any, source: Any, here: Any, panel: Any, there: Any) -> Any:
    i = types.intp
    return types.void(source, i, panel, i), _moved


# In all of these arrays are flat and contiguous, and nothing is checked.

hopeful: Any = _hopeful_of
"""(left, first, stride, depth, panel, place, sums, at, low, high): add up ROWS rows without a
range. True, and written, if the sums were in [low, high] at the start and after each GROUP."""

careful, careful_full = _careful_of(full=False), _careful_of(full=True)
"""(left, first, stride, depth, panel, place, sums, at, low, high, counts): add up FEWER rows, held
in [low, high] at every step; `counts`, laid out as the sums, becomes minus the steps within. In
`careful_full` the range is all that an int16 lane holds."""

move: Any = _move_of
"""(source, here, panel, there): COLUMNS numbers of the source, as lanes."""

extremes: Any = _extremes_of
"""(left, first, stride, depth, panel, place, sums, at, least, greatest): add up FEWER rows without
a range and widen their extremes, laid out as the sums."""
