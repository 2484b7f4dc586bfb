"""The errors of this project, each with its exit code on the command line."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tracer.text import message


class TracerError(Exception):
    """Base class of all errors shown to users.

    `what` names the problem and its location (file, node, operator, opset); `hint` says what is
    allowed and what to do. Each is one sentence and is shown without a traceback. As text, both
    are one line of at most 500 characters, whatever names of a model they hold.
    """

    exit_code = 1

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return message(f"{self.what}. {self.hint}" if self.hint else self.what)


class ThresholdError(TracerError):
    """A comparison or a threshold failed; the command itself succeeded."""

    exit_code = 1


class UsageError(TracerError):
    """The arguments contradict each other or the model."""

    exit_code = 2


class ModelError(TracerError):
    """The model is broken, or uses something unsupported."""

    exit_code = 3


class InputError(TracerError):
    """An input, a data set or an output path is missing or does not fit."""

    exit_code = 3


class LimitError(TracerError):
    """A limit of `tracer.limits` was exceeded."""

    exit_code = 4


class CrashError(TracerError):
    """The process that ran the model died: of a signal in native code, or for lack of memory."""

    exit_code = 5


class ClusterError(TracerError):
    """No worker is left: the scheduler of a cluster is gone, or has no workers that can be used."""

    exit_code = 6


_NO_MEMORY = (
    "can't allocate", "annot allocate memory", "Failed to allocate memory", "bad allocation",
    "bad_alloc", "can't start new thread",
)  # fmt: skip
"""What Python, libc, C++ and runtimes say of an allocation that failed, beside a MemoryError."""


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an exception and what it came of, each once: of some causes the chain is a ring."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def is_lack_of_memory(error: BaseException | None) -> bool:
    """Returns whether an exception came of an allocation that failed, whatever it has become."""
    return any(
        isinstance(each, MemoryError) or tells_of_memory(str(each)) for each in chain_of(error)
    )


def tells_of_memory(message: str) -> bool:
    """Returns whether a message tells of an allocation that failed."""
    return any(words in message for words in _NO_MEMORY)


@contextmanager
def locate_errors(place: object, once: bool = False) -> Iterator[None]:
    """Names the place of errors of this project, such as a file, in front of what they say.

    With `once`, errors that name it already stay as they are.
    """
    try:
        yield
    except TracerError as error:
        if once and str(place) in error.what:
            raise
        raise type(error)(f"{place}: {error.what}", error.hint) from error


@contextmanager
def refusing(refusal: Callable[[str], TracerError]) -> Iterator[None]:
    """Raises `refusal(why)` for whatever a parser raises of bytes that may be anybody's.

    Parsers raise exceptions of any class, and of others in their next version. Errors of this
    project and the lack of memory pass. Nothing but the parser belongs in the block.
    """
    try:
        yield
    except (TracerError, MemoryError):
        raise
    except Exception as error:
        why = str(error).strip().partition("\n")[0]
        raise refusal(why or type(error).__name__) from error
