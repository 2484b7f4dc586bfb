"""A fence around this process: it writes in some folders alone, and opens no socket.

Landlock and seccomp of Linux keep it, for this process and all that it starts, until they end.
Neither needs any right. A kernel without one of them keeps the other.
"""

import contextlib
import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Numbers of system calls, the same on all processors."""
_VERSION, _BENEATH = 1, 1
"""LANDLOCK_CREATE_RULESET_VERSION, LANDLOCK_RULE_PATH_BENEATH."""
_WRITE, _TRUNCATE, _REFER = 1 << 1, 1 << 14, 1 << 13
_CHANGES = _WRITE | sum(1 << bit for bit in range(4, 13))
"""Writing files; removing and making files, folders, links and devices."""
_TCP = 0b11
"""To bind and to connect."""
_REFER_SINCE, _TRUNCATE_SINCE, _TCP_SINCE = 2, 3, 4
"""Versions of Landlock."""

_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
"""PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER."""
_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""The architecture as the kernel audits it, and its system call `socket`."""
_IO_URING = 425
"""A system call that opens sockets by itself."""
_OTHER_ABI = 0x4000_0000
"""From this number on, calls of x86-64 are those of its ABI of 32 bits."""
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _DENY = 0x7FFF_0000, 0x0005_000D
"""SECCOMP_RET_ALLOW, and SECCOMP_RET_ERRNO with EACCES."""


def kept_by() -> str:
    """Returns what keeps a fence here, in words; '' where the kernel has nothing."""
    landlock = _landlock_version()
    parts = [f"Landlock {landlock}"] if landlock else []
    return " and ".join([*parts, "seccomp"] if _has_seccomp() else parts)


def build(writable: Iterable[Path]) -> None:
    """Lets this process write in these folders and files alone, and open no socket.

    Threads that run already are outside. What the kernel lacks is left out.
    """
    libc = _libc()
    if libc is None or libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return
    version = _landlock_version()
    if version:
        _fence_files(libc, version, writable)
    if not _has_seccomp():
        return
    architecture, socket = _MACHINES[platform.machine()]
    program = [  # refuses sockets, and io_uring, which opens some
        (_LOAD, 0, 0, 4),  # the architecture
        (_EQUAL, 0, 5, architecture),
        (_LOAD, 0, 0, 0),  # the number of the call
        (_AT_LEAST, 3, 0, _OTHER_ABI),
        (_EQUAL, 2, 0, socket),
        (_EQUAL, 1, 0, _IO_URING),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _DENY),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in program))
    filtering = struct.pack("@HP", len(program), ctypes.addressof(code))
    libc.prctl(_SET_SECCOMP, _FILTER, ctypes.c_char_p(filtering), 0, 0)


def _libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _landlock_version() -> int:
    libc = _libc()
    return 0 if libc is None else max(0, int(libc.syscall(_CREATE_RULESET, None, 0, _VERSION)))


def _has_seccomp() -> bool:
    return sys.platform == "linux" and platform.machine() in _MACHINES


def _fence_files(libc: ctypes.CDLL, version: int, writable: Iterable[Path]) -> None:
    refer = _REFER if version >= _REFER_SINCE else 0
    truncate = _TRUNCATE if version >= _TRUNCATE_SINCE else 0
    handled = _CHANGES | refer | truncate
    words = (handled, _TCP) if version >= _TCP_SINCE else (handled,)
    attributes = struct.pack(f"={len(words)}Q", *words)
    rules = libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    if rules < 0:
        return
    for path in writable:
        with contextlib.suppress(OSError):  # it is not there, so nothing is written to it
            place = os.open(path, getattr(os, "O_PATH", 0) | os.O_CLOEXEC)
            own = handled if path.is_dir() else _WRITE | truncate
            rule = struct.pack("=Qi", own, place)
            libc.syscall(_ADD_RULE, rules, _BENEATH, rule, 0)
            os.close(place)
    libc.syscall(_RESTRICT_SELF, rules, 0)
    os.close(rules)
