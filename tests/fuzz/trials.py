"""Runs the commands of mutants in forks of this process, as the supervisor of `tracer` would.

A fork runs all commands of a mutant. Where one fails, it is run again in a fork of its own, whose
result counts, and the rest follows in another fork.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import io
import json
import mmap
import os
import select
import shutil
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

import tracer.cli
from tests.fuzz.commands import OUTPUTS, Command, commands, store
from tests.fuzz.mutants import Mutant
from tracer.containment import activity, supervisor, watch
from tracer.support import files
from tracer.support.temporary import sweep

PROCESSOR_S, WALL_S = 10.0, 60.0
"""Longest time for a command. Others may use the processors, so the wall clock is generous."""
_ABORT_S = 1.0
"""Time in which a process that is ended writes what it did."""
_POLL_S = 0.02
_BEGUN = struct.Struct("<qd")
"""The command that runs, and the processor time at its begin."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended, in a process that may have ended with it.

    `died` is its signal, 0 for none; `forced` is why we ended it: '' if we did not, `overdue` by
    the rule of tracer's supervisor, `endless` by ours.
    """

    command: Command
    code: int
    out: str
    err: str
    left: Sequence[str] = ()
    seconds: float = 0.0
    died: int = 0
    forced: str = ""
    frames: str = ""
    line: str = ""
    peak: int = 0
    incident: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """The commands of a mutant from `first` to before `last`, which a fork is to run."""

    mutant: int
    first: int = 0
    last: int | None = None


@dataclass(slots=True)
class _Child:
    task: Task
    process: int
    handle: int
    page: activity.Page
    alarm: watch.Alarm
    frames: BinaryIO
    begun: mmap.mmap
    folder: Path
    forced: str = ""
    asked_at: float = 0.0
    started: float = field(default_factory=time.monotonic)


def trials(
    make: Callable[[int], Mutant],
    tasks: Iterable[Task],
    jobs: int,
    is_suspicious: Callable[[Ended], bool],
) -> Iterator[tuple[int, int, Ended]]:
    """Yields how commands ended, as they end, from `jobs` forks at a time.

    With each come the number of the mutant, which `make` makes in the fork, and the place of the
    command among those of the mutant. A suspicious end among others is not yielded but repeated.
    """
    gc.collect()
    gc.freeze()  # a collection would write to every page that forks share
    waiting, fresh = list[Task](), iter(tasks)
    running: dict[int, _Child] = {}
    with tempfile.TemporaryDirectory(prefix="fuzz-") as base:
        try:
            while True:
                while len(running) < jobs and (task := _next(waiting, fresh)):
                    child = _started(make, task, Path(base))
                    running[child.handle] = child
                if not running:
                    return
                for child in _ended_children(running):
                    for index, ended in _results(child):
                        alone = (child.task.first, child.task.last) == (index, index + 1)
                        if is_suspicious(ended) and not alone:
                            waiting += _again(child.task, index)
                            break
                        yield child.task.mutant, index, ended
        finally:
            for child in running.values():
                os.kill(child.process, signal.SIGKILL)
                os.waitpid(child.process, 0)


def _next(waiting: list[Task], fresh: Iterator[Task]) -> Task | None:
    return waiting.pop() if waiting else next(fresh, None)


def _again(task: Task, index: int) -> list[Task]:
    """The command alone, and those after it."""
    return [replace(task, first=index + 1), replace(task, first=index, last=index + 1)]


def _ended_children(running: dict[int, _Child]) -> list[_Child]:
    """Waits a moment, ends what is late, and takes out those that have ended."""
    ready, _, _ = select.select(list(running), [], [], _POLL_S)
    for child in running.values():
        _end_if_late(child)
    return [running.pop(handle) for handle in ready]


def _started(make: Callable[[int], Mutant], task: Task, base: Path) -> _Child:
    folder = Path(tempfile.mkdtemp(dir=base))
    for name in ("work", "temporary", "results"):
        (folder / name).mkdir()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    page, begun = activity.Page.anonymous(nowhere), mmap.mmap(-1, _BEGUN.size)
    frames = os.fdopen(os.memfd_create("frames"), "w+b", buffering=0)
    parent = os.getpid()
    process = os.fork()
    if process == 0:
        code = 1
        try:
            supervisor.become_child(page, frames, parent)
            _redirect(folder / "results" / "making")  # numpy may warn
            _run(make(task.mutant), task, folder, begun)
            code = 0
        except BaseException:
            faulthandler.dump_traceback(frames)
            _note(folder / "results" / "harness", sys.exc_info()[1])
        finally:
            os._exit(code)
    os.close(nowhere)
    handle, alarm = os.pidfd_open(process), watch.Alarm(process)
    return _Child(task, process, handle, page, alarm, frames, begun, folder)


def _run(mutant: Mutant, task: Task, folder: Path, begun: mmap.mmap) -> None:
    """Runs the commands in this process; each leaves its streams and its result in files."""
    work = folder / "work"
    os.chdir(work)
    _move_cache(folder / "cache")
    tempfile.tempdir = str(folder / "temporary")
    store(mutant, work)
    every = commands(mutant)
    for index in range(len(every))[task.first : task.last]:
        results = folder / "results" / str(index)
        _redirect(results)
        results.with_suffix(".command").write_text(json.dumps(every[index]))
        begin = time.process_time()
        _BEGUN.pack_into(begun, 0, index, begin)
        code = tracer.cli.main(list(every[index]))
        seconds = time.process_time() - begin
        sys.stdout.flush()
        left = _left(folder)
        results.with_suffix(".json").write_text(json.dumps([code, seconds, left]))


def _move_cache(to: Path) -> None:
    """Gives this process a cache of its own, with the overheads that were measured before."""
    measured = list(files.cache_folder().glob("bias-*.json"))
    os.environ["XDG_CACHE_HOME"] = str(to)
    files.cache_folder().mkdir(parents=True)
    for file in measured:
        shutil.copy(file, files.cache_folder())


def _redirect(results: Path) -> None:
    """Sends both streams, also those of native code, to files."""
    for number, ending in ((1, ".out"), (2, ".err")):
        target = os.open(results.with_suffix(ending), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(target, number)
        os.close(target)
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), encoding="utf-8")
    sys.stderr = io.TextIOWrapper(
        os.fdopen(2, "wb", buffering=0, closefd=False), encoding="utf-8", write_through=True
    )


def _left(folder: Path) -> list[str]:
    """Names of files that a command should have removed; removes what it was asked to write.

    A folder that a traceback holds is removed with it, at the latest when the program ends.
    """
    gc.collect()
    left = [file.name for file in (folder / "temporary").iterdir()]
    for file in (folder / "work").iterdir():
        if file.name.startswith(OUTPUTS):
            file.unlink()
        elif not file.name.startswith(("m.", "test_data_set_0")):
            left.append(file.name)
    return left


def _note(file: Path, error: BaseException | None) -> None:
    with contextlib.suppress(OSError):
        file.write_text(repr(error))


def _end_if_late(child: _Child) -> None:
    """Ends a process by the rule of tracer's supervisor, or by ours; it writes its frames first."""
    now = time.monotonic()
    if child.forced:
        if now - child.asked_at > _ABORT_S:
            os.kill(child.process, signal.SIGKILL)
        return
    _, cpu = _BEGUN.unpack_from(child.begun)
    if child.alarm.seconds_left(child.page) <= 0:
        child.forced = "overdue"
    elif _processor_seconds(child.process) - cpu > PROCESSOR_S or now - child.started > WALL_S:
        child.forced = "endless"
    if child.forced:
        child.asked_at = now
        os.kill(child.process, signal.SIGABRT)


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _results(child: _Child) -> Iterator[tuple[int, Ended]]:
    """Yields how the commands of an ended process ended, the one it died in last."""
    _, status, usage = os.wait4(child.process, 0)
    os.close(child.handle)
    died = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    sweep(child.folder / "temporary")
    child.frames.seek(0)
    frames = supervisor.thread_that_died(child.frames.read().decode("utf-8", "replace"))
    try:
        for index, results in _begun(child.folder):
            yield index, _ended(child, results, died, frames, usage.ru_maxrss << 10)
    finally:
        child.frames.close()
        shutil.rmtree(child.folder, ignore_errors=True)


def _begun(folder: Path) -> list[tuple[int, Path]]:
    """The commands that began, in order, with the beginning of the names of their files."""
    harness = folder / "results" / "harness"
    if harness.exists():
        raise RuntimeError(f"the trial itself failed: {harness.read_text()}")
    found = (folder / "results").glob("*.command")
    return sorted((int(file.stem), file.with_suffix("")) for file in found)


def _ended(child: _Child, results: Path, died: int, frames: str, peak: int) -> Ended:
    command = tuple(json.loads(results.with_suffix(".command").read_text()))
    out, err = (_text(results.with_suffix(ending)) for ending in (".out", ".err"))
    finished = results.with_suffix(".json")
    if finished.exists():
        code, seconds, left = json.loads(finished.read_text())
        incidents = sorted((child.folder / "cache").glob("tracer/errors/*"))
        text = incidents[-1].read_text() if code == tracer.cli.INTERNAL_ERROR and incidents else ""
        return Ended(command, code, out, err, left, seconds, peak=peak, incident=text)
    left = [file.name for file in (child.folder / "temporary").iterdir()]
    line = str(supervisor.crash(-died, child.page.read(), frames))
    return Ended(command, -died, out, err, left, 0.0, died, child.forced, frames, line, peak)


def _text(file: Path) -> str:
    return file.read_bytes().decode("utf-8", "surrogateescape") if file.exists() else ""
