"""What the commands of all mutants did: counts, and an example of each thing that went wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.fuzz.commands import Command, store
from tests.fuzz.mutants import Mutant
from tests.fuzz.seeds import ROOT
from tests.fuzz.trials import Ended
from tests.fuzz.verdicts import CONTAINED, FAILED, FORCED, Verdict, verdict
from tracer.containment.supervisor import IN_PROCESS

MOST_CONFIRMED = 50
_REAL_S = 60.0
_TOLD = ("--fixed", "--accumulator", "--inputs", "--check-certificate", "--energy", "--by", "-o")


@dataclass(frozen=True, slots=True)
class Finding:
    """A command that did not end by itself as documented: `index` is its place among others."""

    number: int
    index: int
    ended: Ended
    verdict: Verdict


@dataclass(slots=True)
class Findings:
    """Counts by command and verdict, processor time, and findings."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    mutants: set[int] = field(default_factory=set)
    found: list[Finding] = field(default_factory=list)
    confirmed: Counter[int] = field(default_factory=Counter)

    def add(self, finding: Finding) -> None:
        """Counts a command, and keeps what is not fine."""
        name = named(finding.ended.command)
        self.mutants.add(finding.number)
        self.counts[name, finding.verdict.word] += 1
        self.seconds[name] += finding.ended.seconds
        if finding.verdict.group:
            self.found.append(finding)

    @property
    def failed(self) -> dict[str, list[Finding]]:
        """The failures by group, the frequent ones first."""
        return self.groups(FAILED)

    def groups(self, word: str) -> dict[str, list[Finding]]:
        """Returns the findings of a verdict by group."""
        groups: dict[str, list[Finding]] = {}
        for finding in sorted(self.found, key=lambda each: each.number):
            if finding.verdict.word == word:
                groups.setdefault(finding.verdict.group, []).append(finding)
        return dict(sorted(groups.items(), key=lambda item: -len(item[1])))

    def confirm(self, make: Callable[[int], Mutant]) -> None:
        """Runs what died in native code as users would; what is not told in one line fails."""
        for finding in [f for f in self.found if f.verdict.word in (CONTAINED, FORCED)]:
            if self.confirmed.total() == MOST_CONFIRMED:
                return
            ended = real(make(finding.number), finding.ended.command)
            self.confirmed[ended.code] += 1
            again = verdict(ended)
            if again.word == FAILED:
                failed = Verdict(FAILED, f"as a real command, {again.group}")
                self.found.append(replace(finding, ended=ended, verdict=failed))


def named(command: Command) -> str:
    """The name of a command in the report."""
    option = next((each for each in command if each in _TOLD), "")
    return f"{command[0]} {option}".strip()


def real(mutant: Mutant, command: Command) -> Ended:
    """Runs a command under its supervisor, as users do."""
    with tempfile.TemporaryDirectory() as folder:
        inside = Path(folder)
        store(mutant, inside)
        temporary = inside / "temporary"
        temporary.mkdir()
        inherited = {name: value for name, value in os.environ.items() if name != IN_PROCESS}
        ran = subprocess.run(
            [sys.executable, "-m", "tracer", *command], cwd=inside, capture_output=True,
            timeout=_REAL_S, check=False,
            env={**inherited, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        )  # fmt: skip
        left = [each.name for each in temporary.iterdir()]
    out, err = (each.decode("utf-8", "surrogateescape") for each in (ran.stdout, ran.stderr))
    return Ended(command, ran.returncode, out, err, left)
