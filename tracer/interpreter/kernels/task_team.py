"""Distributes blocks of a task to threads in compiled code, without the interpreter lock.

The leader opens a task. Leader and helpers take block numbers from a counter until none are left.
The leader closes the task and waits for helpers that are still computing. A late helper sees a
closed task, so the leader never waits for a thread to wake. The state is an array of `words`;
words that threads write concurrently are on separate cache lines.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llvmlite import binding, ir

from tracer.interpreter.compiled_code import Code, Task
from tracer.interpreter.kernels.machine_code import INDEX, compile_task

_LINE = 8

TASK, ARGUMENTS, COUNT, FAILED, _OPEN = range(5)
"""Words of the open task, which the leader writes: the address of its code, of its words, and the
number of blocks; what is not 0 after a block that failed."""
_NEXT = _LINE
_ACTIVE = 2 * _LINE
_PARKED = 3 * _LINE
"""First word of the helpers' lines, one each, which tell whether the helper sleeps, and then
whether it must be woken."""
_PATIENCE = 4000
"""Pauses before a helper sleeps: 50 to 200 us, the time to wake, or of Python between nodes."""


def words(helpers: int) -> int:
    """Returns the number of words of a team: the index of the first word of a further helper."""
    return _PARKED + helpers * _LINE


@dataclass(frozen=True)
class _Team:
    """Code of one function of a team: what it does with the team's words."""

    builder: Any
    words: Any

    def at(self, index: Any) -> Any:
        """The address of a word."""
        place = index if isinstance(index, ir.Value) else INDEX(index)
        return self.builder.gep(self.words, [place])

    def load(self, index: Any) -> Any:
        """What a word is."""
        return self.builder.load_atomic(self.at(index), "seq_cst", 8)

    def exchange(self, index: Any, value: int) -> Any:
        """Sets a word, and returns what it was."""
        return self.builder.atomic_rmw("xchg", self.at(index), INDEX(value), "seq_cst")

    def add(self, index: int, value: int) -> Any:
        """Adds to a word, and returns what it was."""
        return self.builder.atomic_rmw("add", self.at(index), INDEX(value), "seq_cst")

    def is_set(self, index: Any) -> Any:
        """Whether a word is not 0."""
        return self.builder.icmp_signed("!=", self.load(index), INDEX(0))

    def is_waiting(self) -> Any:
        """Whether an open task has blocks left."""
        b = self.builder
        return b.and_(self.is_set(_OPEN), b.icmp_signed("<", self.load(_NEXT), self.load(COUNT)))

    @contextmanager
    def repeated(self) -> Iterator[Any]:
        """Repeats the code within it; yields the block that follows, to which it can leave."""
        b = self.builder
        again, done = (b.append_basic_block(name) for name in ("again", "done"))
        b.branch(again)
        b.position_at_end(again)
        yield done
        b.branch(again)
        b.position_at_end(done)

    def leave(self, condition: Any, done: Any) -> None:
        """Goes on in the block `done` if the condition is true."""
        following = self.builder.append_basic_block()
        self.builder.cbranch(condition, done, following)
        self.builder.position_at_end(following)

    def drain(self) -> None:
        """Calls the task, as `compiled_code.Code` does, for blocks that are left, until none is."""
        b, word = self.builder, INDEX.as_pointer()
        with b.goto_entry_block():  # in a loop, each turn would take more of the stack
            unread = b.alloca(INDEX, 2)
        kind = ir.FunctionType(ir.IntType(32), [word, word, word, INDEX])
        with self.repeated() as done:
            block = self.add(_NEXT, 1)
            self.leave(b.icmp_signed(">=", block, self.load(COUNT)), done)
            function = b.inttoptr(self.load(TASK), kind.as_pointer())
            places = unread, b.gep(unread, [INDEX(1)]), b.inttoptr(self.load(ARGUMENTS), word)
            status = b.call(function, [*places, block])
            with b.if_then(b.icmp_signed(">", status, ir.IntType(32)(0))):
                self.exchange(FAILED, 1)

    def pause(self) -> None:
        """Leaves the processor to the other thread of its core for a moment."""
        if binding.get_default_triple().startswith("x86_64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            module = self.builder.module
            self.builder.call(module.declare_intrinsic("llvm.x86.sse2.pause", (), kind), [])


def _of_team(write: Callable[[_Team, Any], None]) -> Task:
    """The task of a team's words, and of a number, whose code `write` writes."""

    def write_whole(builder: Any, given: Any) -> tuple[str, ...]:
        write(_Team(builder, given[0]), given[1])
        return ()

    return Task(
        write.__name__, lambda: Code(compile_task(write_whole, write)[0]), (), lambda count: True
    )


@_of_team
def drain(team: _Team, _: Any) -> None:
    """Computes blocks of the open task until none is left."""
    team.drain()


@_of_team
def begin(team: _Team, _: Any) -> None:
    """Opens the task; helpers that are awake begin."""
    team.exchange(FAILED, 0)
    team.exchange(_NEXT, 0)
    team.exchange(_OPEN, 1)


@_of_team
def wake(team: _Team, parked: Any) -> None:
    """Tells in the next word whether the helper must be woken; marks it awake."""
    told = team.at(team.builder.add(parked, INDEX(1)))
    team.builder.store(INDEX(0), told)
    with team.builder.if_then(team.is_set(parked)):
        team.builder.store(team.exchange(parked, 0), told)


@_of_team
def close(team: _Team, _: Any) -> None:
    """Closes the task, and waits for helpers that are still computing."""
    team.exchange(_OPEN, 0)
    with team.repeated() as done:
        team.leave(team.builder.not_(team.is_set(_ACTIVE)), done)
        team.pause()


@_of_team
def serve(team: _Team, parked: Any) -> None:
    """Helps with tasks as they open; returns, to sleep, after a while without one."""
    b = team.builder
    quiet = b.alloca(INDEX)
    b.store(INDEX(0), quiet)
    with team.repeated() as done, b.if_else(team.is_waiting()) as (helping, idle):
        with helping:
            team.add(_ACTIVE, 1)  # before checking again: the leader closes, then looks
            with b.if_then(team.is_set(_OPEN)):
                team.drain()
            team.add(_ACTIVE, -1)
            b.store(INDEX(0), quiet)
        with idle:
            passed = b.load(quiet)
            b.store(b.add(passed, INDEX(1)), quiet)
            team.pause()
            with b.if_then(b.icmp_signed(">=", passed, INDEX(_PATIENCE))):
                team.exchange(parked, 1)  # before checking again: the leader opens, then looks
                team.leave(b.not_(team.is_waiting()), done)
                team.leave(b.icmp_signed("==", team.exchange(parked, 0), INDEX(0)), done)
                b.store(INDEX(0), quiet)
