"""The first of a row of releases, files or revisions in which a model is slower, differs or fails.

Each that runs is compared with the one before it, by the turns that both took in one round, and the
last with the first: small steps may add up. Holm's method goes over all these tests together, of
whole runs and of layers.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import itemgetter
from typing import Any, ClassVar

import pandas as pd

from tracer.analyzers.compare import Comparison
from tracer.analyzers.compare.contrast import LEVEL, Contrast, contrast, holm
from tracer.analyzers.compare.layers import contrasts, letter
from tracer.analyzers.compare.numbers import Numbers
from tracer.analyzers.compare.sweep import WHOLE
from tracer.analyzers.compare.views.tables import INTERVAL, MARK, interval, ratio
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import page as pages
from tracer.analyzers.views.file_formats.json import records
from tracer.analyzers.views.text import duration, time_number, times
from tracer.records.result import Result
from tracer.records.trace import INCOMPLETE
from tracer.text import brief

SLOWER, VALUES, CRASH = FAULTS = ("slower", "values", "crash")
_NAMED = 3
"""Layers that a sentence names."""
_NUMBERS = (
    "time_us", "ratio_first", "ratio", "ratio_low", "ratio_high", "change_us", "p",
)  # fmt: skip
_TEXTS = ("name", "layer", "op", "before", "values", "error")


@dataclass(frozen=True, slots=True)
class Round:
    """Those that took turns with each other, by their places in the row, the first of all first."""

    places: tuple[int, ...]
    comparison: Comparison = field(repr=False)


@dataclass(frozen=True, slots=True)
class Finding:
    """The first that has a fault, in a sentence, and the one `before` it; '' where none has it."""

    fault: str
    text: str
    name: str = ""
    before: str = ""


@dataclass(frozen=True, slots=True)
class Attempts:
    """What was found of those of a row with these `names` that were tried, by place.

    `errors` has '' for one that runs, else why it does not; `rounds` the times of those that run,
    and `values` their values against those of the first that runs.
    """

    names: Sequence[str]
    errors: Mapping[int, str]
    rounds: Sequence[Round]
    values: Mapping[int, Numbers]

    @property
    def running(self) -> list[int]:
        """The places of those that run."""
        return sorted(place for place, error in self.errors.items() if not error)

    def contrast(self, before: int, place: int) -> Contrast:
        """Compares whole runs of two that took turns; with nothing, where they did not."""
        for each in reversed(self.rounds):
            if {before, place} <= set(each.places):
                a, b = (each.comparison.sides[each.places.index(p)].wall for p in (before, place))
                return contrast(a, b)
        return Contrast()

    def find_other_values(self, kind: str) -> Finding:
        """Returns the first that computes something else than the first that runs."""
        running, names = self.running, self.names
        compared = [
            place for place in running
            if place in self.values and not self.values[place].no_verdict
        ]  # fmt: skip
        first = next((place for place in compared if self.values[place].differ), None)
        if first is None:
            text = f"no {kind} of {1 + len(compared)} gives other values than the first"
            unjudged = next((each.no_verdict for each in self.values.values()), "")
            unknown = unjudged or f"fewer than two {kind}s compared"
            return Finding(VALUES, text if compared else f"not known: {unknown}")
        numbers = self.values[first]
        layer = numbers.first_divergence
        where = brief(layer) if layer else f"output {brief(numbers.differing_optimised[0])}"
        before = running[running.index(first) - 1]
        text = f"{names[first]} computes something else than {names[running[0]]}, first in {where}"
        return Finding(VALUES, text, names[first], names[before])

    def find_failure(self, kind: str) -> Finding:
        """Returns the first that does not run after one that does."""
        names, errors = self.names, self.errors
        before: int | None = None
        for place in sorted(errors):
            if not errors[place]:
                before = place
            elif before is not None:
                text = f"{names[place]} does not run the model, and {names[before]} does: "
                return Finding(CRASH, text + errors[place], names[place], names[before])
        return Finding(CRASH, f"no {kind} fails after one that runs")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Bisection(Result):
    """A row of releases, files or revisions (`kind`), in which each fault was looked for.

    `table` has a row for each layer of each that was tried, `(whole run)` first: `name`, `layer`,
    `op`, `time_us`, `ratio_first` to the first that runs, `before` (the one that it is compared
    with), the `ratio` to that one, its interval `ratio_low` and `ratio_high`, `change_us`, `p`
    (adjusted by Holm over all) and `significant`; of a whole run `values`, beside those of the
    first, and `error`, why it does not run.
    """

    view: ClassVar[str] = "tracer.analyzers.compare.bisection"

    subject: str
    kind: str
    findings: tuple[Finding, ...]
    table: pd.DataFrame = field(repr=False)
    unmeasured: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    machine: str = ""

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The faults that there are."""
        return tuple(each for each in self.findings if each.name)

    @property
    def is_incomplete(self) -> bool:
        """Whether the runs were broken off."""
        return any(note.startswith(INCOMPLETE) for note in self.notes)

    def headline(self) -> str:
        """The model, and the first with each fault."""
        found = ", ".join(f"{each.fault} in {each.name}" for each in self.faults)
        return f"{self.subject}: {found or 'no change'}"


def bisection(
    subject: str, kind: str, attempts: Attempts, faults: Sequence[str], above: float,
    notes: Sequence[str] = (),
) -> Bisection:  # fmt: skip
    """Returns the first with each of `faults`, and the table of all that were tried.

    A whole run is slower where the ratio to the one before is significant, and its interval lies
    over 1 + `above`.
    """
    table, drift = _table(attempts)
    finders: Mapping[str, Callable[[], Finding]] = {
        SLOWER: lambda: _slower(attempts, table, drift, kind, above),
        VALUES: lambda: attempts.find_other_values(kind),
        CRASH: lambda: attempts.find_failure(kind),
    }
    sides = [side for each in attempts.rounds for side in each.comparison.sides]
    unjudged = [
        f"values of {attempts.names[place]} are not judged: {values.no_verdict}"
        for place, values in sorted(attempts.values.items()) if values.no_verdict
    ]  # fmt: skip
    own = dict.fromkeys([*notes, *unjudged, *(note for side in sides for note in side.notes)])
    return Bisection(
        subject, kind, tuple(finders[fault]() for fault in faults), table,
        tuple(name for place, name in enumerate(attempts.names) if place not in attempts.errors),
        tuple(sorted(own, key=lambda note: not note.startswith(INCOMPLETE))),
        sides[0].trace.environment.summary if sides else "",
    )  # fmt: skip


def _table(attempts: Attempts) -> tuple[pd.DataFrame, Contrast]:
    """Returns the table, and the last against the first where others are between them."""
    rows, before = list[dict[str, Any]](), None
    for place in sorted(attempts.errors):
        name, error = attempts.names[place], attempts.errors[place]
        if error:
            rows.append({"name": name, "layer": WHOLE, "error": error})
            continue
        values = attempts.values.get(place)
        told = ""
        if values is not None:  # no verdict is no agreement
            told = "not judged" if values.no_verdict else "differ" if values.differ else "the same"
        of_place = list(_rows(attempts, before, place)) or [{"layer": WHOLE}]
        rows += [{"name": name, **row} for row in of_place]
        rows[-len(of_place)]["values"] = told
        before = place
    running = attempts.running
    drift = attempts.contrast(running[0], running[-1]) if len(running) > 2 else Contrast()
    *adjusted, p = holm([*(row.get("p", math.nan) for row in rows), drift.p])
    frame = pd.DataFrame(rows, columns=[*_TEXTS, *_NUMBERS]).assign(p=adjusted)
    frame = frame.astype(dict.fromkeys(_NUMBERS, "float64"))
    frame[list(_TEXTS)] = frame[list(_TEXTS)].astype(object).fillna("")
    return frame.assign(significant=frame["p"] < LEVEL), replace(drift, p=p)


def _rows(attempts: Attempts, before: int | None, place: int) -> Iterator[dict[str, Any]]:
    """Yields the rows of one that runs: the whole run and the layers of its last round.

    Times are what they were in the first round, by the speed of the first: it is in all rounds.
    """
    wanted = {place} if before is None else {before, place}
    last = next((each for each in reversed(attempts.rounds) if wanted <= {*each.places}), None)
    if last is None:
        return
    own, groups, layers = last.places.index(place), last.comparison.groups, last.comparison.layers
    assert layers is not None
    sides = last.comparison.sides
    speed = attempts.rounds[0].comparison.sides[0].wall.mean / sides[0].wall.mean
    compared, told = [Contrast()] * (1 + len(groups)), {}
    if before is not None:
        other = last.places.index(before)
        both = [group.rows[other] for group in groups], [group.rows[own] for group in groups]
        whole = contrast(sides[other].wall, sides[own].wall)
        compared = [whole, *contrasts(sides[other], sides[own], both)]
        told = {"before": attempts.names[before]}
    end = letter(own)
    names: list[Any] = [{"layer": WHOLE}, *layers[["layer", "op"]].to_dict("records")]
    spent = [sides[own].wall.mean, *layers[f"time_us_{end}"]]
    firsts = [last.comparison.totals["ratio"].iloc[own]]
    firsts += list(layers[f"ratio_{end}"]) if own else [1.0] * len(layers)
    for name, time_us, first, each in zip(names, spent, firsts, compared, strict=True):
        yield {
            **name, **told, "time_us": speed * time_us, "ratio_first": first, "ratio": each.ratio,
            "ratio_low": each.low, "ratio_high": each.high, "change_us": each.change, "p": each.p,
        }  # fmt: skip


def _slower(
    attempts: Attempts, table: pd.DataFrame, drift: Contrast, kind: str, above: float
) -> Finding:
    compared = table[(table["layer"] == WHOLE) & table["ratio_low"].notna()]
    whole: list[Any] = compared.to_dict("records")
    for row in whole:
        low, high = row["ratio_low"] - 1, row["ratio_high"] - 1
        if row["significant"] and low > above:
            text = (
                f"{row['name']} is {times(row['ratio'])} times slower than {row['before']}, "
                f"{pages.signed_percent(low)} to {pages.signed_percent(high)} of time "
                f"({INTERVAL}); {_layers(table[table['name'] == row['name']])}"
            )
            return Finding(SLOWER, text, row["name"], row["before"])
    if not whole:
        return Finding(SLOWER, f"not known: times of fewer than two {kind}s")
    ratio = interval("ratio_low", "ratio_high", times)
    largest = max(whole, key=lambda row: float(row["ratio_low"]))
    if largest["ratio_low"] > 1 + above:
        text = (
            f"not certain: {largest['name']} takes {times(largest['ratio'])} ({ratio(largest)}) of "
            f"the time of {largest['before']}, which one of {table['p'].count()} comparisons may "
            "seem to by chance; more --sessions tell"
        )
    else:
        largest = max(whole, key=lambda row: float(row["ratio"]))
        text = (
            f"no {kind} is slower than the one before by more than {above:.1%}; the largest ratio "
            f"is {times(largest['ratio'])} ({ratio(largest)}), in {largest['name']}"
        )
    is_slower = table["significant"] & (table["ratio_low"] > 1 + above) & (table["layer"] != WHOLE)
    layers: list[Any] = table[is_slower].head(1).to_dict("records")
    for row in layers:
        text += (
            f"; the layer {brief(row['layer'])} ({row['op']}) is, in {row['name']}: "
            f"{times(row['ratio'])} times ({ratio(row)})"
        )
    if math.isnan(drift.low):
        return Finding(SLOWER, text)
    first, last = (attempts.names[attempts.running[at]] for at in (0, -1))
    text += (
        f"; {last} takes {times(drift.ratio)} ({times(drift.low)} to {times(drift.high)}) of the "
        f"time of {first}"
    )
    if drift.p < LEVEL and drift.low > 1 + above:
        return Finding(SLOWER, f"slower by small steps: {text}", last, first)
    return Finding(SLOWER, text)


def _layers(rows: pd.DataFrame) -> str:
    """Returns the layers of one that are slower, in words."""
    slower = rows[rows["significant"] & (rows["change_us"] > 0) & (rows["layer"] != WHOLE)]
    slower = slower.sort_values("change_us", ascending=False)
    if slower.empty:
        return "no layer alone differs significantly"
    told = [
        f"{brief(row['layer'])} ({row['op']}) +{duration(row['change_us'])}"
        + (f", {times(row['ratio'])} times" if row["ratio"] > 0 else "")
        for row in slower.head(_NAMED).to_dict("records")
    ]
    more = f" and {len(slower) - _NAMED} more" if len(slower) > _NAMED else ""
    return f"in {'; '.join(told)}{more}"


def page(result: Bisection, options: ViewOptions) -> pages.Page:
    """What was found, whole runs, and the layers beside each other."""
    whole = result.table[result.table["layer"] == WHOLE].reset_index(drop=True)
    columns = (
        pages.name_column(result.kind, "name", 0),
        pages.number_column("time µs", "time_us", time_number, 1, ("time_us",)),
        pages.Column("÷ before", "ratio", ratio(), 2),
        pages.Column(INTERVAL, "ratio_low", interval("ratio_low", "ratio_high", times), 3),
        pages.number_column("÷ first", "ratio_first", times, 4),
        pages.name_column("values", "values", 5),
        replace(pages.name_column("does not run", "error", 6), cut="text"),
    )
    below = [f"{MARK} differs from the one before (Holm, {LEVEL:.0%} over all runs and layers)"]
    if result.unmeasured:
        names = ", ".join(result.unmeasured)
        below.append(f"not measured: {names}; --all shows what changes there and changes back")
    head = tuple(f"{each.fault}: {each.text}" for each in result.findings)
    title = f"{result.subject}, by {result.kind}"
    tables = [pages.Table(title, columns, whole, tuple(below), head=head)]
    tables += [_layers_table(result)] if (result.table["layer"] != WHOLE).any() else []
    return pages.Page(tuple(tables), result.notes, result.machine)


def _layers_table(result: Bisection) -> pages.Table:
    """Returns a row for each layer, the largest significant change first, and a column for each."""
    timed = result.table[result.table["time_us"].notna()]
    timed = timed.drop_duplicates(["name", "layer"])
    names = list(dict.fromkeys(timed["name"]))
    changes = timed["change_us"].abs().where(timed["significant"], 0.0)
    order = changes.groupby(timed["layer"]).max().sort_values(ascending=False, kind="stable")
    rows = pd.DataFrame({"layer": [WHOLE, *(name for name in order.index if name != WHOLE)]})
    named = {name for each in result.faults for name in (each.name, each.before)}
    ranks = sorted(names, key=lambda name: name not in named)  # of narrow terminals, these first
    columns = [pages.name_column("layer", "layer", 0)]
    for place, name in enumerate(names):
        own = timed[timed["name"] == name].set_index("layer").reindex(rows["layer"])
        cells = zip(own["time_us"], own["ratio_first"], own["significant"], strict=True)
        rows[f"of_{place}"] = [
            "" if math.isnan(us) else (times(first) or "new") + (MARK if marked is True else " ")
            for us, first, marked in cells
        ]
        columns.append(
            pages.Column(name, f"of_{place}", itemgetter(f"of_{place}"), 1 + ranks.index(name))
        )
    title = f"Time ÷ that of {names[0]}, the largest change first"
    return pages.Table(title, columns, rows, is_long=True)


def table(result: Bisection, options: ViewOptions) -> pd.DataFrame:
    """The table."""
    return result.table.head(options.top) if options.top else result.table


def document(result: Bisection, options: ViewOptions) -> dict[str, Any]:
    """What was found, and the table."""
    return {
        "subject": result.subject, "kind": result.kind, "level": LEVEL,
        "findings": [asdict(each) for each in result.findings],
        "rows": records(table(result, options)), "unmeasured": result.unmeasured,
        "notes": result.notes,
    }  # fmt: skip


def checks(result: Bisection, options: ViewOptions) -> list[pages.Check]:
    """A test for each fault, which fails where it was found."""
    return [
        pages.Check("bisect", each.fault, each.text, "failure" if each.name else "")
        for each in result.findings
    ]
