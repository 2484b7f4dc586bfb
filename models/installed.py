"""Packages that not every installation has, asked for before they are needed."""

from __future__ import annotations

import importlib

from exporters.registry import not_installed


def require(what: str, *packages: str) -> None:
    """Raise UsageError, saying what to install, where `what` needs a package that is missing."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ModuleNotFoundError as error:
            raise not_installed(what, error) from error
