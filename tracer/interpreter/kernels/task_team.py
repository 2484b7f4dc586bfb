"""Distributes blocks of a task to threads in compiled code, without the interpreter lock.

The leader opens a task. Leader and helpers take block numbers from a counter until none are left.
The leader closes the task and waits for helpers that are still computing. A late helper sees a
closed task, so the leader never waits for a thread to wake. The state is an array of `words`;
words that threads write concurrently are on separate cache lines.
"""

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.np.arrayobj import make_array

from tracer.interpreter.kernels.argument_types import emitted
from tracer.interpreter.kernels.machine_code import inlined, njit

_LINE = 8

_OPEN, _TASK, _ARGUMENTS, _COUNT = range(4)
_NEXT = _LINE
_ACTIVE = 2 * _LINE
PARKED = 3 * _LINE
"""First word of the helpers' lines, one each, which tell whether the helper sleeps."""
_PATIENCE = 4000
"""Pauses before a helper sleeps: 50 to 200 us, the time to wake, or of Python between nodes."""
_WORDS = types.Array(types.int64, 1, "C")
_I64 = ir.IntType(64)


def words(helpers: int) -> int:
    """Returns the number of words of a team."""
    return PARKED + helpers * _LINE


def parked(helper: int) -> int:
    """Returns the index of a helper's word."""
    return PARKED + helper * _LINE


def _word(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array: Any = make_array(signature.args[0])  # type: ignore[no-untyped-call]
    data = array(context, builder, arguments[0]).data
    return builder.gep(data, [arguments[1]])


@emitted
def _load(typingctx: Any, array: Any, index: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_word(context, builder, signature, arguments), "seq_cst", 8)

    return types.int64(array, types.int64), code


def _changed(operation: str) -> Any:
    """Emits code that changes a word by an operation of LLVM, and returns what it was."""

    @emitted
    def change(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = _word(context, builder, signature, arguments)
            return builder.atomic_rmw(operation, word, arguments[2], "seq_cst")

        return types.int64(array, types.int64, types.int64), code

    return change


_add, _exchange = _changed("add"), _changed("xchg")


@emitted
def _invoke(typingctx: Any, task: Any, arguments: Any, block: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_I64.as_pointer(), _I64])
        function = builder.inttoptr(operands[0], kind.as_pointer())
        builder.call(function, [builder.inttoptr(operands[1], _I64.as_pointer()), operands[2]])
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
def run_alone(task: int, arguments: int, count: int) -> None:
    """Computes all blocks of a task in this thread."""
    for block in range(count):
        _invoke(task, arguments, block)


@njit(types.void(_WORDS), nogil=True, cache=True)
def drain(words: Any) -> None:
    """Computes blocks of the open task until none is left."""
    while True:
        block = _add(words, _NEXT, 1)
        if block >= words[_COUNT]:
            return
        _invoke(words[_TASK], words[_ARGUMENTS], block)


@njit(types.void(_WORDS, types.int64, types.int64, types.int64), nogil=True, cache=True)
def begin(words: Any, task: int, arguments: int, count: int) -> None:
    """Opens a task; helpers that are awake begin."""
    words[_TASK], words[_ARGUMENTS], words[_COUNT] = task, arguments, count
    _exchange(words, _NEXT, 0)
    _exchange(words, _OPEN, 1)


@njit(types.boolean(_WORDS, types.int64), nogil=True, cache=True)
def asleep(words: Any, parked: int) -> bool:
    """Whether the helper must be woken; marks it awake."""
    return _load(words, parked) != 0 and _exchange(words, parked, 0) != 0


@njit(types.void(_WORDS), nogil=True, cache=True)
def close(words: Any) -> None:
    """Closes the task, and waits for helpers that are still computing."""
    _exchange(words, _OPEN, 0)
    while _load(words, _ACTIVE) != 0:
        _pause()


@inlined(types.boolean(_WORDS))
def _waiting(words: Any) -> bool:
    """Whether an open task has blocks left."""
    return _load(words, _OPEN) != 0 and _load(words, _NEXT) < _load(words, _COUNT)


@njit(types.void(_WORDS, types.int64), nogil=True, cache=True)
def serve(words: Any, parked: int) -> None:
    """Helps with tasks as they open; returns, to sleep, after a while without one."""
    quiet = 0
    while True:
        if _waiting(words):
            _add(words, _ACTIVE, 1)  # before checking again: the leader closes, then looks
            if _load(words, _OPEN) != 0:
                drain(words)
            _add(words, _ACTIVE, -1)
            quiet = 0
        elif quiet < _PATIENCE:
            quiet += 1
            _pause()
        else:
            _exchange(words, parked, 1)  # before checking again: the leader opens, then looks
            if not _waiting(words) or _exchange(words, parked, 0) == 0:
                return
            quiet = 0
