"""One registry of formats for all results: Trace, Comparison, Sweeps, Fusions, WhatIf and others.

A format is a `Format` in a module of `analyzers.views.file_formats`. A result is a `Result`, whose
`view` names the module with its `page`, `table`, `document`, `figure` and so on. A result has every
format whose part that module (or a submodule) defines; a helper imported from elsewhere is no part.

    render(trace, "csv")  ->  file_formats.csv: Format("csv", part="table", ...)
                          ->  tracer.analyzers.views.trace.table(trace, options)  ->  bytes
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import drawing, file_formats, redaction, terminal
from tracer.analyzers.views.page import notebook_html
from tracer.errors import UsageError
from tracer.records.result import Result

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from rich.console import Console

_DEFAULT = ViewOptions()


def formats(kind: type[Result]) -> Mapping[str, file_formats.Format]:
    """The formats that results of this class have, by extension."""
    view = importlib.import_module(kind.view)
    return {f.extension: f for f in _all() if _defines(view, f.part)}


def render(result: Result, extension: str, options: ViewOptions = _DEFAULT) -> bytes:
    """`result` as a file with this extension.

    Raises UsageError where the result has no such format, or a package for it is missing.
    """
    available = formats(type(result))
    if extension not in available:
        raise UsageError(
            f"there is no format '{extension}'", f"The formats are {', '.join(available)}."
        )
    chosen = available[extension]
    chosen.check()
    part = getattr(_view(result), chosen.part)
    if extension != "html":  # a report redacts its content: it has texts of source lines
        result = redaction.prepared(result, extension, options)
    options = replace(options, full_numbers=options.full_numbers or chosen.in_full)
    return chosen.render(part(result, options), options)


def extension_of(path: Path, available: Mapping[str, file_formats.Format]) -> str | None:
    """The longest extension that the name ends with, or that it is; None without any."""
    matching = [name for name in available if f".{path.name}".endswith(f".{name}")]
    return max(matching, key=len, default=None) if path.suffix else None


def show(result: Result, console: Console, options: ViewOptions = _DEFAULT) -> None:
    """Print the page of `result`, with as many columns as the console has room for."""
    shown = redaction.prepared(result, "", options)
    terminal.show(_view(result).page(shown, options), options, console)


def table(result: Result, options: ViewOptions) -> pd.DataFrame:
    """The rows of `result`."""
    rows: pd.DataFrame = _view(result).table(result, options)
    return rows


def plot(result: Result, chart: str, options: ViewOptions) -> Figure:
    """The chart of `result` with this name, or its first; a notebook shows it.

    Raises UsageError where there is none, or matplotlib is missing.
    """
    charts = {
        f".{name}".removesuffix(".png")[1:]: each
        for name, each in formats(type(result)).items()
        if f".{name}".endswith(".png")
    }
    if chart not in charts:
        known = f"Its charts are {', '.join(map(repr, charts))}." if charts else "It has none."
        raise UsageError(f"a {type(result).__name__} has no chart '{chart}'", known)
    charts[chart].check()
    figure: Figure = getattr(_view(result), charts[chart].part)(result, options)
    vars(figure)["_repr_png_"] = partial(drawing.saved, figure, "png")
    return figure


def as_html(result: Result, options: ViewOptions = _DEFAULT) -> str:
    """The page of `result` as HTML, as notebooks show it."""
    return notebook_html(_view(result).page(result, options), options)


def _view(result: Result) -> ModuleType:
    return importlib.import_module(result.view)


def _defines(view: ModuleType, part: str) -> bool:
    module = getattr(getattr(view, part, None), "__module__", "")
    return f"{module}.".startswith(f"{view.__name__}.")


@cache
def _all() -> tuple[file_formats.Format, ...]:
    modules = pkgutil.iter_modules(file_formats.__path__, f"{file_formats.__name__}.")
    every = [f for module in modules for f in importlib.import_module(module.name).FORMATS]
    return tuple(sorted(every, key=lambda each: each.extension))
