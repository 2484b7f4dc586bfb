"""Tries a row of releases, files or revisions: those that run take turns, a few at a time."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np

from tracer.analyzers.compare import compare
from tracer.analyzers.compare.bisection import SLOWER, VALUES, Attempts, Bisection, Round, bisection
from tracer.analyzers.compare.numbers import Numbers
from tracer.api.bisect import BisectArguments
from tracer.api.compare import SideSettings, naming, running, values
from tracer.api.compare.sides import DEFAULT, OnnxSide, RemoteSide, in_own_process
from tracer.containment import signals
from tracer.containment.calls import RemoteProcess
from tracer.errors import InputError, TracerError, UsageError
from tracer.executors.releases import releases_of
from tracer.records.trace import INCOMPLETE, Trace
from tracer.support.temporary import TemporaryFolder
from tracer.support.tolerance import Tolerance

_AT_ONCE = 8
"""Those that take turns in one round, beside the first of all. More would each have few turns."""

_SHORT = 9
"""Digits of a revision that are shown."""


@dataclass(frozen=True, slots=True)
class _Member:
    """One of a row, by its name; `open` raises a TracerError where there is none."""

    label: str
    open: Callable[[], OnnxSide]


def bisect(call: BisectArguments) -> Bisection:
    """Looks for the first with each fault: see `tracer.bisect`."""
    with TemporaryFolder() as folder:
        if call.good is not None:
            kind, row = "revision", _revisions(call, folder)
        else:
            kind, sides = _sides(call)
            row = [_Member(side.label, partial(lambda same: same, side)) for side in sides]
        if len(row) < 2:
            raise UsageError(
                f"one {kind} alone has no history",
                "Give releases, as in --ort 1.17:1.31, or further files, or --good REVISION.",
            )
        search = _Search(call, kind, row)
        search.run()
        return search.result()


def _sides(call: BisectArguments) -> tuple[str, list[OnnxSide]]:
    """Returns what the row consists of, and the model in each release, or each model."""
    sides = running.open_sides(call.sides, call.settings)
    row = [each for each in sides if isinstance(each, OnnxSide) and each.executor == DEFAULT]
    other = next((each for each in sides if each not in row), None)
    if other is not None:
        raise UsageError(
            f"{other.label} does not run in onnxruntime", "Give ONNX models, or FILE.py:NAME@ort."
        )
    if call.ort is None:
        return "file", row
    if len(row) > 1 or row[0].release:
        raise UsageError("--ort runs one model in several releases", "Name it once, as a file.")
    releases = releases_of(call.ort, call.every)
    return "release", [replace(row[0], release=each, label=each.version) for each in releases]


def _revisions(call: BisectArguments, folder: Path) -> list[_Member]:
    """Returns the export of FILE.py:NAME at each revision on the way from `good` to `bad`."""
    name = str(call.sides[0])
    file, _, what = name.rpartition(":")
    if len(call.sides) > 1 or call.ort is not None or Path(file).suffix != ".py":
        raise UsageError("--good is about the code of one model", "Give FILE.py:NAME alone.")
    place = Path(file).resolve()
    within = partial(_git, place.parent)
    root = Path(within("rev-parse", "--show-toplevel"))
    chain = within("rev-list", "--reverse", "--first-parent", f"{call.good}..{call.bad}").split()

    def export(revision: str) -> OnnxSide:
        tree = folder / revision
        within("worktree", "add", "--detach", str(tree), revision)
        try:
            with RemoteProcess() as process:  # each revision has modules of its own
                source = f"{tree / place.relative_to(root)}:{what}"
                side: OnnxSide = process.call(_export, source, call.settings)
        except TracerError as error:
            raise type(error)(error.what.replace(f"{tree}/", ""), error.hint) from error
        finally:
            within("worktree", "remove", "--force", str(tree))
        return replace(side, label=revision[:_SHORT])

    revisions = [within("rev-parse", f"{call.good}^{{commit}}"), *chain]
    return [_Member(each[:_SHORT], cache(partial(export, each))) for each in revisions]


def _git(folder: Path, *words: str) -> str:
    """Returns what git writes, without the hooks of the repository. Raises InputError."""
    command = ["git", "-C", str(folder), "-c", f"core.hooksPath={os.devnull}", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError as error:
        raise InputError(f"git cannot be run ({error.strerror})", "Install it.") from error
    if done.returncode:
        raise InputError(f"git {words[0]}: {done.stderr.strip()}", "Name revisions that it knows.")
    text: str = done.stdout
    return text.strip()


def _export(source: str, settings: SideSettings) -> OnnxSide:
    """Exports in the process of a revision, whose code may print."""
    with redirect_stdout(sys.stderr):
        side = naming.parse(f"{source}@{DEFAULT}", settings)
    assert isinstance(side, OnnxSide)
    return side


class _Search:
    """A row of sides, and what is known of them."""

    def __init__(self, call: BisectArguments, kind: str, row: list[_Member]) -> None:
        self._call, self._kind, self._row = call, kind, row
        self._errors = dict[int, str]()
        self._failures = list[TracerError]()
        self._rounds = list[Round]()
        self._values = dict[int, Numbers]()
        self._notes = list[str]()
        self._confirmed = set[tuple[int, int]]()
        self._arrays: naming.Arrays | None = None

    def result(self) -> Bisection:
        """Returns what is known."""
        names = [member.label for member in self._row]
        attempts = Attempts(names, self._errors, self._rounds, self._values)
        subject = f"{len(names)} files" if self._kind == "file" else str(self._call.sides[0])
        call = self._call
        return bisection(subject, self._kind, attempts, call.faults, call.fail_above, self._notes)

    def run(self) -> None:
        """Measures all in rounds; of a long row a few at first, then those around a change.

        A signal leaves the rounds that are complete, if there are any. Raises the error of the
        first where none runs.
        """
        count = len(self._row)
        rounds = [range(start, min(start + _AT_ONCE, count))
                  for start in range(0, count - 1, _AT_ONCE - 1)]  # fmt: skip
        plan = list[Iterable[int]](rounds if self._call.all else [_spread(0, count - 1)])
        try:
            while plan:
                self.look(plan.pop(0))
                if not plan:
                    plan += self.places_around_a_change()
        except signals.ENDINGS:
            if not (signals.ending() and self._rounds):
                raise
        if signals.ending():
            self._notes.append(f"{INCOMPLETE}{signals.ending()}; what was tried by then is shown")
        if all(self._errors.values()):
            raise self._failures[0]

    def places_around_a_change(self) -> list[Iterable[int]]:
        """Returns the places around the first change of those with untried ones before them.

        Where there are none, one that is slower is measured again beside the one before, in new
        processes: a process may be slower as long as it lives.
        """
        places = {member.label: place for place, member in enumerate(self._row)}
        for found in self.result().faults:
            pair = low, high = places[found.before], places[found.name]
            if high - low > 1 and not any(low < place < high for place in self._errors):
                return [_spread(low, high)]
            if found.fault == SLOWER and pair not in self._confirmed:
                self._confirmed.add(pair)
                return [pair]
        return []

    def look(self, places: Iterable[int]) -> None:
        """Tries these beside the first that runs, times those that run, and compares values."""
        call, faults = self._call, self._call.faults
        first = next((place for place, error in sorted(self._errors.items()) if not error), None)
        places = sorted({*places, *(() if first is None else (first,))})
        if not {SLOWER, VALUES} & {*faults}:
            places = [place for place in places if place not in self._errors]
        with ExitStack() as stack:
            trials = [(place, self.try_one(place, stack)) for place in places]
            runs = {place: trial for place, trial in trials if trial is not None}
            if len(runs) < 2:
                return
            sides = [side for side, _ in runs.values()]
            if SLOWER in faults:
                traces = [trace for _, trace in runs.values()]
                measured, pace = running.measure(sides, "layer", call.settings, call.report, traces)
                self._rounds.append(Round(tuple(runs), compare(measured)))
                signals.keep(True)
                self._notes += pace
            if VALUES in faults and not signals.ending():
                self.compare_values(list(runs), sides)

    def compare_values(self, places: list[int], sides: list[RemoteSide]) -> None:
        """Compares the values of those that were not compared yet with the first's."""
        call = self._call
        if self._arrays is None:
            self._arrays = naming.shared_inputs(sides, call.settings)
        new = {
            side.label: place
            for place, side in zip(places, sides, strict=True)
            if side is not sides[0] and place not in self._values
        }
        compared, notes = values.compare_values(
            [sides[0], *(side for side in sides if side.label in new)], self._arrays,
            call.settings, call.tolerance or Tolerance(),
        )  # fmt: skip
        self._values |= {new[each.second]: each for each in compared}
        self._notes += notes

    def try_one(self, place: int, stack: ExitStack) -> tuple[RemoteSide, Trace] | None:
        """Runs one in a process of its own; None where it does not run, whose error is kept."""
        if self._errors.get(place):
            return None
        member, report = self._row[place], self._call.report
        report(0, 0, f"trying {member.label}")
        try:
            side = in_own_process(member.open(), stack, report)
            trace = side.run(self._call.settings)
        except TracerError as error:
            self._failures.append(error)
            self._errors[place] = error.what
            return None
        self._errors[place] = ""
        return side, trace


def _spread(low: int, high: int) -> list[int]:
    """Returns places from `low` to `high`, evenly, as many as are measured at once."""
    return sorted({int(at) for at in np.linspace(low, high, _AT_ONCE).round()})
