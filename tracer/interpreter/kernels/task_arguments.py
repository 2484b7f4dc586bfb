"""What a compiled task is given: a block of words that hold the arrays' places and numbers."""

from __future__ import annotations

from typing import Any

import numba
from numba import njit, types
from numba.extending import intrinsic

_array: Any = numba.carray  # type: ignore[attr-defined]
_pointer: Any = types.CPointer

TASK = types.void(_pointer(types.int64), types.int64)
"""A task: the words of its arguments, and the number of the block to compute."""


def emitted(function: Any) -> Any:
    """A function that emits LLVM's code; who calls it passes no typing context."""
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


@njit
def floats(words: Any, place: int) -> Any:
    """The flat float32 array whose address and size are the words from `place` on."""
    return _array(_float32(words[place]), words[place + 1])


@njit
def integers(words: Any, place: int) -> Any:
    """The flat int64 array whose address and size are the words from `place` on."""
    return _array(_int64(words[place]), words[place + 1])
