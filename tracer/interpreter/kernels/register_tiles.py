"""The innermost product in LLVM code: a tile of rows times a panel of columns in registers.

Compilers spill a two-dimensional tile of accumulators, so LLVM code is emitted directly. Sums run
over k in order, one multiply-add each, so results depend only on the inputs.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

_WIDE = bool(binding.get_host_cpu_features().get("avx512f"))
LANES = 16 if _WIDE else 8
VECTORS = 3
ROWS = 8 if _WIDE else 4  # with 32 registers or 16, for ROWS * VECTORS sums and the factors
COLUMNS = VECTORS * LANES
STRETCH_VECTORS = 8 if _WIDE else 4
STRETCH = STRETCH_VECTORS * LANES

_INDEX = ir.IntType(64)
_VECTOR = ir.VectorType(ir.FloatType(), LANES)


def _multiply(vectors: int) -> Callable[..., Any]:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = _data(context, builder, signature, arguments)
        panel = data(5)

        def column(k: Any) -> Any:
            return builder.gep(panel, [builder.mul(k, _INDEX(vectors * LANES))])

        return _product(builder, context, data, arguments, vectors, column)

    return code


def _multiply_in_place(vectors: int) -> Callable[..., Any]:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = _data(context, builder, signature, arguments)
        source = builder.gep(data(11), [arguments[12]])
        offsets = builder.gep(data(13), [arguments[14]])

        def column(k: Any) -> Any:
            return builder.gep(source, [_scalar(builder, offsets, k)])

        return _product(builder, context, data, arguments, vectors, column)

    return code


def _product(
    builder: Any,
    context: Any,
    data: Callable[[int], Any],
    arguments: Any,
    vectors: int,
    column: Callable[[Any], Any],
) -> Any:
    _, first, stride, depth, add = arguments[:5]
    _, _, base, width, _, row = arguments[5:11]
    left = builder.gep(data(0), [first])
    out, bias = builder.gep(data(6), [base]), builder.gep(data(9), [row])
    targets = [
        builder.gep(out, [builder.add(builder.mul(width, _INDEX(i)), _INDEX(v * LANES))])
        for i in range(ROWS)
        for v in range(vectors)
    ]
    start = _initial(builder, targets, bias, add)

    def step(k: Any, sums: Sequence[Any]) -> list[Any]:
        return _step(builder, left, stride, column(k), k, sums)

    for target, value in zip(targets, _loop(builder, depth, start, step), strict=True):
        _store(builder, value, target)
    return context.get_dummy_value()


def _pack(vectors: int) -> Callable[..., Any]:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, base, _, first, depth, _ = arguments
        data = _data(context, builder, signature, arguments)
        source, panel = builder.gep(data(0), [base]), data(5)
        offsets = builder.gep(data(2), [first])

        def step(k: Any, sums: Sequence[Any]) -> list[Any]:
            origin = builder.load(builder.gep(offsets, [k]))
            target = builder.mul(k, _INDEX(vectors * LANES))
            for v in range(vectors):
                lanes = _INDEX(v * LANES)
                vector = _load(builder, builder.gep(source, [builder.add(origin, lanes)]))
                _store(builder, vector, builder.gep(panel, [builder.add(target, lanes)]))
            return []

        _loop(builder, depth, [], step)
        return context.get_dummy_value()

    return code


def _taps(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    _, base, offsets, weights, first, depth, _, target = arguments
    data = _data(context, builder, signature, arguments)
    source, out = builder.gep(data(0), [base]), builder.gep(data(6), [target])
    offsets, weights = data(2), builder.gep(data(3), [first])
    insert: Any = cgutils.get_or_insert_function
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    fused = insert(builder.module, kind, f"llvm.fmuladd.v{LANES}f32")

    def step(k: Any, sums: Sequence[Any]) -> list[Any]:
        factor = _spread(builder, _scalar(builder, weights, k))
        origin = builder.gep(source, [_scalar(builder, offsets, k)])
        return [
            builder.call(
                fused, [factor, _load(builder, builder.gep(origin, [_INDEX(v * LANES)])), s]
            )
            for v, s in enumerate(sums)
        ]

    zero = ir.Constant(_VECTOR, [0.0] * LANES)
    for v, value in enumerate(_loop(builder, depth, [zero] * STRETCH_VECTORS, step)):
        _store(builder, value, builder.gep(out, [_INDEX(v * LANES)]))
    return context.get_dummy_value()


def _data(context: Any, builder: Any, signature: Any, arguments: Any) -> Callable[[int], Any]:
    """Returns the pointer to the elements of an array argument, by its position."""

    def pointer(position: int) -> Any:
        array: Any = make_array(signature.args[position])  # type: ignore[no-untyped-call]
        return array(context, builder, arguments[position]).data

    return pointer


def _loop(
    builder: Any, count: Any, start: Sequence[Any], step: Callable[[Any, Sequence[Any]], list[Any]]
) -> list[Any]:
    """Emits a loop over k from 0 to `count`, at least once, that carries values in registers."""
    before = builder.block
    body, done = (builder.function.append_basic_block(name) for name in ("loop", "done"))
    builder.branch(body)
    builder.position_at_end(body)
    k = builder.phi(_INDEX)
    k.add_incoming(_INDEX(0), before)
    carried = [builder.phi(value.type) for value in start]
    for phi, value in zip(carried, start, strict=True):
        phi.add_incoming(value, before)
    after = step(k, carried)
    following = builder.add(k, _INDEX(1))
    k.add_incoming(following, body)
    for phi, value in zip(carried, after, strict=True):
        phi.add_incoming(value, body)
    builder.cbranch(builder.icmp_signed("<", following, count), body, done)
    builder.position_at_end(done)
    return after


def _initial(builder: Any, targets: Sequence[Any], bias: Any, add: Any) -> list[Any]:
    """Returns the initial sums: the bias of the row, or the values in the targets."""
    shifts = [_spread(builder, _scalar(builder, bias, _INDEX(i))) for i in range(ROWS)]
    entry = builder.block
    load, merged = (builder.function.append_basic_block(name) for name in ("load", "merged"))
    builder.cbranch(add, load, merged)
    builder.position_at_end(load)
    stored = [_load(builder, target) for target in targets]
    builder.branch(merged)
    builder.position_at_end(merged)
    start = []
    for number, value in enumerate(stored):
        chosen = builder.phi(_VECTOR)
        chosen.add_incoming(shifts[number * ROWS // len(stored)], entry)
        chosen.add_incoming(value, load)
        start.append(chosen)
    return start


def _step(
    builder: Any, left: Any, stride: Any, column: Any, k: Any, sums: Sequence[Any]
) -> list[Any]:
    """Emits one k: each row's element times the vectors at `column`, added to the sums."""
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    insert: Any = cgutils.get_or_insert_function
    fused = insert(builder.module, kind, f"llvm.fmuladd.v{LANES}f32")
    vectors = len(sums) // ROWS
    columns = [_load(builder, builder.gep(column, [_INDEX(v * LANES)])) for v in range(vectors)]
    after = []
    for row in range(ROWS):
        factor = _scalar(builder, left, builder.add(builder.mul(stride, _INDEX(row)), k))
        wide = _spread(builder, factor)
        for v, values in enumerate(columns):
            after.append(builder.call(fused, [wide, values, sums[row * vectors + v]]))
    return after


def _scalar(builder: Any, array: Any, base: Any) -> Any:
    return builder.load(builder.gep(array, [base]))


def _spread(builder: Any, scalar: Any) -> Any:
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    single = builder.insert_element(undefined, scalar, ir.IntType(32)(0))
    return builder.shuffle_vector(single, undefined, lanes)


def _load(builder: Any, address: Any) -> Any:
    loaded = builder.load(builder.bitcast(address, _VECTOR.as_pointer()))
    loaded.align = 4  # float32 alignment only
    return loaded


def _store(builder: Any, value: Any, address: Any) -> None:
    stored = builder.store(value, builder.bitcast(address, _VECTOR.as_pointer()))
    stored.align = 4


def _multiplier(vectors: int) -> Any:
    @intrinsic
    def multiply(
        typingctx: Any, left: Any, first: Any, stride: Any, depth: Any, add: Any, panel: Any,
        out: Any, base: Any, width: Any, bias: Any, row: Any,
    ) -> Any:  # fmt: skip
        i = types.intp
        kind = types.void(left, i, i, i, types.boolean, panel, out, i, i, bias, i)
        return kind, _multiply(vectors)

    return multiply


def _multiplier_in_place(vectors: int) -> Any:
    @intrinsic
    def multiply(
        typingctx: Any, left: Any, first: Any, stride: Any, depth: Any, add: Any, panel: Any,
        out: Any, base: Any, width: Any, bias: Any, row: Any,
        source: Any, origin: Any, offsets: Any, begin: Any,
    ) -> Any:  # fmt: skip
        i = types.intp
        kind = types.void(
            left, i, i, i, types.boolean, panel, out, i, i, bias, i, source, i, offsets, i
        )
        return kind, _multiply_in_place(vectors)

    return multiply


def _packer(vectors: int) -> Any:
    @intrinsic
    def pack(
        typingctx: Any, source: Any, base: Any, offsets: Any, first: Any, depth: Any, panel: Any
    ) -> Any:
        i = types.intp
        return types.void(source, i, offsets, i, i, panel), _pack(vectors)

    return pack


@intrinsic
def _taps_of(
    typingctx: Any, source: Any, base: Any, offsets: Any, weights: Any, first: Any, depth: Any,
    out: Any, target: Any,
) -> Any:  # fmt: skip
    i = types.intp
    return types.void(source, i, offsets, weights, i, i, out, i), _taps


# Arrays are flat and contiguous; nothing is checked.

multiply_1, multiply_2, multiply_3 = (_multiplier(vectors) for vectors in (1, 2, 3))
"""(left, first, stride, depth, add, panel, out, base, width, bias, row): writes (ROWS, columns)
to `out[base + i * width:]`, or adds to it, for 1, 2 or 3 vectors of columns. Row i of the left
tile is `left[first + i * stride:]` of length `depth`; `panel` is (depth, columns). Sums begin with
`bias[row + i]`."""

multiply_in_place_3 = _multiplier_in_place(3)
"""As multiply_3, with (source, origin, offsets, begin) at the end: row k of the right side is
`source[offsets[begin + k] + origin:]`, and `panel` is not read."""

pack_1, pack_2, pack_3 = (_packer(vectors) for vectors in (1, 2, 3))
"""(source, base, offsets, first, depth, panel): copies `source[offsets[first + k] + base:]` to
row k of `panel` (depth, columns)."""

taps: Any = _taps_of
"""(source, base, offsets, weights, first, depth, out, target): writes to `out[target:]` the
STRETCH sums of `weights[first + k] * source[offsets[k] + base:]`."""
