"""What a file format is. Each module lists its `FORMATS`, and new modules are discovered."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tracer.analyzers.options import ViewOptions
from tracer.errors import UsageError


@dataclass(frozen=True, slots=True)
class Extra:
    """A Python package, and the extra of tracer-onnx that installs it."""

    package: str
    extra: str


@dataclass(frozen=True, slots=True)
class Format:
    """A file format, named by its extension: `csv`, `roofline.png`.

    `part` is the function of a result's view module that yields what `render` makes bytes of:
    `page`, `table`, `document`, `figure`, `checks`, `stored` and others. A result without that
    function does not have this format. With `in_full`, large numbers always have all their digits.
    """

    extension: str
    part: str
    render: Callable[[Any, ViewOptions], bytes]
    is_binary: bool = False
    needs: Extra | None = None
    in_full: bool = False

    def check(self) -> None:
        """Raise UsageError where the package that the format needs is not installed."""
        if self.needs is None or importlib.util.find_spec(self.needs.package) is not None:
            return
        raise UsageError(
            f"{self.extension} needs {self.needs.package}",
            f"Install it with: pip install 'tracer-onnx[{self.needs.extra}]'.",
        )
