"""Runs `tracer` commands for `trial`: imports everything once, and forks a process for each.

A forked command begins in some ms. It takes the way of the program from there on: supervisor,
child, limits, functions that run at exit. Only the objects of the interpreter are not freed.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import sys
import tempfile
import time
from pathlib import Path

import tracer
from tracer.__main__ import main as command

_LATE = ("matplotlib.backends.backend_svg", "scipy.stats")
"""What commands import when they need it."""


def _import_all():
    """Imports what commands import, and sees that no thread runs: a fork would lose it."""
    for module in pkgutil.walk_packages(tracer.__path__, "tracer."):
        if not module.name.endswith("__main__") and not _of_framework(module.name):
            importlib.import_module(module.name)
    for name in _LATE:
        importlib.import_module(name)
    threads = len([*Path("/proc/self/task").iterdir()])
    assert threads == 1, f"{threads} threads"


def _of_framework(name):
    return any(part in ("torch", "chainer") for part in name.split("."))


def _begin(asked):
    """Makes this process one that was started in the folder of a trial."""
    os.setsid()
    os.chdir(asked["folder"])
    for descriptor, name, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, asked["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, asked["err"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        file = os.open(name, flags, 0o600)
        os.dup2(file, descriptor)
        os.close(file)
    os.environ["TMPDIR"] = tempfile.tempdir = asked["tmp"]
    sys.argv = ["tracer", *asked["args"]]


def _leave(code):
    """Ends this process as the interpreter does, but for freeing what it shares with its parent."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _ended(child, began, patience):
    """Waits for a process; returns how it ended. It is killed after `patience` seconds."""
    with os.fdopen(os.pidfd_open(child), "rb", buffering=0) as ended:
        killed = not select.select([ended], [], [], patience)[0]
    if killed:
        os.killpg(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    seconds = time.monotonic() - began
    return {
        "code": os.waitstatus_to_exitcode(status),
        "killed": killed,
        "seconds": seconds,
        "busy": used.ru_utime + used.ru_stime,
        "peak": used.ru_maxrss << 10,
    }


def _answer(message):
    sys.stdout.write(f"{json.dumps(message)}\n")
    sys.stdout.flush()


def main():
    """Answers a line of JSON for each line with a request, until there are no more."""
    _import_all()
    gc.collect()
    gc.freeze()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    _answer({"resident": resident})
    for line in sys.stdin:
        asked = json.loads(line)
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            _begin(asked)
            _leave(command())
        _answer(_ended(child, began, asked["patience"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
