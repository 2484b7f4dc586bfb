"""Makes runs compute 0 instead of denormal numbers, as a session with that setting does.

onnxruntime sets the threads of a session so, but the thread that calls it only for the first
session of a process. So this sets the control register of the calling thread around each run, by
the C library's `fesetenv`, and restores it.
"""

import ctypes
import ctypes.util
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from tracer.errors import UsageError

_Result = TypeVar("_Result")
_WORDS = 8
"""32-bit words of the largest `fenv_t` of the C libraries below."""


@dataclass(frozen=True, slots=True)
class _Register:
    """The word of `fenv_t` that holds the control register, and its bits to set."""

    word: int
    bits: int


_REGISTERS = {
    "x86_64": _Register(7, 0x8040),  # MXCSR: flush to zero, denormals are zero
    "aarch64": _Register(0, 1 << 24),  # FPCR: flush to zero
}
"""By the machine's name, as glibc lays `fenv_t` out (sysdeps/*/fpu/bits/fenv.h)."""


def is_known() -> bool:
    """Returns whether the control register of this machine can be set."""
    return _library() is not None


def flushed(run: Callable[[], _Result]) -> Callable[[], _Result]:
    """Returns `run` with denormal inputs and results of arithmetic replaced by 0.

    Raises UsageError on a machine whose control register is not known.
    """
    library = _library()
    if library is None:
        raise UsageError(
            f"denormal numbers cannot be flushed to 0 on {platform.machine()} with this C library",
            "Set session.set_denormal_as_zero in a program of your own.",
        )
    register = _REGISTERS[platform.machine()]

    def flushing() -> _Result:
        before = (ctypes.c_uint32 * _WORDS)()
        library.fegetenv(before)
        during = (ctypes.c_uint32 * _WORDS)(*before)
        during[register.word] |= register.bits
        library.fesetenv(during)
        try:
            return run()
        finally:
            library.fesetenv(before)

    return flushing


@cache
def _library() -> Any:
    """Returns the C library of mathematics; None where `fenv_t` is laid out otherwise."""
    name = ctypes.util.find_library("m")
    if platform.machine() not in _REGISTERS or name is None:
        return None
    return ctypes.CDLL(name) if platform.libc_ver()[0] == "glibc" else None
