"""Other numbers of threads for an operator: `intra_op_num_threads`."""

from collections.abc import Sequence
from dataclasses import replace

from tracer.tuning.changes import Change
from tracer.tuning.findings import PRODUCTS, Findings
from tracer.tuning.setup import Setup

_EVERY = 8
"""Cores up to which every number is tried; beyond, powers of two and all cores."""
_SHORT_US = 10.0


def _applies(findings: Findings) -> str | None:
    if findings.machine.cpus < 2:
        return None
    share = findings.share(PRODUCTS)
    rows = findings.evidence.rows
    short = findings.share_of(rows[rows["time_us"] / rows["calls"] < _SHORT_US])
    return (
        f"{share:.0%} of the time is spent in products, which threads share, and {short:.0%} in "
        f"calls of under {_SHORT_US:.0f} µs, which wait for threads; {findings.threads} of "
        f"{findings.machine.cpus} processors are used"
    )


def _values(findings: Findings) -> Sequence[str]:
    cpus = findings.machine.cpus
    counts = {1, findings.machine.cores, cpus}
    powers = {2**exponent for exponent in range(cpus.bit_length())}
    counts |= set(range(1, cpus + 1)) if cpus <= _EVERY else powers
    return [str(n) for n in sorted(counts) if n <= cpus and n != findings.threads]


def _apply(setup: Setup, value: str) -> Setup:
    return setup.with_settings(replace(setup.settings, threads=int(value)))


CHANGE = Change("threads", "rounding", 50, _applies, _values, _apply)
