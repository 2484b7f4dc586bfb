"""Types of option values, numbers, lists, sizes, paths, and kinds of files that commands take."""

import ast
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from tracer.accumulators.spec import parts
from tracer.analyzers.options import energy_models
from tracer.errors import InputError
from tracer.support import temporary
from tracer.support.arguments import LARGEST
from tracer.text import suggest

_FILE = "FILE.toml"


class EnergyModelName(click.ParamType[str]):
    """The name of an energy model or of a TOML file; the help lists the models that are there."""

    name = "model"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Returns the names of all models."""
        return "|".join((*energy_models(), _FILE))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Lets the shell complete the names of models, and file names otherwise."""
        names = [name for name in energy_models() if name.startswith(incomplete)]
        return [CompletionItem(name) for name in names] or [CompletionItem(incomplete, type="file")]


_DIGITS = 10


class _Type(click.ParamType[Any]):
    """A type that `parse` reads from text. A ValueError of `parse` is the message to the user."""

    def parse(self, text: str) -> Any:
        """Returns the value that `text` names."""
        raise NotImplementedError

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the value; a default is a value already."""
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Choice(click.Choice[str]):
    """One of some words; the message for another word names similar ones."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Returns what is wrong with `value`."""
        near = suggest(str(value), self.choices)
        return f"{super().get_invalid_choice_message(value, ctx)} {near}".rstrip()


class _Number(click.ParamType[Any]):
    """A number within bounds; the help shows `name` instead of `INTEGER RANGE [x>=1]`."""

    def __init__(self, name: str, allowed: click.ParamType[Any]) -> None:
        self.name = name
        self._allowed = allowed
        allowed.name = "whole number" if name == "n" else f"number of {name}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the number."""
        return self._allowed.convert(value, param, ctx)


class Count(_Number):
    """An integer from `least` to `most`."""

    def __init__(self, least: int = 0, most: int = LARGEST) -> None:
        super().__init__("n", click.IntRange(least, most))


class Amount(_Number):
    """A finite number of at least 0, of the unit that `name` tells."""

    def __init__(self, name: str) -> None:
        super().__init__(name, click.FloatRange(min=0))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


class PathName(_Type):
    """A path other than the empty one, which would mean the current folder."""

    name = "file"

    def parse(self, text: str) -> Path:
        """Returns the path; the command checks whether it exists."""
        if not text:
            raise ValueError("the path is empty; name a file, or . for the current folder")
        return Path(text)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Lets the shell complete file names."""
        return [CompletionItem(incomplete, type="file")]


class ModelName(PathName):
    """What a model is named by: a path, FILE.py:NAME, or - for standard input."""

    name = "model"

    def parse(self, text: str) -> Path:
        """Returns the path; what comes from standard input is in a file by then."""
        if text == temporary.STANDARD_INPUT:
            return temporary.spool_standard_input()
        return super().parse(text)


class Integers(_Type):
    """Comma-separated integers from `least` to `most`: `1,16,64`."""

    name = "n,n,…"

    def __init__(self, least: int = 1, most: int = LARGEST) -> None:
        self._least, self._most = least, most

    def parse(self, text: str) -> tuple[int, ...]:
        """Returns the integers in their order."""
        try:
            numbers = tuple(int(part) for part in text.split(","))
        except ValueError:
            raise ValueError(f"'{text}' is not a list of integers such as 1,16,64") from None
        if min(numbers) < self._least or max(numbers) > self._most:
            allowed = f"from {self._least} to {self._most:,}"
            raise ValueError(f"'{text}': every number must be {allowed}")
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"'{text}' names a number twice")
        return numbers


class Words(_Type):
    """Comma-separated words: `tree,nest(ky,ic)`; only those of `allowed` unless that is empty."""

    name = "a,b,…"

    def __init__(self, allowed: tuple[str, ...] = ()) -> None:
        self._allowed = allowed

    def parse(self, text: str) -> tuple[str, ...]:
        """Returns the words in their order."""
        words = tuple(word.strip() for word in parts(text, ","))
        if len(set(words)) < len(words):
            raise ValueError(f"'{text}' names a word twice")
        for word in words:
            if not word or (self._allowed and word not in self._allowed):
                choices = ", ".join(self._allowed) or "words such as a,b"
                near = suggest(word, self._allowed)
                raise ValueError(f"'{word}' is not one of {choices}. {near}".rstrip(". "))
        return words

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Completes the last word of the list."""
        before, comma, last = incomplete.rpartition(",")
        named = before.split(",")
        return [
            CompletionItem(before + comma + word)
            for word in self._allowed
            if word.startswith(last) and word not in named
        ]


class Size(_Type):
    """A named size: `sequence=128`."""

    name = "name=value"

    def parse(self, text: str) -> tuple[str, int]:
        """Returns the name and the size."""
        name, equals, size = text.rpartition("=")
        if not equals or not name:
            raise ValueError(f"'{text}' is not of the form name=value, as in sequence=128")
        if not (size.isascii() and size.isdigit()):
            raise ValueError(f"'{text}': a size is a whole number from 0, as in sequence=128")
        if len(size) > _DIGITS or int(size) > LARGEST:
            raise ValueError(f"'{text}': a size is at most {LARGEST:,}")
        return name, int(size)


class Pair(_Type):
    """A named text: `device_type=CPU`."""

    name = "name=text"

    def parse(self, text: str) -> tuple[str, str]:
        """Returns the name and the text."""
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ValueError(f"'{text}' is not of the form name=text, as in device_type=CPU")
        return name, value


class Percent(_Type):
    """A percentage: `5%` on the command line, 0.05 as the value."""

    name = "percent"

    def parse(self, text: str) -> float:
        """Returns the share, 0.05 for 5%."""
        number, sign, rest = text.strip().partition("%")
        try:
            share = float(number) / 100
        except ValueError:
            share = -1.0
        if not (sign and not rest and 0 <= share < float("inf")):
            raise ValueError(f"'{text}' is not a percentage such as 5%")
        return share


class Argument(_Type):
    """An argument of a class or factory: `depth=32`. The value is a Python literal or a string."""

    name = "key=value"

    def parse(self, text: str) -> tuple[str, Any]:
        """Returns the name and the value."""
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"'{text}' is not of the form key=value, as in depth=32")
        try:
            return name, ast.literal_eval(value)
        except (ValueError, SyntaxError):
            return name, value


_OF_MODELS = frozenset(
    ("profile", "count", "diff", "fusions", "interpret", "quantize", "tune", "whatif", "narrow")
)


@dataclass(frozen=True)
class Kind:
    """Files with one of `suffixes`: what they are, what `commands` read them, and what to type."""

    what: str
    suffixes: tuple[str, ...]
    remedy: str
    commands: frozenset[str] = frozenset()


KINDS = (
    Kind("is a saved result", (".trace",),
         "tracer report {0} shows it, and tracer compare {0} OTHER compares times.",
         frozenset(("report", "compare"))),
    Kind("is a model", (".onnx", ".onnx.gz", ".pt2"),
         "tracer profile {0} measures it, and -o run.trace saves that for tracer report.",
         _OF_MODELS | {"compare", "bisect", "export"}),
    Kind("holds arrays", (".npz", ".npy"),
         "They go with a model: tracer profile MODEL --inputs {0}."),
    Kind("holds data", (".tar", ".parquet"),
         "They go with a model: tracer interpret MODEL --data {0}."),
    Kind("holds weights", (".pt", ".pth", ".safetensors"),
         "Name the code that they are for: tracer profile FILE.py:NAME --weights {0}."),
    Kind("holds JSON", (".json",),
         "tracer report shows a profile that onnxruntime or torch wrote. A plan of tracer tune "
         "goes with --plan, and a certificate with --check-certificate.",
         frozenset(("report",))),
    Kind("is a page that was written", (".html", ".md", ".csv", ".xlsx", ".png", ".svg"),
         "Open it as it is. tracer reads results from .trace files."),
    Kind("holds settings", (".toml",), "They go with a model: --accumulator {0}, or --energy {0}."),
    Kind("is a model of another format", (".tflite", ".h5", ".keras", ".mlmodel", ".pdmodel"),
         "Convert it to ONNX first, as tf2onnx and other converters do."),
)  # fmt: skip

_FINGERPRINT = Kind(
    "is a fingerprint of a machine",
    (".json",),
    "Compare with it: tracer compare MODEL --machine {0}.",
)
_HEAD = 1000
"""Characters of a fingerprint in which its first fields are."""

_READING = frozenset[str]().union(*(kind.commands for kind in KINDS))


def kind_of(text: str) -> Kind | None:
    """Returns the kind of an existing file by its name and first lines; None for any other."""
    if not Path(text).is_file():
        return None
    if text.lower().endswith(_FINGERPRINT.suffixes):
        with Path(text).open(encoding="utf-8", errors="replace") as file:
            head = file.read(_HEAD)
        if '"processor"' in head and '"instructions"' in head:
            return _FINGERPRINT
    return next((kind for kind in KINDS if text.lower().endswith(kind.suffixes)), None)


def refuse_other(text: str, command: str) -> None:
    """Raises InputError for a file of a kind that the command does not read.

    It names the command or the option that does.
    """
    kind = kind_of(text)
    if kind is not None and command in _READING and command not in kind.commands:
        what = f"{text} {kind.what}, which tracer {command} does not read"
        raise InputError(what, kind.remedy.format(text))
    is_model = any(Path(text).glob("*.onnx*"))
    if command in _OF_MODELS and not is_model and (Path(text) / "input_0.pb").is_file():
        what = f"{text} is a test_data_set, which tracer {command} does not read as a model"
        raise InputError(what, f"Its values go with a model: --inputs {text}.")
