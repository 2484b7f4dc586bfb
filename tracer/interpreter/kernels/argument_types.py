"""Argument types in the signatures of kernels, and the argument words of a task.

They are apart from `task_team`, whose functions compile on import.
"""

from typing import Any

import numba
from numba import types
from numba.extending import intrinsic

from tracer.interpreter.kernels.machine_code import inlined

NUMBERS = types.Array(types.int64, 1, "C", readonly=True)
TABLE = types.Array(types.int64, 2, "C", readonly=True)
START = types.Array(types.int64, 2, "A", readonly=True)
FLAT_OUT = types.Array(types.int64, 1, "C")
TABLE_OUT = types.Array(types.int64, 2, "C")
MATRIX_OUT = types.Array(types.int64, 2, "A")


def vector_type(kind: Any) -> Any:
    """A contiguous vector that is written to."""
    return types.Array(kind, 1, "C")


def read_only(kind: Any, rank: int = 1) -> Any:
    """A contiguous array that is read."""
    return types.Array(kind, rank, "C", readonly=True)


def repeat_type(kind: Any, count: int) -> Any:
    """A tuple of `count` values of a type."""
    return tuple_type(*[kind] * count)


def tuple_type(*kinds: Any) -> Any:
    """A tuple with a value of each type."""
    make: Any = types.Tuple
    return make(kinds)


_array: Any = numba.carray  # type: ignore[attr-defined]
_pointer: Any = types.CPointer


def emitted(function: Any) -> Any:
    """Marks a function that emits LLVM code; callers omit its typing context."""
    return intrinsic(function)


def _pointer_to(kind: Any) -> Any:
    @emitted
    def pointer(typingctx: Any, address: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return _pointer(kind)(types.int64), code

    return pointer


_float32 = _pointer_to(types.float32)
_int64 = _pointer_to(types.int64)


@inlined(types.Array(types.float32, 1, "C")(_pointer(types.int64), types.int64))
def floats(words: Any, index: int) -> Any:
    """Returns the flat float32 array with address words[index] and size words[index + 1]."""
    return _array(_float32(words[index]), words[index + 1])


@inlined(types.Array(types.int64, 1, "C")(_pointer(types.int64), types.int64))
def integers(words: Any, index: int) -> Any:
    """Returns the flat int64 array with address words[index] and size words[index + 1]."""
    return _array(_int64(words[index]), words[index + 1])
