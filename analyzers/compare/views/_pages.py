"""The page of whatever there is to show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzers.compare import Comparison
from analyzers.compare.views import _comparison, _sweep

if TYPE_CHECKING:
    from analyzers.compare.views import Result
    from analyzers.views._page import Page


def page(result: Result) -> Page:
    """The page of a comparison or of sweeps."""
    if isinstance(result, Comparison):
        return _comparison.page(result)
    return _sweep.page(result)
