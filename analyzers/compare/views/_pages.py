"""The page of whatever there is to show."""

from __future__ import annotations

from analyzers.compare import Comparison
from analyzers.compare.views import Result, _comparison, _sweep
from analyzers.views._page import Page


def page(result: Result) -> Page:
    """The page of a comparison or of sweeps."""
    if isinstance(result, Comparison):
        return _comparison.page(result)
    return _sweep.page(result)
