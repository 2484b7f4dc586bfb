"""Kills a command with SIGKILL at some moment, and looks at what it left."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.durability.commands import ROOT, Command

VICTIMS = ("supervisor", "child", "group")
_DEATH_S = 20.0
"""Longest time that a process takes to disappear after its death."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command runs: folders for its output, temporary files and caches."""

    path: Path

    def __post_init__(self) -> None:
        for folder in (self.out, self.tmp, self.cache):
            folder.mkdir(exist_ok=True)

    @property
    def out(self) -> Path:
        return self.path / "out"

    @property
    def tmp(self) -> Path:
        return self.path / "tmp"

    @property
    def cache(self) -> Path:
        return self.path / "cache"

    def environment(self, compiles: bool = False) -> Mapping[str, str]:
        """Environment variables; a command that compiles keeps its code in the cache here."""
        folders = {"TMPDIR": self.tmp, "XDG_CACHE_HOME": self.cache}
        if compiles:
            folders["NUMBA_CACHE_DIR"] = self.cache / "compiled"
        named = {name: str(folder) for name, folder in folders.items()}
        return {**os.environ, **named, "PYTHONPATH": str(ROOT)}

    def leftovers(self, output: str) -> list[str]:
        """Files that should not be there after a command has written `output`."""
        found = [path for path in self.out.iterdir() if path.name != output]
        found += self.tmp.iterdir()
        found += (path for path in self.cache.rglob("*") if ".tmp." in path.name)
        found += self.cache.rglob(".tracer-*")
        return sorted(path.name for path in found)


def started(command: Command, place: Place) -> subprocess.Popen[str]:
    """Starts the command in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tracer", *command.line(place.out / command.output)],
        env=place.environment(command.compiles),
        cwd=place.path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finished(command: Command, place: Place) -> None:
    """Runs the command to its end."""
    process = started(command, place)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, f"{command.name}: exit code {process.returncode}: {err}"


def killed(command: Command, place: Place, seconds: float, victim: str) -> bool:
    """Kills a process of the command `seconds` after its start.

    Returns False if it had ended. Both processes are gone on return: the child dies with its
    supervisor, and the supervisor tells the death of its child by exit code 5.
    """
    process = started(command, place)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    children = _children(process.pid)
    hit = process.poll() is None
    match victim:
        case "child" if children:
            os.kill(children[0], signal.SIGKILL)
        case "group":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        case _:
            process.kill()
    _, err = process.communicate(timeout=60)
    expected = (0, 5, -signal.SIGKILL)
    assert process.returncode in expected, f"{command.name}: exit {process.returncode}: {err}"
    end = time.monotonic() + _DEATH_S
    while any(_lives(child) for child in children):
        assert time.monotonic() < end, f"{command.name}: the child outlives its supervisor"
        time.sleep(0.005)
    return hit and process.returncode != 0


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _lives(pid: int) -> bool:
    """Whether a process runs; a zombie holds nothing any more."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
