"""The door to compiled code: loads kernels at their first use, and looks at what they are given.

Compiled code looks at nothing: it reads and writes beyond an array that is smaller, or of another
type, than it was compiled for. Every function that Python calls is therefore an `Entry` or a
`Task`, with the condition that the sizes of its arguments must meet.
"""

import ctypes
import importlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from types import ModuleType
from typing import Any

import numpy as np

from tracer.containment.activity import Progress, silent
from tracer.interpreter.kernels.argument_types import Signature
from tracer.support.files import without_signals
from tracer.support.types import Array, type_text

_KERNELS = "tracer.interpreter.kernels"
_LOADING = threading.RLock()
"""Compilers have one state for the whole process."""
_PROGRESS: ContextVar[Progress] = ContextVar("progress", default=silent)
_LOADING_NS = [0]
"""Time that all loading in this process has taken."""
_COMPILED = [0]
"""Kernels that this process has compiled."""
_NOTES: dict[str, None] = {}
_NOT_KEPT = (
    "compiled code cannot be kept, so every command compiles anew: set NUMBA_CACHE_DIR to a folder "
    "that can be written"
)


@cache
def loaded(name: str, package: str = _KERNELS) -> ModuleType:
    """Returns a module of kernels, each of which is compiled, or read, at its first call."""
    with loading():  # LLVM is heavy
        return importlib.import_module(f"{package}.{name}")


@contextmanager
def loading() -> Iterator[None]:
    """Lets one thread at a time load or compile code, while `clock_ns` stands still.

    Signals wait: an interrupted compiler is left without its result.
    """
    with _LOADING, without_signals():
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            _LOADING_NS[0] += time.perf_counter_ns() - start


@contextmanager
def compiling(is_kept: bool) -> Iterator[None]:
    """Tells the progress, and the notes, that a kernel is compiled within this context."""
    message = f"compiling kernels for this processor{', once' if is_kept else ''}"
    progress, done = _PROGRESS.get(), _COMPILED[0]
    progress(done, done + 1, message)
    yield
    _COMPILED[0] = done + 1
    progress(done + 1, done + 1, message)
    if not is_kept:
        _NOTES[_NOT_KEPT] = None


@contextmanager
def announced(progress: Progress | None) -> Iterator[None]:
    """Calls `progress` while kernels are compiled within this context."""
    token = _PROGRESS.set(progress or silent)
    try:
        yield
    finally:
        _PROGRESS.reset(token)


def announcing() -> Progress:
    """Returns what is called while kernels are compiled, for the threads of a run."""
    return _PROGRESS.get()


def notes() -> tuple[str, ...]:
    """Returns what a user should know of the code that this process has compiled."""
    return tuple(_NOTES)


def clock_ns() -> int:
    """Returns the time on a clock that stands still while kernels are loaded or compiled.

    Loading takes half a second, many times as long as an inference of a small network.
    """
    return time.perf_counter_ns() - _LOADING_NS[0]


Fits = Callable[..., Any]
"""Whether the arguments of a compiled function fit together."""


class UnfitError(TypeError):
    """Arguments that a compiled function must not get."""


@dataclass(frozen=True, slots=True)
class Place:
    """An array among the arguments of a task: its element type, and whether it is written to."""

    dtype: np.dtype[Any]
    written: bool = False


READ, WRITTEN = Place(np.dtype(np.float32)), Place(np.dtype(np.float32), written=True)
INTEGERS = Place(np.dtype(np.int64))


_UNREAD = (ctypes.c_int64 * 2)()
_ERROR = ctypes.addressof(_UNREAD) + 8
"""Places for the result and for the error of numba's calling convention, which nobody reads."""
NO_MEMORY = "compiled code found no memory"
_CODE = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3, ctypes.c_int64)
"""Calls release the interpreter lock."""


class Code:
    """Machine code of a function of words and a number."""

    def __init__(self, address: int) -> None:
        self.address = address
        self._run = _CODE(address)

    def __call__(self, words: int, number: int = 0) -> None:
        """Runs it on the words at an address.

        Raises MemoryError where it finds no memory, or, with NUMBA_BOUNDSCHECK=1, no element.
        """
        if self._run(_UNREAD, _ERROR, words, number) > 0:
            raise MemoryError(NO_MEMORY)


@dataclass(slots=True, eq=False)
class Entry:
    """A function that Python calls with arrays, numbers and tuples of them."""

    function: Callable[..., Any]
    signatures: tuple[Signature, ...]
    fits: Fits
    _codes: dict[int, Code] = field(default_factory=dict)

    def __call__(self, *arguments: Any) -> Any:
        """Calls the function. Raises UnfitError for what does not fit."""
        if self.fits(*arguments):
            for place, signature in enumerate(self.signatures):
                words = signature.words(arguments)
                if words is not None:
                    given = (ctypes.c_int64 * len(words))(*words)
                    code = self._codes.get(place) or self._compile(place)
                    code(ctypes.addressof(given))
                    return signature.result.take(iter(given))
        name = self.function.__qualname__
        raise UnfitError(f"{name} cannot take {_arguments_text(arguments)}")

    def _compile(self, place: int) -> Code:
        """Compiles the code for a signature, or reads it, at its first use."""
        with loading():
            code = _code("entry_code", self.function, self.signatures[place])
        self._codes[place] = code
        return code


@dataclass(frozen=True)
class Task:
    """A compiled function of argument words and a block number, for `numeric.task_team`.

    Its arguments are arrays at `places`, then numbers; `fits` takes the number of blocks before
    them. `compile` returns its code.
    """

    name: str
    compile: Callable[[], Code]
    places: tuple[Place, ...]
    fits: Fits

    @cached_property
    def code(self) -> Code:
        """Its code, which is compiled at the first use."""
        with loading():
            return self.compile()

    def words(self, count: int, arrays: Sequence[Array], numbers: Sequence[int]) -> Array:
        """Returns the argument words: address and size of each array, then the numbers.

        Raises UnfitError for arrays that are not contiguous and aligned, or do not fit.
        """
        words: list[int] = []
        for array, place in zip(arrays, self.places, strict=True):
            flags = array.flags
            sound = flags.carray if place.written else flags.c_contiguous and flags.aligned
            if array.dtype != place.dtype or not sound:
                raise UnfitError(
                    f"{self.name} needs a contiguous array of {place.dtype}"
                    f"{' that it may write to' * place.written}, not {type_text(array)}"
                )
            words += array.__array_interface__["data"][0], array.size
        if not self.fits(count, *arrays, *numbers):
            raise UnfitError(f"{self.name} cannot take {_arguments_text((*arrays, *numbers))}")
        words += numbers
        return np.array(words, np.int64)


def _code(maker: str, function: Callable[..., Any], *of: Any) -> Code:
    """The kept code of a function; without it, numba compiles it."""

    def make() -> Any:
        return getattr(importlib.import_module(f"{_KERNELS}.numba_code"), maker)(function, *of)

    machine_code = importlib.import_module(f"{_KERNELS}.machine_code")
    return Code(machine_code.keep_code(make, function, *of)[0])


def entry(fits: Fits, *signatures: Any) -> Callable[[Callable[..., Any]], Entry]:
    """Makes a function an entry for arguments of these types; compiled code does not call it."""
    return lambda function: Entry(function, signatures, fits)


def task(*places: Place, fits: Fits) -> Callable[[Callable[..., Any]], Task]:
    """Makes a function of argument words and a block number a task."""
    return lambda function: Task(
        function.__name__, partial(_code, "task_code", function), places, fits
    )


def _arguments_text(arguments: Sequence[Any]) -> str:
    return ", ".join(
        f"({_arguments_text(each)})" if isinstance(each, tuple)
        else type_text(each) if isinstance(each, np.ndarray) else str(each)
        for each in arguments
    )  # fmt: skip
