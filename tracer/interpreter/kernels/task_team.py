"""Distributes blocks of a task to threads in compiled code, without the interpreter lock.

The leader opens a task. Leader and helpers take block numbers from a counter until none are left.
The leader closes the task and waits for helpers that are still computing. A late helper sees a
closed task, so the leader never waits for a thread to wake. The state is an array of `words`;
words that threads write concurrently are on separate cache lines.
"""

from typing import Any

from llvmlite import binding, ir

from tracer.interpreter.compiled_code import task
from tracer.interpreter.kernels import argument_types as types
from tracer.interpreter.kernels.argument_types import WORDS, emitted, inlined

_LINE = 8

TASK, ARGUMENTS, COUNT, FAILED, _OPEN = range(5)
"""Words of the open task, which the leader writes: the address of its code, of its words, and the
number of blocks; what is not 0 after a block that failed."""
_NEXT = _LINE
_ACTIVE = 2 * _LINE
PARKED = 3 * _LINE
"""First word of the helpers' lines, one each, which tell whether the helper sleeps, and then
whether it must be woken."""
_PATIENCE = 4000
"""Pauses before a helper sleeps: 50 to 200 us, the time to wake, or of Python between nodes."""
_I64, _I32 = ir.IntType(64), ir.IntType(32)
_of_team = task(fits=lambda count: True)
"""Marks a function of the words of a team."""


def words(helpers: int) -> int:
    """Returns the number of words of a team."""
    return PARKED + helpers * _LINE


def parked(helper: int) -> int:
    """Returns the index of a helper's word."""
    return PARKED + helper * _LINE


@emitted
def _load(typingctx: Any, words: Any, index: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_word(builder, arguments), "seq_cst", 8)

    return types.int64(words, types.int64), code


def _word(builder: Any, arguments: Any) -> Any:
    return builder.gep(arguments[0], [arguments[1]])


def _changed(operation: str) -> Any:
    """Emits code that changes a word by an operation of LLVM, and returns what it was."""

    @emitted
    def change(typingctx: Any, words: Any, index: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = _word(builder, arguments)
            return builder.atomic_rmw(operation, word, arguments[2], "seq_cst")

        return types.int64(words, types.int64, types.int64), code

    return change


_add, _exchange = _changed("add"), _changed("xchg")


@emitted
def _invoke(typingctx: Any, code: Any, arguments: Any, block: Any) -> Any:
    """Calls the code at an address, as `compiled_code.Code` does; returns its status."""

    def call(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        with builder.goto_entry_block():  # in a loop, each turn would take more of the stack
            unread = builder.alloca(_I64, 2)
        places = [unread, builder.gep(unread, [_I64(1)])]
        pointer = _I64.as_pointer()
        kind = ir.FunctionType(_I32, [pointer, pointer, pointer, _I64])
        function = builder.inttoptr(operands[0], kind.as_pointer())
        words = builder.inttoptr(operands[1], pointer)
        return builder.sext(builder.call(function, [*places, words, operands[2]]), _I64)

    return types.int64(types.int64, types.int64, types.int64), call


@emitted
def _pause(typingctx: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if binding.get_default_triple().startswith("x86_64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), kind), [])
        return context.get_dummy_value()

    return types.void(), code


@_of_team
def run_alone(words: Any, _: int) -> None:
    """Computes all blocks of a task in this thread; its words are as those of a team begin."""
    for block in range(words[COUNT]):
        if _invoke(words[TASK], words[ARGUMENTS], block) > 0:
            words[FAILED] = 1


@inlined(types.void(WORDS))
def _drain(words: Any) -> None:
    while True:
        block = _add(words, _NEXT, 1)
        if block >= words[COUNT]:
            return
        if _invoke(words[TASK], words[ARGUMENTS], block) > 0:
            _exchange(words, FAILED, 1)


@_of_team
def drain(words: Any, _: int) -> None:
    """Computes blocks of the open task until none is left."""
    _drain(words)


@_of_team
def begin(words: Any, _: int) -> None:
    """Opens the task; helpers that are awake begin."""
    _exchange(words, FAILED, 0)
    _exchange(words, _NEXT, 0)
    _exchange(words, _OPEN, 1)


@_of_team
def wake(words: Any, parked: int) -> None:
    """Tells in the next word whether the helper must be woken; marks it awake."""
    is_asleep = _load(words, parked) != 0 and _exchange(words, parked, 0) != 0
    words[parked + 1] = is_asleep


@_of_team
def close(words: Any, _: int) -> None:
    """Closes the task, and waits for helpers that are still computing."""
    _exchange(words, _OPEN, 0)
    while _load(words, _ACTIVE) != 0:
        _pause()


@inlined(types.boolean(WORDS))
def _waiting(words: Any) -> bool:
    """Whether an open task has blocks left."""
    return _load(words, _OPEN) != 0 and _load(words, _NEXT) < _load(words, COUNT)


@_of_team
def serve(words: Any, parked: int) -> None:
    """Helps with tasks as they open; returns, to sleep, after a while without one."""
    quiet = 0
    while True:
        if _waiting(words):
            _add(words, _ACTIVE, 1)  # before checking again: the leader closes, then looks
            if _load(words, _OPEN) != 0:
                _drain(words)
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
