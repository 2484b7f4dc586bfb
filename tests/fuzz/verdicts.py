"""Says whether a command ended as documented, and groups those that did not."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

import tracer.cli
from tests import wrote
from tests.fuzz.trials import Ended

MOST_BYTES = 2 << 30
FINE, REFUSED, LIMITED, CONTAINED, FORCED, FAILED = (
    "ok", "refused", "limit", "crash contained", "ended by force", "FAILURE",
)  # fmt: skip
VERDICTS = (FINE, REFUSED, LIMITED, CONTAINED, FORCED, FAILED)

_CODES = {0: FINE, 1: FINE, 2: REFUSED, 3: REFUSED, 4: LIMITED, 5: CONTAINED}
"""A command says 1 where a comparison fails."""
_NATIVE = re.compile(r'File "[^"]*/site-packages/(?:onnx|onnxruntime)/')
_FRAME = re.compile(r'File "(?:[^"]*/)?((?:tracer|analyzers|exporters)/[^"]+)", line (\d+)')
_NUMBERS = re.compile("[0-9]+-[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Verdict:
    """A word of VERDICTS, and the group of those that have the same cause; '' where all is well."""

    word: str
    group: str = ""


def verdict(ended: Ended) -> Verdict:
    """Returns the verdict on a command."""
    if ended.died:
        return _of_death(ended)
    command = ended.command[0]
    if ended.code == tracer.cli.INTERNAL_ERROR:
        return Verdict(FAILED, _of_incident(ended))
    if ended.code not in _CODES or (ended.code == 1 and command not in ("compare", "interpret")):
        return Verdict(FAILED, f"{command}: exit code {ended.code}: {ended.err[:100]}")
    complaint = _complaint(ended)
    if complaint:
        return Verdict(FAILED, f"{command}: {complaint}")
    return Verdict(_CODES[ended.code])


def suspicious(ended: Ended) -> bool:
    """Whether a command did what another one in its process may have led to."""
    return bool(verdict(ended).group)


def _of_death(ended: Ended) -> Verdict:
    """Native code that others wrote may die, and be slow to hear that its time is up."""
    innermost = next((line for line in ended.frames.splitlines() if "File " in line), "")
    name = signal.Signals(ended.died).name
    where = _where(ended.frames)
    if ended.forced == "overdue":
        return Verdict(FORCED, f"{ended.command[0]}: {where}")
    if ended.forced or ended.died == signal.SIGKILL:
        return Verdict(FAILED, f"{ended.command[0]}: {ended.forced or name} at {where}")
    if not _NATIVE.search(innermost):
        return Verdict(FAILED, f"{ended.command[0]}: {name} at {where}")
    return Verdict(CONTAINED, f"{ended.command[0]}: {name} at {where}")


def _of_incident(ended: Ended) -> str:
    """Type of the exception and the innermost frame of ours."""
    lines = ended.incident.strip().splitlines()
    kind = lines[-1].partition(":")[0] if lines else ended.err[:200]
    frames = _FRAME.findall(ended.incident)
    return f"{kind} at {':'.join(frames[-1])}" if frames else f"{ended.command[0]}: {kind}"


def _where(frames: str) -> str:
    """The innermost frame of ours in a traceback of the fault handler, whose innermost is first."""
    found = _FRAME.search(frames)
    return ":".join(found.groups()) if found else "unknown"


def _complaint(ended: Ended) -> str:
    """Says what is wrong with what a command wrote, left behind or took; '' if nothing is."""
    faults = wrote.faults(ended.out, ended.err, ended.code)
    if faults:
        return f"{faults[0]}, exit code {ended.code}: {ended.err[:100]}"
    if ended.left:
        return f"files left behind: {_NUMBERS.sub('…', ', '.join(ended.left))}"
    if ended.peak > MOST_BYTES:
        return f"{ended.peak >> 20} MiB"
    return ""
