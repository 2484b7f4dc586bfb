"""The argument words of a task; apart from `task_team`, whose functions compile on import."""

from typing import Any

import numba
from numba import types
from numba.extending import intrinsic

from tracer.interpreter.kernels.machine_code import inlined

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
