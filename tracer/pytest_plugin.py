"""A plugin of pytest: its fixture `tracer` fails a test whose model became slower.

pytest imports this module in every run of an environment that has tracer installed. So nothing but
pytest is imported at the top; the first check loads the rest.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tracer.analyzers.compare import Comparison
    from tracer.api.compare import SideSettings

_WIDTH = 120
"""Columns of the tables in a failure."""
_ROWS = 10


@dataclass(frozen=True)
class Checker:
    """Checks of models; `record` adds a property to the test, which JUnit's XML has."""

    record: Callable[[str, object], None]

    def check(
        self,
        model: str | Path,
        *,
        against: str | Path,
        max_slowdown: float | None = 0.05,
        within: float | None = None,
        values: bool = True,
        settings: SideSettings | None = None,
        report: str | Path | None = None,
    ) -> Comparison:
        """Fails the test if `model` is slower than `against`, or computes other values.

        Both are a side of `tracer compare`: a model, FILE.py:NAME, or a saved .trace. A slowdown
        beyond `max_slowdown` must be significant to fail the test, as with `--fail-above`; `within`
        must be shown to hold, as with `--fail-unless-within`. Both are shares: 0.05 is 5 %. Without
        enough runs for an interval the test fails as undecided. `values` compares outputs where
        both sides are run. The file `report` receives the comparison, .html or another format, also
        if the test fails.
        """
        from tracer import Comparison, SideSettings, Tolerance, TracerError, compare

        try:
            _check_share("max_slowdown", max_slowdown)
            _check_share("within", within)
            if report is not None:  # before the time of the comparison is spent
                Comparison.check_target(report, force=True)
            comparison = compare(
                [str(against), str(model)],
                settings=settings or SideSettings(),
                fail_above=max_slowdown,
                fail_unless_within=within,
                tolerance=Tolerance() if values else None,
            )
        except TracerError as error:  # without the frames of tracer, which tell the user nothing
            told = f"{type(error).__name__}: {error}"
            raise pytest.fail.Exception(told, pytrace=False) from None
        for verdict in comparison.verdicts:
            self.record(f"tracer {verdict.gate}", verdict.line)
        if report is not None:
            comparison.save(report, force=True)
        if comparison.passed:
            return comparison
        from rich.console import Console

        from tracer.analyzers import views
        from tracer.analyzers.options import ViewOptions

        lines = [verdict.line for verdict in comparison.verdicts if not verdict.passed]
        if comparison.differ:
            lines.append(f"FAIL: {comparison.sides[1].label} computes other values")
        page = Console(file=io.StringIO(), width=_WIDTH, record=True)
        # whole runs, and the layers that changed
        views.show(replace(comparison, verdicts=()), page, ViewOptions(top=_ROWS))
        pytest.fail("\n".join([*lines, "", page.export_text()]), pytrace=False)


def _check_share(name: str, share: object) -> None:
    """Raises UsageError for what is no number of at least 0, nor None."""
    from tracer import UsageError

    is_number = isinstance(share, float | int) and not isinstance(share, bool) and share >= 0
    if share is not None and not is_number:
        raise UsageError(f"{name} is {share!r}", "Give a share, 0.05 for 5 %, or None.")


@pytest.fixture(name="tracer")
def _tracer(record_property: Callable[[str, object], None]) -> Checker:
    """Checks the time and the values of models: `tracer.check("m.onnx", against="main.trace")`."""
    return Checker(record_property)
