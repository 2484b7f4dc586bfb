"""The command line that the user typed, and others that keep what it says of the model and data."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import click

from tracer.support.temporary import STANDARD_INPUT

_WORDS = "tracer.words"
"""Key of the words behind the name of the command, in the `meta` of a context."""

_KEPT = (
    "args", "weights", "input_shape", "input_dtype", "trust", "operators", "batch", "dims",
    "inputs", "data", "data_dir", "limit", "seed", "threads", "optimization", "provider",
    "provider_options", "register", "train", "backward", "device", "prefill", "decode", "past",
    "order", "overflow", "operands", "product_bits", "fixed", "energy",
)  # fmt: skip
"""Options about the model, its inputs, its session and its sums, by parameter: the next command has
them, too."""
_FILES = ("outputs", "force", "opened")


def keep_words(context: click.Context, words: Sequence[str]) -> None:
    """Keeps the words of a command line in a context, before they are parsed."""
    context.meta[_WORDS] = tuple(words)


@dataclass(frozen=True)
class Typed:
    """What was typed: the name of the command, and flag and texts of each parameter, by name."""

    command: str
    params: dict[str, tuple[str, tuple[str, ...]]]

    @classmethod
    def now(cls) -> Typed | None:
        """Returns the running command; None where no command line of tracer was typed."""
        context = click.get_current_context(silent=True)
        if context is None or _WORDS not in context.meta:
            return None
        values, _, _ = context.command.make_parser(context).parse_args([*context.meta[_WORDS]])
        params = {}
        for param in context.command.params:
            value = values.get(param.name or "")
            texts = value if isinstance(value, tuple | list) else (value,)
            if all(isinstance(text, str | bool) for text in texts):  # others were not typed
                flag = (param.secondary_opts if value is False else param.opts)[-1]
                params[str(param.name)] = flag, tuple(t for t in texts if isinstance(t, str))
        return cls(str(context.info_name), params)

    def has(self, *names: str) -> bool:
        """Whether any of these parameters was typed."""
        return any(name in self.params for name in names)

    def texts(self, name: str) -> tuple[str, ...]:
        """Returns the texts of a parameter; none where it was not typed."""
        return self.params.get(name, ("", ()))[1]

    def text(self, name: str, ending: str = "") -> str:
        """Returns the first text of a parameter that ends so; '' for none."""
        return next((text for text in self.texts(name) if text.endswith(ending)), "")

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns models, sides or traces as they were typed; none from standard input."""
        known = (self.texts(name) for name in ("sides", "models", "traces", "source", "model"))
        found = next(filter(None, known), ())
        return () if STANDARD_INPUT in found else found

    def next(
        self, command: str, subjects: Sequence[str], *words: str, without: Sequence[str] = ()
    ) -> str:
        """Returns a command line with `words`, and the typed options that `command` has as well.

        Of another command these are options about the model and its inputs, of the same command all
        but files; and neither those in `without` nor those that `words` set.
        """
        known = importlib.import_module(f"tracer.cli.{command}").command
        options = {
            flag: param
            for param in known.params
            if isinstance(param, click.Option)
            for flag in (*param.opts, *param.secondary_opts)
        }
        kept = list[str]()
        for name, (flag, texts) in self.params.items():
            option = options.get(flag)
            is_wanted = name in _KEPT or (command == self.command and name not in _FILES)
            if option is None or not is_wanted or name in without or flag in words:
                continue
            is_same = str(option.name).rstrip("s") == name.rstrip("s")  # a sweep's is a plural
            if is_same and _are_read(option, texts):
                kept += [word for text in texts for word in (flag, text)] or [flag]
        return shlex.join(["tracer", command, *subjects, *kept, *words])


def _are_read(option: click.Option, texts: Sequence[str]) -> bool:
    """Whether a command reads these texts of an option of the same name."""
    try:
        for text in texts:
            option.type.convert(text, None, None)
    except click.BadParameter:
        return False
    return True


def new_file(model: str, ending: str) -> str:
    """Returns the name of a file that is not here yet, after a model: `net.html`, `net-2.html`."""
    stem = Path(model.rpartition(":")[0] or model).name.partition(".")[0] or "model"
    names = (f"{stem}{'' if number == 1 else f'-{number}'}{ending}" for number in count(1))
    return next(name for name in names if not Path(name).exists())
