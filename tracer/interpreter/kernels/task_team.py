"""Compiled tasks shared out to threads without the interpreter lock: no Python between blocks.

The leader opens a task; it and the helpers draw the numbers of blocks from a counter until there
are none; the leader closes the task and waits for those who are still at a block. A helper that
comes late finds the task closed, so nobody ever waits for a thread to wake up. All of it lies in
an array of `words`; what threads change at the same time is on cache lines of its own.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import njit, types
from numba.np.arrayobj import make_array

from tracer.interpreter.kernels.task_arguments import emitted

_LINE = 8
_OPEN, _TASK, _ARGUMENTS, _COUNT = range(4)
_NEXT = _LINE
_ACTIVE = 2 * _LINE
PARKED = 3 * _LINE
"""From this word on each helper has a line that says whether it sleeps."""

_PATIENCE = 4000
"""Pauses before a helper sleeps: 50 to 200 us, as long as waking takes, or Python between nodes."""

_WORDS = types.Array(types.int64, 1, "C")
_I64 = ir.IntType(64)


def words(helpers: int) -> int:
    """How many words a team needs."""
    return PARKED + helpers * _LINE


def parked(helper: int) -> int:
    """The word of a helper."""
    return PARKED + helper * _LINE


def _word(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    made: Any = make_array(signature.args[0])  # type: ignore[no-untyped-call]
    data = made(context, builder, arguments[0]).data
    return builder.gep(data, [arguments[1]])


@emitted
def _load(typingctx: Any, array: Any, place: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_word(context, builder, signature, arguments), "seq_cst", 8)

    return types.int64(array, types.int64), code


@emitted
def _add(typingctx: Any, array: Any, place: Any, value: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = _word(context, builder, signature, arguments)
        return builder.atomic_rmw("add", word, arguments[2], "seq_cst")

    return types.int64(array, types.int64, types.int64), code


@emitted
def _exchange(typingctx: Any, array: Any, place: Any, value: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = _word(context, builder, signature, arguments)
        return builder.atomic_rmw("xchg", word, arguments[2], "seq_cst")

    return types.int64(array, types.int64, types.int64), code


@emitted
def _invoke(typingctx: Any, task: Any, arguments: Any, block: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_I64.as_pointer(), _I64])
        function = builder.inttoptr(given[0], kind.as_pointer())
        builder.call(function, [builder.inttoptr(given[1], _I64.as_pointer()), given[2]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), code


@emitted
def _pause(typingctx: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if binding.get_default_triple().startswith("x86_64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), kind), [])
        return context.get_dummy_value()

    return types.void(), code


@njit(types.void(types.int64, types.int64, types.int64), nogil=True, cache=True)
def alone(task: int, arguments: int, count: int) -> None:
    """All blocks of a task in this thread."""
    for block in range(count):
        _invoke(task, arguments, block)


@njit(types.void(_WORDS), nogil=True, cache=True)
def drain(words: Any) -> None:
    """Compute blocks of the open task until none is left to begin."""
    while True:
        block = _add(words, _NEXT, 1)
        if block >= words[_COUNT]:
            return
        _invoke(words[_TASK], words[_ARGUMENTS], block)


@njit(types.void(_WORDS, types.int64, types.int64, types.int64), nogil=True, cache=True)
def begin(words: Any, task: int, arguments: int, count: int) -> None:
    """Open a task: helpers that are awake set to work."""
    words[_TASK], words[_ARGUMENTS], words[_COUNT] = task, arguments, count
    _exchange(words, _NEXT, 0)
    _exchange(words, _OPEN, 1)


@njit(types.boolean(_WORDS, types.int64), nogil=True, cache=True)
def asleep(words: Any, parked: int) -> bool:
    """Whether the helper has to be woken; it counts as awake from now on."""
    return _load(words, parked) != 0 and _exchange(words, parked, 0) != 0


@njit(types.void(_WORDS), nogil=True, cache=True)
def close(words: Any) -> None:
    """Let nobody else join, and wait for those who are still at a block."""
    _exchange(words, _OPEN, 0)
    while _load(words, _ACTIVE) != 0:
        _pause()


@njit(types.boolean(_WORDS), nogil=True, cache=True)
def _waiting(words: Any) -> bool:
    """Whether a task is open that has blocks left."""
    return _load(words, _OPEN) != 0 and _load(words, _NEXT) < _load(words, _COUNT)


@njit(types.void(_WORDS, types.int64), nogil=True, cache=True)
def serve(words: Any, parked: int) -> None:
    """Help with tasks as they are opened; return where none was for a while, to sleep."""
    quiet = 0
    while True:
        if _waiting(words):
            _add(words, _ACTIVE, 1)  # before asking again: the leader closes, then looks here
            if _load(words, _OPEN) != 0:
                drain(words)
            _add(words, _ACTIVE, -1)
            quiet = 0
        elif quiet < _PATIENCE:
            quiet += 1
            _pause()
        else:
            _exchange(words, parked, 1)  # before asking again: the leader opens, then looks here
            if not _waiting(words) or _exchange(words, parked, 0) == 0:
                return
            quiet = 0
