"""Runs `tracer` commands as a user would, and says what is wrong with how they ended.

A process that imported everything forks each command, so that a thousand of them take minutes.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests import wrote

SECONDS, BYTES = 2.0, 1 << 30
"""What a command may take beyond its start."""
_GRACE_S = 2.5
"""After the limit of time, in which the supervisor ends a command."""
_PATIENCE_S = 60
_MEANINGS = {0: "fine", 1: "differs", 2: "usage", 3: "refused", 4: "limit", 5: "crash contained"}
VERDICTS = (*_MEANINGS.values(), "WRONG")
"""What may be said of an outcome."""
_DOCUMENTED = (0, 3, 4, 5)
_TIME_IS_UP = re.compile(r"time limit was reached|exceeds the limit of [0-9.]+ s\b")
_ADVICE = re.compile(r"--[a-z]|At most [0-9,]+ ")
# libraries whose threads a fork would lose
_NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


@dataclass(frozen=True)
class Outcome:
    """How a command ended: its exit code and texts, seconds, bytes, and files that it left.

    `seconds` are those of its processes, or of the clock if less: others may use the machine.
    `peak` is the most memory that one of its processes had resident, beyond what a process has
    that imported everything. `left` are names of temporary files.
    """

    code: int
    out: str
    err: str
    seconds: float
    peak: int
    killed: bool
    left: tuple[str, ...]

    @property
    def timed_out(self):
        """Whether the command says that it took too long."""
        return bool(_TIME_IS_UP.search(self.err))

    @property
    def verdict(self):
        """What the exit code means."""
        return _MEANINGS.get(self.code, "WRONG")


class Warm:
    """A process that has imported everything, and starts commands."""

    def __init__(self, cache):
        environment = {**os.environ, **_NO_THREADS, "XDG_CACHE_HOME": str(cache)}
        environment.pop("TRACER_IN_PROCESS", None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.warm"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True,
        )  # fmt: skip
        self._resident = self._answer()["resident"]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def run(self, folder, *args):
        """The outcome of `tracer *args`, started in `folder`."""
        with tempfile.TemporaryDirectory(prefix="trial-") as apart:
            apart = Path(apart)
            (apart / "tmp").mkdir()
            asked = {
                "folder": str(folder), "args": [str(arg) for arg in args], "tmp": f"{apart}/tmp",
                "out": f"{apart}/out", "err": f"{apart}/err", "patience": _PATIENCE_S,
            }  # fmt: skip
            self._process.stdin.write(f"{json.dumps(asked)}\n")
            self._process.stdin.flush()
            ended = self._answer()
            left = [*(apart / "tmp").iterdir(), *Path(folder).glob(".tracer-*")]
            return Outcome(
                code=ended["code"], out=_text(apart / "out"), err=_text(apart / "err"),
                seconds=min(ended["seconds"], ended["busy"]), killed=ended["killed"],
                peak=max(0, ended["peak"] - self._resident),
                left=tuple(file.name for file in left),
            )  # fmt: skip

    def _answer(self):
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the warm process ended with {self._process.wait()}")
        return json.loads(line)


def _text(file):
    return file.read_text(encoding="utf-8", errors="backslashreplace")


def limits(endless):
    """The options that most commands of a trial are given; `endless` ones end by time."""
    return ("--max-memory", BYTES >> 20, "--max-seconds", 2 if endless else 30)


def faults(outcome, named, *, endless=False, codes=()):
    """What is wrong with an outcome, in words; `named` is the file that an error must name.

    `codes` are further exit codes that are right. An `endless` command ends at its limit of time.
    """
    errors = wrote.errors(outcome.err)
    lines = [line for line in outcome.err.splitlines() if not line.startswith("wrote ")]
    failed, crashed = outcome.code not in (0, 1), outcome.code == 5
    wrong = {
        "does not end": outcome.killed,
        f"exit code {outcome.code}": outcome.code not in (*_DOCUMENTED, *codes),
        "more than an error": failed and not crashed and len(lines) > len(errors),
        "an error without the file": any(named not in line for line in errors),
        "a limit without an option": outcome.code == 4 and not _ADVICE.search(outcome.err),
        "ends by time": outcome.timed_out and not endless,
        f"left {', '.join(outcome.left)}": bool(outcome.left),
    }
    of_text = wrote.faults(outcome.out, outcome.err, outcome.code)
    return of_text + [fault for fault, is_so in wrong.items() if is_so]


def excesses(outcome, *, endless=False):
    """What a command took too much of, in words: seconds or memory."""
    seconds = SECONDS + (SECONDS + _GRACE_S) * endless
    wrong = {
        f"{outcome.seconds:.1f} s": outcome.seconds > seconds,
        f"{outcome.peak >> 20} MiB": outcome.peak > BYTES,
    }
    return [excess for excess, is_so in wrong.items() if is_so]
