"""What every result offers: saving to a file, a table in a notebook, a one-line `repr`.

Imports little, because every `--help` imports `ViewOptions`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tracer.errors import UsageError
from tracer.support.files import check_writable, write_atomically
from tracer.text import line, suggest

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """Which rows a view shows: the grouping, the number of rows, the chart's threshold in µs.

    `sort` names the column that orders the rows, None for the view's own order. `top` is None for
    the view's default, 0 for all rows. `expand` shows fused nodes, constants and conversions in
    rows of their own. `depth` is the number of module levels that stay apart, None
    for all. `notes` shows every note instead of the most important ones. `full_numbers` shows every
    digit of large numbers. `redact` leaves out what tells of this machine: paths, the system, and
    the text of source lines; `with_paths` keeps absolute paths in a .trace and a .json. `model` is
    the file of the model, None for where the trace says it is. `folder` is where the file will be,
    for formats that refer to other files; None
    where it is not known, as for standard output.
    """

    by: str = "node"
    top: int | None = None
    threshold: float | None = None
    depth: int | None = None
    notes: bool = False
    sort: str | None = None
    full_numbers: bool = False
    redact: bool = False
    expand: bool = False
    model: Path | None = None
    folder: Path | None = None
    with_paths: bool = False


_VIEWS = "tracer.analyzers.views"
"""Found by name: records stand below the analyzers and do not import them."""


@dataclass(frozen=True, slots=True)
class Report:
    """An HTML page that a notebook shows in a frame, `height` pixels high.

    The frame may run the scripts of the page, and nothing else: it has neither the address nor the
    rights of the notebook.
    """

    page: str = field(repr=False)
    height: int

    def _repr_html_(self) -> str:
        frame = f'<iframe sandbox="allow-scripts" width="100%" height="{self.height}"'
        return f'{frame} frameborder="0" srcdoc="{escape(self.page)}"></iframe>'


class Result:
    """A result of the API. A class of results names its view module and gives its headline."""

    __slots__ = ()
    view: ClassVar[str]
    """The module with `page`, `table`, `document`, `figure` or `stored` (see `analyzers.views`)."""

    def headline(self) -> str:
        """What the result is about, in a few words."""
        raise NotImplementedError

    def save(
        self, path: str | Path, options: ViewOptions | None = None, force: bool = False
    ) -> Path:
        """Write the result to `path`, in the format that its extension names, and return the path.

        The file is written completely or not at all. Raises UsageError for an extension that names
        no format of this result or needs a missing package, InputError where the file exists
        (unless `force`) or cannot be written.

        >>> import tracer
        >>> path = tracer.count("models/lenet/lenet.onnx").save("work.md", force=True)
        >>> path.read_text().splitlines()[0]
        '### lenet.onnx · batch 1'
        """
        target, extension = Path(path), self.check_target(path, force)
        placed = replace(options or ViewOptions(), folder=target.parent)
        views = importlib.import_module(_VIEWS)
        write_atomically(target, views.render(self, extension, placed), force)
        return target

    @classmethod
    def check_target(cls, path: str | Path, force: bool = False) -> str:
        """Returns the extension of the format that `save` writes. Raises what `save` would raise.

        Call it before a result is computed that takes long.
        """
        views = importlib.import_module(_VIEWS)
        known = views.formats(cls)
        extension: str | None = views.extension_of(Path(path), known)
        if extension is None:
            near = suggest(Path(path).suffix.lstrip("."), known)
            raise UsageError(
                f"{path}: the extension names no format",
                f"{near}The formats are {', '.join(known)}.",
            )
        known[extension].check()
        check_writable(Path(path), force)
        return extension

    def to_pandas(self, options: ViewOptions | None = None) -> pd.DataFrame:
        """Returns the rows of the result as a table: what `save` writes to a .csv.

        >>> import tracer
        >>> tracer.count("models/lenet/lenet.onnx").to_pandas()[["node", "macs"]].head(2)
                   node    macs
        0  node_Conv_22  352800
        1     node_relu       0
        """
        table: pd.DataFrame = importlib.import_module(_VIEWS).table(self, options or ViewOptions())
        return table

    def plot(self, chart: str = "", options: ViewOptions | None = None) -> Figure:
        """Returns a chart: what `save` writes to a .png, or for "roofline" to a .roofline.png.

        Raises UsageError for a result without such a chart, and where matplotlib is missing.

        >>> import tracer
        >>> len(tracer.count("models/lenet/lenet.onnx").plot().axes)
        1
        """
        figure: Figure = importlib.import_module(_VIEWS).plot(self, chart, options or ViewOptions())
        return figure

    def _repr_html_(self) -> str:
        html: str = importlib.import_module(_VIEWS).as_html(self)
        return html

    def show(self, options: ViewOptions | None = None, height: int = 900) -> Report:
        """Returns the report of the result, which a notebook shows in a frame of `height` pixels.

        Raises UsageError for a result that has no report.

        >>> import tracer
        >>> tracer.count("models/lenet/lenet.onnx").show(height=600)
        Report(height=600)
        """
        views = importlib.import_module(_VIEWS)
        page: bytes = views.render(self, "html", options or ViewOptions())
        return Report(page.decode(), height)

    def __repr__(self) -> str:
        return line(f"{type(self).__name__}({self.headline()})")
