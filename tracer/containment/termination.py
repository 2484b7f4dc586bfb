"""What C++ does with an exception that nothing catches: here it aborts, and prints nothing."""

import contextlib
import ctypes
import sys

_SET_TERMINATE = "_ZSt13set_terminatePFvvE"  # std::set_terminate(void (*)())


def be_quiet() -> None:
    """Leaves the telling of such a crash to the supervisor.

    libstdc++ would print the name of the exception's type as it finds it in memory, which may be
    damaged by then: any bytes, also those that control a terminal.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C++ library
            setter = getattr(ctypes.CDLL("libstdc++.so.6"), _SET_TERMINATE)
            setter(ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p))
