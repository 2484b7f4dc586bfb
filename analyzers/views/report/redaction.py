"""A report without what tells of the machine it was made on: paths, the system, lines of source."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pandas as pd

from tracer.analyzers.views.page import Page, Table
from tracer.analyzers.views.redaction import without_paths
from tracer.analyzers.views.report.content import Content, RunContent

_SYSTEM = ("OS", "compiled code")
"""Facts of the environment that tell of the system rather than of what was measured."""


_NAMES = ("node", "module", "kernels", "op_type")
"""Columns whose texts may have slashes and are no paths."""


def redacted(content: Content) -> Content:
    """Returns `content` without paths, system, host name and texts of source lines."""
    columns = (run.rows[name] for run in content.runs for name in _NAMES if name in run.rows)
    names = {name for column in columns for name in column.dropna()}
    write = partial(without_paths, names=frozenset(names))
    return replace(
        content,
        title=write(content.title),
        page=_page(content.page, write),
        runs=tuple(_run(run, write) for run in content.runs),
        sources={},
        environment=tuple(
            (name, write(value)) for name, value in content.environment if name not in _SYSTEM
        ),
        notes=tuple(map(write, content.notes)),
        redacted=True,
    )


def _page(page: Page, write: Callable[[str], str]) -> Page:
    tables = tuple(_table(table, write) for table in page.tables)
    return Page(tables, tuple(map(write, page.notes)), "")


def _table(table: Table, write: Callable[[str], str]) -> Table:
    return replace(
        table,
        title=write(table.title),
        rows=_rows(table.rows),
        head=tuple(map(write, table.head)),
        lines=tuple(map(write, table.lines)),
        advice=tuple(map(write, table.advice)),
    )


def _run(run: RunContent, write: Callable[[str], str]) -> RunContent:
    return replace(
        run,
        label=write(run.label),
        lines=tuple(map(write, run.lines)),
        rows=_rows(run.rows),
        findings=tuple(replace(each, text=write(each.text)) for each in run.findings),
        notes=tuple(map(write, run.notes)),
    )


def _rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns rows whose sources are names of files without their folders."""
    if "source" not in rows:
        return rows
    return rows.assign(source=rows["source"].map(without_paths, na_action="ignore"))
