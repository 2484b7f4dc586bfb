"""Options that several commands share, and the values they take."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from analyzers.options import ADDITION_CONVENTIONS, GROUPINGS, ViewOptions, refuse_depth
from tracer.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])


LARGEST = 2**31 - 1
"""Of a dimension given by hand; more is a slip of the finger and would not fit a tensor."""

_DIGITS = 10
_MEBI = 1 << 20


class PathName(click.ParamType[Path]):
    """A path that is not the empty one, which would mean the current folder."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path; whether it is there is for the command to say."""
        if not str(value):
            self.fail("the path is empty; name a file, or . for the current folder", param, ctx)
        return Path(value)


class Integers(click.ParamType[tuple[int, ...]]):
    """Comma-separated positive integers: `1,16,64`."""

    name = "n,n,…"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The integers in the order given."""
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
    """Comma-separated words: `saturate,wrap`; each one of `allowed`, if that is given."""

    name = "a,b,…"

    def __init__(self, allowed: tuple[str, ...] = ()) -> None:
        self._allowed = allowed

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """The words in the order given."""
        if isinstance(value, tuple):
            return value
        words = tuple(word.strip() for word in str(value).split(","))
        if len(set(words)) < len(words):
            self.fail(f"'{value}' names a word twice", param, ctx)
        for word in words:
            if not word or (self._allowed and word not in self._allowed):
                told = ", ".join(self._allowed) or "words such as a,b"
                self.fail(f"'{word}' is not one of {told}", param, ctx)
        return words


class Size(click.ParamType[tuple[str, int]]):
    """A named size: `sequence=128`."""

    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """The name and the size."""
        if isinstance(value, tuple):
            return value
        name, equals, size = str(value).rpartition("=")
        if not equals or not name or not (size.isascii() and size.isdigit()):
            self.fail(f"'{value}' is not of the form name=value, as in sequence=128", param, ctx)
        if len(size) > _DIGITS or int(size) > LARGEST:
            self.fail(f"'{value}': a size is at most {LARGEST:,}", param, ctx)
        return name, int(size)


class Percent(click.ParamType[float]):
    """A share written as a percentage: `5%`; 0.05 as a value."""

    name = "percent"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The share."""
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
    """An argument of a class or factory: `depth=32`; a Python literal, else a string."""

    name = "key=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Any]:
        """The name and the value."""
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not equals or not name.isidentifier():
            self.fail(f"'{value}' is not of the form key=value, as in depth=32", param, ctx)
        try:
            return name, ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return name, text


def arguments(command: Command) -> Command:
    """`--arg key=value`, repeatable."""
    return click.option(
        "--arg",
        "args",
        type=Argument(),
        multiple=True,
        help="An argument of the class or factory, as in --arg depth=32; repeatable.",
    )(command)


def dims(command: Command) -> Command:
    """`--dim name=value`, repeatable."""
    option = click.option(
        "--dim",
        "dims",
        type=Size(),
        multiple=True,
        help="Size of a symbolic dimension, as in --dim sequence=128; repeatable.",
    )
    return option(command)


def convention(command: Command) -> Command:
    """`--convention`: how additions are counted."""
    return click.option(
        "--convention",
        type=click.Choice(ADDITION_CONVENTIONS),
        default="plain",
        show_default=True,
        help="How the additions of a convolution are counted (see docs/counting.md).",
    )(command)


def limits(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--max-…`, handed to the command as `limits`."""

    @functools.wraps(command)
    def limited(
        *,
        max_seconds: float | None,
        max_tensor: int | None,
        max_live: int | None,
        max_trips: int | None,
        **own: Any,
    ) -> Any:
        from dataclasses import replace

        from tracer.limits import Limits

        given = {
            "seconds": max_seconds,
            "tensor_bytes": None if max_tensor is None else max_tensor * _MEBI,
            "live_bytes": None if max_live is None else max_live * _MEBI,
            "loop_trips": max_trips,
        }
        known: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
        return command(limits=replace(Limits(), **known), **own)

    options = (
        click.option("--max-seconds", type=click.FloatRange(min=0), default=None,
                     help="Longest run."),
        click.option("--max-tensor", type=click.IntRange(min=1), default=None, metavar="MIB",
                     help="Largest tensor  [default: 4096]"),
        click.option("--max-live", type=click.IntRange(min=1), default=None, metavar="MIB",
                     help="Most memory of live tensors  [default: 16384]"),
        click.option("--max-trips", type=click.IntRange(min=1), default=None,
                     help="Most trips of a loop  [default: 1000000]"),
    )  # fmt: skip
    for option in reversed(options):
        limited = option(limited)
    return limited


def viewing(command: Callable[..., Any]) -> Callable[..., Any]:
    """What to show and where to write it, handed to the command as one `output`.

    The targets are checked before the command runs, so that its work is never lost.
    """

    @functools.wraps(command)
    def checked(
        *,
        by: str,
        depth: int | None,
        top: int | None,
        threshold: float | None,
        as_json: bool,
        as_csv: bool,
        outputs: tuple[str, ...],
        force: bool,
        **own: Any,
    ) -> Any:
        from tracer.cli import _output

        refuse_depth(by, depth)
        targets = _output.targets(outputs, as_json, as_csv, force)
        options = ViewOptions(by, top, threshold, depth)
        return command(output=_output.Output(targets, options), **own)

    threshold = click.option(
        "--threshold", type=click.FloatRange(min=0), default=None, metavar="µs",
        help="Highlight the chart's bars from here on.",
    )  # fmt: skip
    outputs = click.option(
        "-o", "--output", "outputs", multiple=True, metavar="FILE",
        help=f"Write a file, by extension: {FORMATS}. roofline.png, or a name that ends so, is "
        "the roofline. Repeatable.",
    )  # fmt: skip
    for option in reversed((BY, DEPTH, TOP, threshold, JSON, CSV, outputs, FORCE)):
        checked = option(checked)
    return checked


def shape(text: str) -> tuple[int, ...]:
    """The sizes of `1,3,32,32`. Raises UsageError for what is none."""
    try:
        sizes = text.replace("x", ",").removesuffix(",")
        return tuple(int(size) for size in sizes.split(",")) if sizes else ()
    except ValueError as error:
        raise UsageError(
            f"--input-shape {text} is not a shape", "Give sizes with the batch first: 1,3,32,32."
        ) from error


MODEL = click.argument("model", type=PathName())
BY = click.option(
    "--by", type=click.Choice(GROUPINGS), default="node", show_default=True,
    help="Fold rows by operator, module or source line, or show the kernels that really ran.",
)  # fmt: skip
DEPTH = click.option(
    "--depth", type=click.IntRange(min=1), default=None,
    help="Levels of modules kept apart, with --by module; what lies deeper is summed  "
         "[default: all]",
)  # fmt: skip
TOP = click.option(
    "--top", type=click.IntRange(min=0), default=None,
    help="Rows to show; 0 for all  [default: 20 on a terminal, all in files]",
)  # fmt: skip
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
CSV = click.option("--csv", "as_csv", is_flag=True, help="Print CSV instead of the table.")
FORCE = click.option("--force", is_flag=True, help="Overwrite files that exist.")
FORMATS = ".trace .json .csv .parquet .md .png .svg; FORMAT:FILE for another name, - for stdout"
