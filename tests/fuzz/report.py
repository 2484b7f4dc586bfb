"""The report: counts by command and verdict, then what died, was ended, or failed, by group."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table

from tests.fuzz.findings import Finding, Findings
from tests.fuzz.verdicts import CONTAINED, FORCED, VERDICTS
from tracer.text import line

WIDTH = 110


def text(findings: Findings, seconds: float) -> str:
    """Returns the report."""
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None)
    console.print(_table(findings))
    mutants, commands = len(findings.mutants), findings.counts.total()
    console.print(f"{mutants:,} mutants, {commands:,} commands, {seconds:,.0f} s", highlight=False)
    for word in (CONTAINED, FORCED):
        for group, found in findings.groups(word).items():
            told = line(f"{word}: {len(found)} x {group} (mutant {found[0].number})")
            console.print(told, markup=False, highlight=False)
    if findings.confirmed:
        codes = ", ".join(f"{n} x exit {code}" for code, n in sorted(findings.confirmed.items()))
        console.print(f"run again by python -m tracer: {codes}", highlight=False)
    for group, found in findings.failed.items():
        told = line(f"FAILURE: {len(found)} x {group} (mutant {found[0].number})")
        console.print(told, markup=False, highlight=False)
    return console.file.getvalue().rstrip()


def _table(findings: Findings) -> Table:
    table = Table("command", box=None, pad_edge=False)
    for heading in (*VERDICTS, "ms"):
        table.add_column(heading, justify="right")
    for command in sorted({command for command, _ in findings.counts}):
        counts = [findings.counts[command, word] for word in VERDICTS]
        mean = 1000 * findings.seconds[command] / max(1, sum(counts))
        table.add_row(command, *(f"{count:,}" for count in counts), f"{mean:.0f}")
    return table


def told(finding: Finding) -> str:
    """Returns how a command ended, in a line."""
    ended = finding.ended
    last = (ended.err.strip().splitlines() or [""])[-1]
    what = f"mutant {finding.number}: {' '.join(ended.command)}: {finding.verdict.word}"
    return line(f"{what} {finding.verdict.group} {ended.line or last}")
