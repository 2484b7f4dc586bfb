"""What kernels are made of: types of arguments, marks of functions, arrays at addresses.

numba compiles kernels, and takes half a second to import. Compiled code is kept and runs without
it, so kernels name the types and the functions of this module; `numba_code` puts those of numba in
their place. In kernels this module is called `types`, as numba's.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

_FLOATS, _INTEGERS = (float, int, np.floating, np.integer), (int, np.integer, np.bool)
_WORD, _DOUBLE = struct.Struct("=q"), struct.Struct("=d")


class Kind:
    """What an argument or a result is: it puts a value into words of 64 bits, and takes one out."""

    size = 1
    """Words of a result."""

    def __call__(self, *arguments: Any) -> Any:
        """The signature of a function that takes these, and returns this."""
        return Signature(self, arguments)

    def put(self, value: Any, words: list[int]) -> bool:
        """Appends the words of a value; returns whether compiled code may get the value."""
        raise NotImplementedError

    def take(self, words: Iterator[int]) -> Any:
        """Returns the value of a result."""
        raise NotImplementedError


@dataclass(frozen=True)
class Number(Kind):
    """A number, or an element of an array. A float is a float64 in a word."""

    dtype: np.dtype[Any]

    def put(self, value: Any, words: list[int]) -> bool:
        """Appends a number; an integer is one for a float, too."""
        if self.dtype.kind == "f":
            if not isinstance(value, _FLOATS):
                return False
            words += _WORD.unpack(_DOUBLE.pack(value))
            return True
        if not isinstance(value, _INTEGERS):
            return False
        words.append(number := int(value))
        least, most = _limits(self.dtype)
        return least <= number <= most

    def take(self, words: Iterator[int]) -> Any:
        """Returns the number as Python's."""
        word = next(words)
        return _DOUBLE.unpack(_WORD.pack(word))[0] if self.dtype.kind == "f" else word


@cache
def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The range of integers that fit a word, too."""
    bits = 1 if dtype.kind == "b" else min(dtype.itemsize * 8 - (dtype.kind == "i"), 63)
    return -(1 << bits) if dtype.kind == "i" else 0, (1 << bits) - 1


@dataclass(frozen=True)
class Array(Kind):
    """An array: address, shape and, unless it is contiguous (`order` "C"), strides."""

    of: Number
    rank: int
    order: str
    readonly: bool = False

    def put(self, value: Any, words: list[int]) -> bool:
        """Appends where an array of this type, rank and order is, aligned, and its extents."""
        if not isinstance(value, np.ndarray) or value.dtype != self.of.dtype:
            return False
        flags = value.flags
        if value.ndim != self.rank or not flags.aligned or not (self.readonly or flags.writeable):
            return False
        words += value.__array_interface__["data"][0], *value.shape
        if self.order == "C":
            return flags.c_contiguous
        words += value.strides
        return True


@dataclass(frozen=True)
class Tuple(Kind):
    """Values one after the other; a function without a result returns none."""

    members: tuple[Kind, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", sum(each.size for each in self.members))

    def put(self, value: Any, words: list[int]) -> bool:
        """Appends the words of each member."""
        return (
            isinstance(value, tuple)
            and len(value) == len(self.members)
            and all(each.put(member, words)
                    for each, member in zip(self.members, value, strict=True))
        )  # fmt: skip

    def take(self, words: Iterator[int]) -> Any:
        """Returns a tuple, or None without members."""
        return tuple(each.take(words) for each in self.members) or None


@dataclass(frozen=True)
class Signature:
    """The types of a compiled function."""

    result: Kind
    arguments: tuple[Kind, ...]

    def words(self, given: tuple[Any, ...]) -> list[int] | None:
        """Returns the words of arguments, and room for those of the result.

        None if the function does not take these arguments.
        """
        words: list[int] = []
        for kind, value in zip(self.arguments, given, strict=True):
            if not kind.put(value, words):
                return None
        return words + [0] * self.result.size


boolean, int8, int16, int32, int64, uint8, uint64, float32, float64 = (
    Number(np.dtype(name)) for name in
    ("bool", "int8", "int16", "int32", "int64", "uint8", "uint64", "float32", "float64")
)  # fmt: skip
intp = Number(np.dtype(np.intp))
void = Tuple(())


def vector_type(kind: Any) -> Any:
    """A contiguous vector that is written to."""
    return Array(kind, 1, "C")


def read_only(kind: Any, rank: int = 1) -> Any:
    """A contiguous array that is read."""
    return Array(kind, rank, "C", readonly=True)


def repeat_type(kind: Any, count: int) -> Any:
    """A tuple of `count` values of a type."""
    return Tuple((kind,) * count)


def tuple_type(*kinds: Any) -> Any:
    """A tuple with a value of each type."""
    return Tuple(kinds)


NUMBERS, TABLE = read_only(int64), read_only(int64, 2)
START, MATRIX_OUT = Array(int64, 2, "A", readonly=True), Array(int64, 2, "A")
FLAT_OUT, TABLE_OUT = vector_type(int64), Array(int64, 2, "C")


@dataclass(frozen=True, eq=False)
class Helper:
    """A function that kernels call: it is compiled, for these types, when one of them is.

    Without the types numba would take float32 for float64, and compile anew for each constant.
    """

    function: Callable[..., Any]
    signatures: tuple[Signature, ...]
    options: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Emitted:
    """A function that writes the code of a call: of numba's typing context and types, it returns
    a signature of numba and what writes LLVM code."""

    function: Callable[..., Any]


@dataclass(frozen=True, eq=False)
class OfCompiler:
    """What `numba_code` has by this name."""

    name: str


def helper(*signatures: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Marks a function that kernels call; `options` are those of numba."""
    return lambda function: Helper(function, signatures, options)


inlined = partial(helper, forceinline=True)
"""Marks a helper that becomes a part of each caller."""


def emitted(function: Any) -> Any:
    """Marks a function that writes LLVM code; callers leave out its typing context."""
    return Emitted(function)


_numba: Any = OfCompiler("types")
_array: Any = OfCompiler("array_value")
_function: Any = OfCompiler("external_function")


@emitted
def array_at(typingctx: Any, pointer: Any, shape: Any) -> Any:
    """The array at a pointer, of a size or a shape, that is written to."""
    rank = shape.count if isinstance(shape, _numba.UniTuple) else 1

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start, extents = arguments
        each = [builder.extract_value(extents, n) for n in range(rank)] if rank > 1 else [extents]
        return _array(context, builder, signature.return_type, start, each)

    return _numba.Array(pointer.dtype, rank, "C")(pointer, shape), code


@emitted
def start_of(typingctx: Any, array: Any) -> Any:
    """The pointer to the first element of an array."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(array)(context, builder, arguments[0]).data

    return _numba.CPointer(array.dtype)(array), code


def _array_in_words(kind: Any) -> Any:
    @emitted
    def array(typingctx: Any, words: Any, index: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            places = arguments[1], builder.add(arguments[1], arguments[1].type(1))
            start, size = (builder.load(builder.gep(arguments[0], [place])) for place in places)
            return _array(context, builder, signature.return_type, start, [size])

        return kind(words, index), code

    return array


floats = _array_in_words(vector_type(float32))
"""The flat float32 array with address words[index] and size words[index + 1]."""
integers = _array_in_words(vector_type(int64))
"""The flat int64 array with address words[index] and size words[index + 1]."""


def _new(kind: Any) -> Any:
    """numba's own arrays need its runtime."""

    @emitted
    def new(typingctx: Any, size: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            reserve = _function(context, builder.module, "calloc", int64, int64)
            (count,) = arguments
            # For no elements there may be no memory, which is no error.
            least = builder.select(
                builder.icmp_signed(">", count, count.type(0)), count, count.type(1)
            )
            start = builder.call(reserve, [least, count.type(kind.dtype.bitwidth // 8)])
            with builder.if_then(
                builder.icmp_unsigned("==", start, start.type(None)), likely=False
            ):
                context.call_conv.return_user_exc(builder, MemoryError, ())
            return _array(context, builder, signature.return_type, start, [count])

        return kind(int64), code

    return new


new_floats, new_doubles, new_counts, new_integers = (
    _new(vector_type(kind)) for kind in (float32, float64, int32, int64)
)
"""Arrays of 0 in memory that `free` releases: float32, float64, int32, int64."""


@emitted
def free(typingctx: Any, array: Any) -> Any:
    """Releases the memory of a new array."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        release = _function(context, builder.module, "free", _numba.voidptr)
        start = context.make_array(array)(context, builder, arguments[0]).data
        builder.call(release, [builder.bitcast(start, release.args[0].type)])
        return context.get_dummy_value()

    return _numba.void(array), code
