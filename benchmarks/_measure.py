"""Time whole commands: alternating runs, medians, and the median of the ratios of pairs."""

import argparse
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

from tracer.interpreter.kernels import machine_code
from tracer.records import environment

CHOSEN = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
"""Variables that choose another BLAS than this machine's; commands are measured without them."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Wall seconds and peak resident memory (MiB) of one finished process."""

    seconds: float
    peak_mib: float


def counts(doc: str | None, **defaults: int) -> argparse.Namespace:
    """Returns the options of the command line: whole numbers, named with their defaults."""
    parser = argparse.ArgumentParser(description=doc)
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def machine() -> str:
    """Returns the machine in one line, with the instructions of narrow sums."""
    return f"{environment.observe().summary} · narrow sums: {machine_code.instruction_set()}"


def measure(command: list[str]) -> Usage:
    """Runs a command to its end. Raises SystemExit if it fails."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"{' '.join(command)} failed:\n{errors.decode()}")
    return Usage(seconds, usage.ru_maxrss / 1024)


def in_turn(first: list[str], second: list[str], repeats: int) -> tuple[list[Usage], list[Usage]]:
    """Alternates the commands (A B A B …), so that drift of the machine affects both."""
    pairs = [(measure(first), measure(second)) for _ in range(repeats)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def median_ratio(first: list[Usage], second: list[Usage]) -> float:
    """Returns the median of first ÷ second in seconds over the pairs."""
    return statistics.median(a.seconds / b.seconds for a, b in zip(first, second, strict=True))


def python(*args: str) -> list[str]:
    """Returns a command that runs this Python."""
    return [sys.executable, *args]
