"""The program: makes mutants, runs them, minimises what fails, and reports."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import tests.fuzz.__main__
from tests.fuzz import corpus, report, warmth
from tests.fuzz.commands import commands, store
from tests.fuzz.findings import Finding, Findings
from tests.fuzz.minimiser import minimised
from tests.fuzz.mutants import SHARES, Mutant, mutant
from tests.fuzz.seeds import seeds
from tests.fuzz.trials import Task, trials
from tests.fuzz.verdicts import FAILED, suspicious, verdict
from tracer.cli._messages import progress
from tracer.containment import memory

CHECKED = 5
"""One mutant of so many runs with checks."""
HEARTBEAT = 500
"""Mutants between two lines that tell how many were run."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if a command failed."""
    options = _parsed(arguments)
    make = corpus.stored
    if not options.corpus:
        make = partial(mutant, seeds(), options.seed, options.kind)
    warmth.warm()
    numbers = _numbers(options)
    if options.only is not None:
        _keep(make(options.only), options.keep)
    start = time.monotonic()
    findings = _found(make, numbers, options.jobs, is_told=options.only is not None)
    findings.confirm(make)
    for found in findings.failed.values():
        smallest = min(found, key=lambda each: len(make(each.number).content))
        _keep_smaller(make(smallest.number), smallest, options)
    print(report.text(findings, time.monotonic() - start))
    return 1 if findings.failed else 0


def _numbers(options: argparse.Namespace) -> Sequence[int]:
    """Returns the mutants of this program: a fifth of all, or the others."""
    if options.only is not None:
        return [options.only]
    if options.corpus:
        return range(len(corpus.files()))
    every = range(options.first, options.first + options.mutants)
    return [number for number in every if (number % CHECKED == 0) == options.checked]


def _found(
    make: Callable[[int], Mutant], numbers: Sequence[int], jobs: int, is_told: bool
) -> Findings:
    """Runs all commands of the mutants; tells failures at once, and from time to time how many.

    Ctrl-C ends it, and the report is about the mutants until then.
    """
    findings, start = Findings(), time.monotonic()
    with progress() as show, contextlib.suppress(KeyboardInterrupt):
        for number, index, ended in trials(make, map(Task, numbers), jobs, suspicious):
            finding = Finding(number, index, ended, verdict(ended))
            findings.add(finding)
            if is_told or finding.verdict.word == FAILED:
                print(report.told(finding), flush=True)
            if len(findings.mutants) % HEARTBEAT == 0 and index == 0:
                seconds = time.monotonic() - start
                print(f"{len(findings.mutants):,} mutants, {seconds:,.0f} s", flush=True)
            show(len(findings.mutants), len(numbers), "mutants")
    return findings


def _keep_smaller(made: Mutant, finding: Finding, options: argparse.Namespace) -> None:
    """Keeps a mutant that fails, as small as it gets, with what it did."""
    group = finding.verdict.group
    smaller = minimised(made, finding.index, group, options.minimise)
    folder = _keep(smaller, options.keep)
    kind = f" --kind {options.kind}" if options.kind else ""
    again = f"python -m tests.fuzz --seed {options.seed}{kind} --only {made.number}"
    command = shlex.join(("python", "-m", "tracer", *commands(made)[finding.index]))
    ended = finding.ended
    lines = (group, f"made from {made.origin}", again, command, ended.err, ended.line,
             ended.frames, ended.incident)  # fmt: skip
    (folder / "failure.txt").write_text("\n".join(lines), "utf-8", "surrogateescape")


def _keep(made: Mutant, keep: Path) -> Path:
    """Writes a mutant into a folder of its own, and returns the folder."""
    folder = keep / str(made.number)
    folder.mkdir(parents=True, exist_ok=True)
    store(made, folder)
    return folder


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=tests.fuzz.__main__.__doc__
    )
    add = parser.add_argument
    add("--mutants", type=int, default=500, metavar="N", help="how many [default: 500]")
    add("--first", type=int, default=0, metavar="N", help="number of the first [default: 0]")
    add("--seed", type=int, default=1, metavar="N", help="seed of all of them [default: 1]")
    add("--kind", choices=SHARES, metavar="KIND",
        help=f"kind of all of them: {', '.join(SHARES)} [default: all kinds]")  # fmt: skip
    add("--corpus", action="store_true", help="runs the stored files instead of mutants")
    add(
        "--checked",
        action="store_true",
        help="runs the fifth with checks alone; --only and --corpus run with checks then",
    )
    add("--only", type=int, metavar="N", help="runs and keeps one mutant, and tells each command")
    add("--jobs", type=int, default=memory.processor_count(), metavar="N",
        help="mutants at a time [default: one for each processor]")  # fmt: skip
    add("--keep", type=Path, default=Path("build/fuzz"), metavar="FOLDER",
        help="folder for mutants that fail [default: build/fuzz]")  # fmt: skip
    add("--minimise", type=float, default=30.0, metavar="SECONDS",
        help="longest time for making one of them smaller [default: 30]")  # fmt: skip
    return parser.parse_args(arguments)
