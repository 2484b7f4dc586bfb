"""Types of option values: numbers, lists, sizes, percentages, paths."""

import ast
import math
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

LARGEST = 2**31 - 1
"""Largest dimension that an option accepts; a larger one is a typing error."""

_DIGITS = 10


class Count(click.ParamType[int]):
    """An integer from `least` to `most`. The help shows `N` instead of `INTEGER RANGE [x>=1]`."""

    name = "n"

    def __init__(self, least: int = 0, most: int | None = None) -> None:
        self._range = click.IntRange(least, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Returns the integer."""
        return int(self._range.convert(value, param, ctx))


class Amount(click.ParamType[float]):
    """A number of at least 0, of the unit that `name` tells."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._range = click.FloatRange(min=0)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Returns the number."""
        return float(self._range.convert(value, param, ctx))


class PathName(click.ParamType[Path]):
    """A path other than the empty one, which would mean the current folder."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Returns the path; the command checks whether it exists."""
        if not str(value):
            self.fail("the path is empty; name a file, or . for the current folder", param, ctx)
        return Path(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Lets the shell complete file names."""
        return [CompletionItem(incomplete, type="file")]


class Integers(click.ParamType[tuple[int, ...]]):
    """Comma-separated positive integers: `1,16,64`."""

    name = "n,n,…"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Returns the integers in their order."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(int(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"'{value}' is not a list of integers such as 1,16,64", param, ctx)
        if min(numbers) < 1 or max(numbers) > LARGEST:
            self.fail(f"'{value}': every number must be from 1 to {LARGEST:,}", param, ctx)
        if len(set(numbers)) < len(numbers):
            self.fail(f"'{value}' names a number twice", param, ctx)
        return numbers


class Words(click.ParamType[tuple[str, ...]]):
    """Comma-separated words: `saturate,wrap`; only those of `allowed` unless that is empty."""

    name = "a,b,…"

    def __init__(self, allowed: tuple[str, ...] = ()) -> None:
        self._allowed = allowed

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Returns the words in their order."""
        if isinstance(value, tuple):
            return value
        words = tuple(word.strip() for word in str(value).split(","))
        if len(set(words)) < len(words):
            self.fail(f"'{value}' names a word twice", param, ctx)
        for word in words:
            if not word or (self._allowed and word not in self._allowed):
                choices = ", ".join(self._allowed) or "words such as a,b"
                self.fail(f"'{word}' is not one of {choices}", param, ctx)
        return words


class Size(click.ParamType[tuple[str, int]]):
    """A named size: `sequence=128`."""

    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Returns the name and the size."""
        if isinstance(value, tuple):
            return value
        name, equals, size = str(value).rpartition("=")
        if not equals or not name or not (size.isascii() and size.isdigit()):
            self.fail(f"'{value}' is not of the form name=value, as in sequence=128", param, ctx)
        if len(size) > _DIGITS or int(size) > LARGEST:
            self.fail(f"'{value}': a size is at most {LARGEST:,}", param, ctx)
        return name, int(size)


class Percent(click.ParamType[float]):
    """A percentage: `5%` on the command line, 0.05 as the value."""

    name = "percent"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Returns the share, 0.05 for 5%."""
        if isinstance(value, float):
            return value
        text = str(value).strip().removesuffix("%")
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number >= 0 and str(value).strip().endswith("%")):
            self.fail(f"'{value}' is not a percentage such as 5%", param, ctx)
        return number / 100


class Argument(click.ParamType[tuple[str, Any]]):
    """An argument of a class or factory: `depth=32`. The value is a Python literal or a string."""

    name = "key=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Any]:
        """Returns the name and the value."""
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not equals or not name.isidentifier():
            self.fail(f"'{value}' is not of the form key=value, as in depth=32", param, ctx)
        try:
            return name, ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return name, text
