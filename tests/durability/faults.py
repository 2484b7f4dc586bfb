"""Makes one allocation, or one write, of a command fail: the 1st, 2nd, 4th, 8th … in turn.

python -m tests.durability.faults [--command NAME] [--kind allocation|write] [--folder FOLDER]

The exit code is 1 if a command then told no error of its own in one line, left half a file, or left
anything else. Each command goes on until its fault comes after its end.
"""

import argparse
import compileall
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import wrote
from tests.durability import campaign
from tests.durability.commands import COMMANDS, ROOT, SWEEP, Command
from tests.durability.killing import Place

KINDS = {"allocation": 1, "write": 2}
NAMED = (0, 3, 4, 5)
"""Exit codes: what failed was not needed, or the error is told, by the child or its supervisor."""
_MOST = 1 << 26
_SECONDS = 120
_COMMAND = """
import ctypes, sys
from tracer.containment import supervisor
kind, number, told = (int(sys.argv.pop(1)) for _ in range(3))
begin = supervisor.become_child
def become_child(*arguments):
    begin(*arguments)
    ctypes.CDLL(None).fault_arm(kind, ctypes.c_long(number), told)
supervisor.become_child = become_child
from tracer.__main__ import main
sys.exit(main())
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """What a command did whose `number`-th event failed, and what is wrong with it, in words."""

    command: Command
    kind: str
    number: int
    came: bool
    code: int
    err: str
    wrong: tuple[str, ...]


def compiler() -> str | None:
    """Returns the C compiler; None without one."""
    return shutil.which("cc") or shutil.which("gcc")


def library(folder: Path) -> Path:
    """Compiles what makes calls fail."""
    made, cc = folder / "faults.so", compiler()
    assert cc is not None
    source = Path(__file__).with_suffix(".c")
    subprocess.run([cc, "-shared", "-fPIC", "-O1", "-o", made, source], check=True)
    return made


def compile_sources() -> None:
    """Has Python keep the bytecode of all modules, whose parser blames a lack of memory on them."""
    compileall.compile_dir(ROOT / "tracer", quiet=2)


def faults(command: Command, kind: str, place: Place, shim: Path) -> Iterator[Fault]:
    """Yields the fault at 1, 2, 4, … until one comes after the end of the command."""
    number = 1
    while number <= _MOST:
        fault = failing(command, kind, number, place, shim)
        yield fault
        if not fault.came:
            return
        number *= 2


def failing(command: Command, kind: str, number: int, place: Place, shim: Path) -> Fault:
    """Runs the command with its `number`-th allocation or write failing."""
    path = place.out / command.output
    for folder in (place.out, place.tmp):
        shutil.rmtree(folder)
        folder.mkdir()
    reading, writing = os.pipe()
    arguments = [str(each) for each in (KINDS[kind], number, writing)]
    try:
        done = subprocess.run(
            [sys.executable, "-c", _COMMAND, *arguments, *command.line(path)],
            env={**place.environment(), "LD_PRELOAD": str(shim), "PYTHONPATH": str(ROOT)},
            cwd=place.path, pass_fds=[writing], capture_output=True, text=True, timeout=_SECONDS,
        )  # fmt: skip
        code, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        code, out, err = -1, "", "does not end"
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        came = bool(stream.read(1))
    return Fault(command, kind, number, came, code, err, (*_wrong(command, place, code, out, err),))


def _wrong(command: Command, place: Place, code: int, out: str, err: str) -> Iterator[str]:
    if code not in NAMED:
        yield f"exit code {code}"
    yield from wrote.faults(out, err, code)
    path = place.out / command.output
    usual = campaign.Undisturbed(command, None, 0.0, ())
    if code == 0 or path.exists():
        half = _half(usual, path)
        if half:
            yield f"a half file ({half})"
    if code != 0 and path.exists() and f"wrote {path}" not in err and not command.resumes:
        yield "a file that is not told"
    yield from (f"left {name}" for name in place.leftovers(command.output))


def _half(usual: campaign.Undisturbed, path: Path) -> str:
    """Returns why a file cannot be read; a sweep that was broken off has its own reader."""
    try:
        usual.command.content(path)
    except Exception as error:  # each reader has exceptions of its own
        return f"{type(error).__name__}: {error}"
    return ""


def table(found: Sequence[Fault]) -> str:
    """Returns a line for each command and kind, and one for each fault that went wrong."""
    lines = [f"{'command':<24} {'kind':<11} faults  needed not  told  crashed  wrong"]
    for name, kind in dict.fromkeys((f.command.name, f.kind) for f in found):
        those = [f for f in found if (f.command.name, f.kind) == (name, kind) and f.came]
        counts = [
            len(those),
            *(sum(f.code in codes for f in those) for codes in ((0,), (3, 4), (5,))),
        ]
        lines.append(
            f"{name:<24} {kind:<11} {counts[0]:6} {counts[1]:11} {counts[2]:5} {counts[3]:8} "
            f"{sum(bool(f.wrong) for f in those):6}"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Makes allocations and writes fail.")
    parser.add_argument("--command", default="", help="only commands with this in their name")
    parser.add_argument("--kind", choices=list(KINDS), help="only faults of this kind")
    parser.add_argument("--folder", type=Path, help="folder to work in [default: a temporary one]")
    chosen = parser.parse_args()
    found: list[Fault] = []
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        shim, place = library(Path(folder)), Place(Path(folder))
        compile_sources()
        for command in (SWEEP, *COMMANDS):
            if chosen.command not in command.name:
                continue
            campaign.undisturbed(command, place)  # fills the caches
            for kind in [chosen.kind] if chosen.kind else KINDS:
                for fault in faults(command, kind, place, shim):
                    found.append(fault)
                    if fault.wrong:
                        print(f"{command.name}, {kind} {fault.number}: {fault.wrong}", flush=True)
                        print(f"    {fault.err.strip()[-600:]}", flush=True)
    print(table(found))
    return int(any(fault.wrong for fault in found))


if __name__ == "__main__":
    sys.exit(main())
